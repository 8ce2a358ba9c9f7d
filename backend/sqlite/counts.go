package sqlite

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Counts implements driver.Store. The numbers are kept in memory as of the last
// commit; what is due is looked up once, and again after the queue changed or time has
// made something due.
func (s *Store) Counts(ctx context.Context, names ...string) ([]driver.Counts, error) {
	if err := s.closed(); err != nil {
		return nil, err
	}
	now := s.now()
	if len(names) == 0 {
		names = s.queueNames()
	}
	list := make([]driver.Counts, len(names))
	var stale []lookDue
	s.mu.Lock()
	for i, name := range names {
		list[i].Queue = name
		q := s.queues[name]
		if q == nil {
			continue
		}
		fillCounts(&list[i], &q.shared)
		if q.due.stamp == q.stamp && now < q.due.until {
			q.due.fill(&list[i])
		} else if list[i].AllWaiting() > 0 || list[i].AllDead() > 0 {
			stale = append(stale, lookDue{queue: q, number: q.number, next: q.shared.next, due: due{stamp: q.stamp}, counts: &list[i]})
		}
	}
	s.mu.Unlock()
	if len(stale) == 0 {
		return list, nil
	}
	err := s.read(ctx, func(c *conn) error {
		return snapshot(c, func() error {
			for i := range stale {
				if err := s.look(c, &stale[i], now); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range stale {
		stale[i].fill(stale[i].counts)
		stale[i].queue.due = stale[i].due
	}
	return list, nil
}

// due is what is due in a queue and since when, and since when the oldest is dead.
type due struct {
	stamp  uint64 // of the state that it was looked up in
	until  int64  // until then nothing else becomes due by itself
	n      int64
	more   bool
	oldest [claimable]int64 // 0: none
	died   int64            // 0: none
}

func (d *due) fill(c *driver.Counts) {
	c.Due, c.DueMore = d.n, d.more
	for lane := range driver.Lanes {
		c.OldestDue[lane] = timeOf(d.oldest[lane])
	}
	c.OldestSuspect, c.OldestDead = timeOf(d.oldest[classSuspect]), timeOf(d.died)
}

// lookDue is a queue whose due is looked up.
type lookDue struct {
	due
	queue  *queue
	number int64
	next   [claimable]int64
	counts *driver.Counts
}

// look counts what may be claimed now, and finds the oldest of each class and of the
// dead, by a step in an index for each.
func (s *Store) look(c *conn, l *lookDue, now int64) error {
	l.until = dueNever
	if l.counts.AllWaiting() > 0 {
		for class := range claimable {
			if err := s.countDue(c, l, class, now); err != nil {
				return err
			}
		}
	}
	if l.counts.AllDead() == 0 {
		return nil
	}
	st := c.stmt(`SELECT died FROM dead WHERE queue = ? ORDER BY died LIMIT 1`).int(l.number)
	for st.next() {
		l.died = st.colInt(0)
	}
	return st.done()
}

func (s *Store) countDue(c *conn, l *lookDue, class int, now int64) error {
	if l.next[class] > now {
		l.until = min(l.until, l.next[class])
		return nil
	}
	st := c.stmt(`SELECT due, seq FROM waiting WHERE queue = ? AND class = ? ORDER BY due, seq`).int(l.number).int(int64(class))
	for st.next() {
		at := st.colInt(0)
		if at > now {
			l.until = min(l.until, at)
			break
		}
		if s.heldLease(st.colInt(1)) != nil {
			continue
		}
		if l.oldest[class] == 0 {
			l.oldest[class] = at
		}
		if l.n == driver.DueCounted {
			l.more = true
			break
		}
		l.n++
	}
	return st.done()
}

// queueNames returns the names of the queues in the file, sorted.
func (s *Store) queueNames() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, q := range s.queues {
		if q.number != 0 {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, strings.Compare)
	return names
}

func fillCounts(c *driver.Counts, st *queueState) {
	for lane := range driver.Lanes {
		c.Waiting[lane] = st.counts[lane]
	}
	c.Leased, c.Blocked, c.Suspects, c.Bytes = st.leased, st.counts[countBlocked], st.counts[countSuspects], st.counts[countBytes]
	for r := redrive.ReasonExhausted; r <= driver.LastReason; r++ {
		if n := st.counts[deadCounter(r)]; n != 0 {
			if c.Dead == nil {
				c.Dead = make(map[redrive.Reason]int64)
			}
			c.Dead[r] = n
		}
	}
	c.Ledger = st.counts.ledger()
}

// Configure implements driver.Store.
func (s *Store) Configure(ctx context.Context, name string, settings driver.QueueSettings) error {
	if err := driver.CheckQueue(name); err != nil {
		return &redrive.Error{Op: "configure", Err: err}
	}
	return s.do(ctx, 1, func(t *tx) error {
		q, err := t.queue(name)
		if err != nil {
			return err
		}
		t.undo = append(t.undo, undo{settings: &formerSettings{q, q.settings}})
		q.settings = settings
		return t.write(`UPDATE queue SET order_by_key = ?, dead_release = ?, remember = ? WHERE queue = ?`).
			flag(settings.OrderByKey).flag(settings.DeadRelease).int(int64(settings.Remember)).int(q.id).run()
	})
}

// Settings implements driver.SettingsStore.
func (s *Store) Settings(ctx context.Context, name string) (settings driver.QueueSettings, err error) {
	err = s.do(ctx, 1, func(*tx) error {
		if q := s.queueNamed(name); q != nil {
			settings = q.settings
		}
		settings.Remember = cmp.Or(settings.Remember, driver.DefaultRemember)
		return nil
	})
	return settings, err
}

// funcOp is an operation made of one function.
type funcOp struct {
	op
	fn  func(*tx) error
	err error
}

func (o *funcOp) run(t *tx) { o.err = t.item(func() error { return o.fn(t) }) }

func (o *funcOp) end(err error) {
	if err != nil {
		o.err = err
	}
}

// do has the writer run a function. Its commit is synced.
func (s *Store) do(ctx context.Context, items int, fn func(*tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o := &funcOp{op: newOp(items, 0, true, false), fn: fn}
	took, err := s.submit(lineOther, o, ctx.Done())
	if err != nil {
		return err
	}
	if !took {
		return ctx.Err()
	}
	return o.err
}
