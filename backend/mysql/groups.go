package mysql

import (
	"context"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// exampleMost is how many groups' examples are looked up together.
const exampleMost = 100

// Groups implements driver.Store.
func (s *Store) Groups(ctx context.Context, q redrive.Query) (groups []driver.Cause, complete bool, err error) {
	limit := q.PageLimit()
	var index, where conditions
	if q.Queue != "" {
		index.add("d.queue = ?", []byte(q.Queue))
	}
	index.cause(&q)
	plain := redrive.Query{Queue: q.Queue, State: q.State, Reason: q.Reason, Signature: q.Signature, After: q.After, Limit: q.Limit, Bodies: q.Bodies}
	var looked int64
	scan := func(r row) error {
		var g driver.Cause
		var reason int
		var first, last int64
		err := r.Scan(&g.Queue, &reason, &g.Signature, &g.Count, &first, &last)
		g.Reason, g.First, g.Last, g.Example.Queue = redrive.Reason(reason), timeAt(first), timeAt(last), g.Queue //nolint:gosec // a reason
		groups = append(groups, g)
		return err
	}
	var steps []step
	if q == plain {
		steps = []step{{sql: s.sql.with("groups", ":index", index.sql()), args: append(index.args, limit+1), scan: scan}}
	} else {
		index.died(&q)
		where.parts("d.", &q)
		args := append(append([]any{}, index.args...), redrive.Examined)
		steps = []step{
			{sql: s.sql.with("groups_bounded", ":index", index.sql(), ":where", where.sql()), args: append(append(args, where.args...), limit+1), scan: scan},
			{sql: s.sql.with("groups_looked", ":index", index.sql()), args: append(append([]any{}, index.args...), redrive.Examined+1), scan: scanInto(&looked)},
		}
	}
	if err := s.read(ctx, "groups", func() { groups = nil }, steps...); err != nil {
		return nil, false, err
	}
	complete = looked <= redrive.Examined && len(groups) <= limit
	groups = groups[:min(len(groups), limit)]
	return groups, complete, s.examples(ctx, groups, &q)
}

// examples finds the newest of each group.
func (s *Store) examples(ctx context.Context, groups []driver.Cause, q *redrive.Query) error {
	for len(groups) > 0 {
		n := min(len(groups), exampleMost)
		steps := make([]step, n)
		for i := range n {
			g := &groups[i]
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
		groups = groups[n:]
	}
	return nil
}
