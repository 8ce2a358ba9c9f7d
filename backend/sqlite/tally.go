package sqlite

import (
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// tallied is a cause within the file.
type tallied struct {
	queue     *queue
	reason    redrive.Reason
	signature string
}

// tally is what a transaction changes of a cause's counters, which it stores when it commits.
type tally struct {
	dead   int64
	deaths map[bucket]int64
}

// bucket is a span of time in which deaths are counted.
type bucket struct{ width, start int64 }

// bucketOf is the bucket for a death; its width is 0 for one that is too old for any.
func bucketOf(now, died int64) bucket {
	width := int64(driver.DeathWidth(time.Duration(now - died)))
	if width == 0 {
		return bucket{}
	}
	return bucket{width, died - died%width}
}

// tallyStep is one change of a tally, to be taken back.
type tallyStep struct {
	tally  *tally
	n      int64
	bucket bucket
}

// countDead counts a dead letter that comes or goes, by its reason and its cause. If it died
// now, b is the bucket of its death.
func (t *tx) countDead(q *queue, d *deadRow, n int64, b bucket) {
	t.count(q, deadCounter(d.reason), n)
	if t.tallies == nil {
		t.tallies = make(map[tallied]*tally)
	}
	key := tallied{q, d.reason, d.signature}
	c := t.tallies[key]
	if c == nil {
		c = &tally{deaths: make(map[bucket]int64)}
		t.tallies[key] = c
	}
	c.add(n, b)
	t.undo = append(t.undo, undo{tally: &tallyStep{c, n, b}})
}

func (c *tally) add(n int64, b bucket) {
	c.dead += n
	if b.width != 0 {
		c.deaths[b] += n
	}
}

// storeTallies writes the counters of causes.
func (t *tx) storeTallies() error {
	for key, c := range t.tallies {
		if c.dead != 0 {
			if err := t.storeDead(&key, c.dead); err != nil {
				return err
			}
		}
		for b, n := range c.deaths {
			if n == 0 {
				continue
			}
			if err := t.storeDeaths(&key, b, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// storeDead writes the count of a cause's dead letters; the row goes with the last.
func (t *tx) storeDead(key *tallied, n int64) error {
	s := t.write(`INSERT INTO cause (queue, reason, signature, dead) VALUES (?, ?, ?, ?)
		ON CONFLICT (queue, reason, signature) DO UPDATE SET dead = dead + excluded.dead RETURNING dead`)
	s.int(key.queue.id).int(int64(key.reason)).text(key.signature).int(n)
	left := n
	for s.next() {
		left = s.colInt(0)
	}
	if err := s.done(); err != nil || left != 0 {
		return err
	}
	return t.write(`DELETE FROM cause WHERE queue = ? AND reason = ? AND signature = ?`).
		int(key.queue.id).int(int64(key.reason)).text(key.signature).run()
}

// storeDeaths counts deaths in a cause's series, or in that of all others where the queue has
// as many as it may.
func (t *tx) storeDeaths(key *tallied, b bucket, n int64) error {
	q, reason, signature := key.queue, int64(key.reason), key.signature
	has, err := t.hasSeries(q.id, reason, signature)
	switch {
	case err != nil:
		return err
	case has:
	case q.state.counts[countSeries] < t.s.maxSeries:
		t.count(q, countSeries, 1)
	default:
		reason, signature = 0, driver.OtherCauses
	}
	return t.addBucket(q.id, reason, signature, b, n)
}

// hasSeries reports whether a cause has buckets.
func (t *tx) hasSeries(queue, reason int64, signature string) (bool, error) {
	s := t.read(`SELECT 1 FROM bucket WHERE queue = ? AND reason = ? AND signature = ? LIMIT 1`).int(queue).int(reason).text(signature)
	found := s.next()
	return found, s.done()
}

func (t *tx) addBucket(queue, reason int64, signature string, b bucket, n int64) error {
	return t.write(`INSERT INTO bucket (queue, reason, signature, width, start, deaths) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (queue, reason, signature, width, start) DO UPDATE SET deaths = deaths + excluded.deaths`).
		int(queue).int(reason).text(signature).int(b.width).int(b.start).int(n).run()
}

// fold adds buckets that are too old for their width to wider ones, removes the oldest, and
// returns how many it took.
func (t *tx) fold(limit int64) (n int64, err error) {
	for _, span := range []struct{ width, kept time.Duration }{
		{time.Minute, driver.DeathMinutes}, {time.Hour, driver.DeathHours}, {24 * time.Hour, driver.DeathDays},
	} {
		type old struct {
			queue, reason, start, deaths int64
			name, signature              string
		}
		var list []old
		s := t.read(`SELECT b.queue, b.reason, b.start, b.deaths, q.name, b.signature FROM bucket b INDEXED BY bucket_start CROSS JOIN queue q ON q.queue = b.queue
			WHERE b.width = ? AND b.start <= ? ORDER BY b.start LIMIT ?`).int(int64(span.width)).int(t.now - int64(span.kept)).int(limit - n)
		for s.next() {
			list = append(list, old{s.colInt(0), s.colInt(1), s.colInt(2), s.colInt(3), s.colText(4), s.colText(5)})
		}
		if err := s.done(); err != nil {
			return n, err
		}
		for i := range list {
			o := &list[i]
			err := t.write(`DELETE FROM bucket WHERE queue = ? AND reason = ? AND signature = ? AND width = ? AND start = ?`).
				int(o.queue).int(o.reason).text(o.signature).int(int64(span.width)).int(o.start).run()
			if err != nil {
				return n, err
			}
			if b := bucketOf(t.now, o.start); b.width != 0 {
				err = t.addBucket(o.queue, o.reason, o.signature, b, o.deaths)
			} else {
				err = t.endSeries(o.name, o.queue, o.reason, o.signature)
			}
			if err != nil {
				return n, err
			}
			n++
		}
	}
	return n, nil
}

// endSeries counts a series less if its last bucket is gone.
func (t *tx) endSeries(name string, queue, reason int64, signature string) error {
	if has, err := t.hasSeries(queue, reason, signature); err != nil || has || reason == 0 {
		return err
	}
	t.count(t.s.queueNamed(name), countSeries, -1)
	return nil
}
