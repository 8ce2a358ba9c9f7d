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

// Causes implements driver.Store. What is counted of each cause is kept; its first, last and
// newest dead letter stand at the ends of an index.
func (s *Store) Causes(ctx context.Context, q redrive.Query) (causes []driver.Cause, complete bool, err error) {
	at, paged := driver.ParseCauseCursor(q.After)
	q.State, q.After = redrive.StateDead, ""
	if q.Text != "" {
		return driver.CausesFound(ctx, s.Find, q)
	}
	err = s.read(ctx, func(c *conn) error {
		return snapshot(c, func() error {
			g := grouper{finder: finder{s: s, read: c.stmt, held: s.heldLease, query: &q}}
			if isOfCause(q) {
				of, order := s.ofCause(&q), "c.dead DESC, n.name, c.reason, c.signature"
				if paged {
					order = "c.queue, c.reason, c.signature"
					of.after(s, &at)
				}
				causes, complete, err = g.counted(of.read(c, `SELECT n.name, c.reason, c.signature, c.dead FROM cause c JOIN queue n ON n.queue = c.queue
					WHERE %s ORDER BY `+order+` LIMIT ?`))
			} else {
				causes, complete, err = g.scanned()
			}
			for i := range causes {
				if err == nil {
					err = g.example(&causes[i])
				}
			}
			return err
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

// counted reads the counters of causes.
func (g *grouper) counted(st *stmt) (causes []driver.Cause, complete bool, err error) {
	limit := g.query.PageLimit()
	st.int(int64(limit) + 1)
	for st.next() {
		causes = append(causes, driver.Cause{Queue: st.colText(0), Reason: redrive.Reason(st.colInt(1)), Signature: st.colText(2), Count: st.colInt(3)}) //nolint:gosec // a reason
	}
	complete = len(causes) <= limit
	causes = causes[:min(limit, len(causes))]
	if err := st.done(); err != nil {
		return nil, false, err
	}
	for i := range causes {
		c := &causes[i]
		first, err := g.end(c, `SELECT died FROM dead INDEXED BY dead_cause WHERE queue = ? AND reason = ? AND signature = ? ORDER BY died LIMIT 1`)
		if err != nil {
			return nil, false, err
		}
		last, err := g.end(c, `SELECT died FROM dead INDEXED BY dead_cause WHERE queue = ? AND reason = ? AND signature = ? ORDER BY died DESC LIMIT 1`)
		if err != nil {
			return nil, false, err
		}
		c.First, c.Last = timeOf(first), timeOf(last)
	}
	return causes, complete, nil
}

// end reads a number at one end of a cause in its index.
func (g *grouper) end(c *driver.Cause, sql string) (int64, error) {
	return g.read(sql).int(g.s.numberOf(g.s.queueNamed(c.Queue))).int(int64(c.Reason)).text(c.Signature).one()
}

// scanned looks at each dead letter, up to a bound.
func (g *grouper) scanned() (causes []driver.Cause, complete bool, err error) {
	g.found, g.newest = make(map[cause]*driver.Cause), make(map[cause]int64)
	for _, q := range g.queues() {
		if err := g.scan(q); err != nil {
			return nil, false, err
		}
		if g.full {
			break
		}
	}
	limit := g.query.PageLimit()
	for _, found := range g.found {
		causes = append(causes, *found)
	}
	driver.SortCauses(causes)
	return causes[:min(limit, len(causes))], !g.full && len(causes) <= limit, nil
}

// scan looks at each dead letter of a queue, up to a bound.
func (g *grouper) scan(q *queue) error {
	g.at = pageCursor{queue: q.number, phase: phaseDead}
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
		died := timeOf(d.died)
		if found == nil {
			found = &driver.Cause{Queue: q.name, Reason: d.reason, Signature: d.signature, First: died}
			g.found[key] = found
		}
		found.Count++
		if died.Before(found.First) {
			found.First = died
		}
		if !died.Before(found.Last) {
			found.Last, g.newest[key] = died, d.seq
		}
	}
	if done := st.done(); err == nil {
		err = done
	}
	return err
}

// example fills in the newest dead letter of a cause.
func (g *grouper) example(found *driver.Cause) error {
	seq := g.newest[cause{found.Queue, found.Reason, found.Signature}]
	if seq == 0 {
		var err error
		if seq, err = g.end(found, `SELECT seq FROM dead INDEXED BY dead_cause WHERE queue = ? AND reason = ? AND signature = ? ORDER BY died DESC, seq DESC LIMIT 1`); err != nil {
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
