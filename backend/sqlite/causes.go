package sqlite

import (
	"context"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// cause is what groups dead letters.
type cause struct {
	queue     string
	reason    redrive.Reason
	signature string
}

// Causes implements driver.Store.
func (s *Store) Causes(ctx context.Context, q redrive.Query) (causes []driver.Cause, complete bool, err error) {
	q.State = redrive.StateDead
	limit := q.PageLimit()
	err = s.read(ctx, func(c *conn) error {
		return snapshot(c, func() error {
			g := grouper{finder: finder{s: s, read: c.stmt, held: s.heldLease, query: &q}, found: make(map[cause]*driver.Cause)}
			if err := g.collect(); err != nil {
				return err
			}
			complete = !g.full && len(g.found) <= limit
			for _, found := range g.found {
				causes = append(causes, *found)
			}
			driver.SortCauses(causes)
			causes = causes[:min(limit, len(causes))]
			for i := range causes {
				if err := g.example(&causes[i]); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return causes, complete, err
}

// grouper counts dead letters by cause.
type grouper struct {
	finder
	found  map[cause]*driver.Cause
	newest map[cause]int64
}

func (g *grouper) collect() error {
	g.newest = make(map[cause]int64)
	for _, q := range g.queues() {
		if !g.indexed() {
			if err := g.scan(q); err != nil || g.full {
				return err
			}
			continue
		}
		st := g.read(`SELECT reason, signature, count(*), min(died), max(died) FROM dead INDEXED BY dead_cause WHERE queue = ? GROUP BY reason, signature`).int(q.number)
		for st.next() {
			key := cause{q.name, redrive.Reason(st.colInt(0)), st.colText(1)} //nolint:gosec // a reason
			if g.query.Reason != 0 && g.query.Reason != key.reason || g.query.Signature != "" && g.query.Signature != key.signature {
				continue
			}
			g.found[key] = &driver.Cause{Queue: key.queue, Reason: key.reason, Signature: key.signature,
				Count: st.colInt(2), First: timeOf(st.colInt(3)), Last: timeOf(st.colInt(4))}
		}
		if err := st.done(); err != nil {
			return err
		}
	}
	return nil
}

// indexed reports whether the index of causes alone can answer.
func (g *grouper) indexed() bool {
	q := *g.query
	q.Queue, q.State, q.Reason, q.Signature, q.After, q.Limit, q.Bodies = "", 0, 0, "", "", 0, false
	return q == redrive.Query{}
}

// scan looks at each dead letter of a queue, up to a bound.
func (g *grouper) scan(q *queue) error {
	g.at = pageMark{queue: q.number, phase: phaseDead}
	st := g.source(q, phaseDead)
	var err error
	for err == nil && st.next() {
		if g.examined == redrive.Examined {
			g.full = true
			break
		}
		g.examined++
		d := scanDead(st, 3)
		var ok bool
		if _, ok, err = g.deadEntry(q, &d); err != nil || !ok {
			continue
		}
		key := cause{q.name, d.reason, d.signature}
		found := g.found[key]
		if found == nil {
			found = &driver.Cause{Queue: q.name, Reason: d.reason, Signature: d.signature, First: timeOf(d.died)}
			g.found[key] = found
		}
		found.Count++
		found.Last = timeOf(d.died)
		g.newest[key] = d.seq
	}
	if done := st.done(); err == nil {
		err = done
	}
	return err
}

// example fills in the newest dead letter of a cause.
func (g *grouper) example(found *driver.Cause) error {
	q := g.s.queueNamed(found.Queue)
	key := cause{found.Queue, found.Reason, found.Signature}
	seq := g.newest[key]
	if seq == 0 {
		st := g.read(`SELECT seq FROM dead INDEXED BY dead_cause WHERE queue = ? AND reason = ? AND signature = ? ORDER BY died DESC, seq DESC LIMIT 1`)
		st.int(g.s.numberOf(q)).int(int64(found.Reason)).text(found.Signature)
		if st.next() {
			seq = st.colInt(0)
		}
		if err := st.done(); err != nil {
			return err
		}
	}
	m, ok, err := g.message(seq, false)
	if err != nil || !ok {
		return err
	}
	found.Example = redrive.Ref{Queue: found.Queue, ID: m.ID}
	f, err := readFailure(g.read, seq, flagFirst|flagLast)
	found.Show(f)
	return err
}

// Count implements driver.Store.
func (s *Store) Count(ctx context.Context, q redrive.Query) (driver.Count, error) {
	return driver.CountFound(ctx, s.Find, q)
}

// Deaths implements driver.Store.
func (s *Store) Deaths(ctx context.Context, q redrive.Query) ([]driver.Deaths, error) {
	return nil, redrive.ErrUnsupported
}
