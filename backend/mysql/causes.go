package mysql

import (
	"context"
	"slices"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// exampleMost is how many causes' examples are looked up together.
const exampleMost = 100

// Causes implements driver.Store.
func (s *Store) Causes(ctx context.Context, q redrive.Query) (causes []driver.Cause, complete bool, err error) {
	if sqlstore.ByCause(&q) {
		return s.countedCauses(ctx, &q)
	}
	limit := q.PageLimit()
	index, where := which(&q), conditions{}
	index.died(&q)
	where.parts("d.", &q)
	args := append(append(slices.Clone(index.args), redrive.Examined), where.args...)
	var looked int64
	err = s.read(ctx, "causes", func() { causes = nil },
		step{sql: s.sql.with("causes_bounded", ":index", index.sql(), ":where", where.sql()), args: append(args, limit+1), scan: func(r row) error {
			var g driver.Cause
			var reason int
			var first, last int64
			err := r.Scan(&g.Queue, &reason, &g.Signature, &g.Count, &first, &last)
			g.Reason, g.First, g.Last, g.Example.Queue = redrive.Reason(reason), timeAt(first), timeAt(last), g.Queue //nolint:gosec // a reason
			causes = append(causes, g)
			return err
		}},
		step{sql: s.sql.with("causes_looked", ":index", index.sql()), args: append(slices.Clone(index.args), redrive.Examined+1), scan: scanInto(&looked)})
	if err != nil {
		return nil, false, err
	}
	complete = looked <= redrive.Examined && len(causes) <= limit
	causes = causes[:min(len(causes), limit)]
	return causes, complete, s.examples(ctx, causes, &q)
}

// countedCauses are the largest causes by their counters, or those after one, each with its first and its
// newest dead letter, all in one snapshot.
func (s *Store) countedCauses(ctx context.Context, q *redrive.Query) (causes []driver.Cause, complete bool, err error) {
	limit, w, first := q.PageLimit(), which(q), "n DESC,"
	if at, ok := driver.ParseCauseCursor(q.After); ok {
		first = ""
		w.add("d.queue >= ?", []byte(at.Queue)) // by which it finds the place in the index
		w.add("(d.queue, d.reason, d.signature) > (?, ?, ?)", []byte(at.Queue), int(at.Reason), []byte(at.Signature))
	}
	args := append(append(slices.Clone(w.args), w.args...), limit+1)
	err = s.inSnapshot(ctx, "causes", func(tx db) error {
		causes = nil
		err := tx.run(ctx, step{sql: s.sql.with("counted_causes", ":which", w.sql(), ":first", first), args: args, scan: func(r row) error {
			var g driver.Cause
			var reason int
			err := r.Scan(&g.Queue, &reason, &g.Signature, &g.Count)
			g.Reason, g.Example.Queue = redrive.Reason(reason), g.Queue //nolint:gosec // a reason
			causes = append(causes, g)
			return err
		}})
		complete = len(causes) <= limit
		causes = causes[:min(len(causes), limit)]
		for rest := causes; err == nil && len(rest) > 0; rest = rest[min(len(rest), exampleMost):] {
			var steps []step
			for i := range rest[:min(len(rest), exampleMost)] {
				steps = append(steps, s.ends(&rest[i])...)
			}
			err = tx.run(ctx, steps...)
		}
		return err
	})
	return causes, complete, fault("causes", err)
}

// ends find the first and the newest dead letter of a cause.
func (s *Store) ends(g *driver.Cause) []step {
	args := causeArgs(&sqlstore.Cause{Queue: g.Queue, Reason: g.Reason, Signature: g.Signature})
	var at int64
	return []step{
		{sql: s.sql.Get("cause_first"), args: args, scan: func(r row) error {
			err := r.Scan(&at)
			g.First = timeAt(at)
			return err
		}},
		{sql: s.sql.Get("cause_last"), args: args, scan: func(r row) error {
			var failure []byte
			err := r.Scan(&at, &g.Example.ID, &failure)
			g.Last = timeAt(at)
			g.Show(driver.DecodeFailure(failure))
			return err
		}},
	}
}

// examples finds the newest of each cause.
func (s *Store) examples(ctx context.Context, causes []driver.Cause, q *redrive.Query) error {
	for len(causes) > 0 {
		n := min(len(causes), exampleMost)
		steps := make([]step, n)
		for i := range n {
			g := &causes[i]
			var w conditions
			w.add("d.queue = ?", []byte(g.Queue))
			w.add("d.reason = ?", int(g.Reason))
			w.add("d.signature = ?", []byte(g.Signature))
			w.died(q)
			w.parts("d.", q)
			steps[i] = step{sql: s.sql.with("group_example", ":where", w.sql()), args: w.args, scan: func(r row) error {
				var failure []byte
				err := r.Scan(&g.Example.ID, &failure)
				g.Show(driver.DecodeFailure(failure))
				return err
			}}
		}
		if err := s.read(ctx, "group_examples", nil, steps...); err != nil {
			return err
		}
		causes = causes[n:]
	}
	return nil
}
