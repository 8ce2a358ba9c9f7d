package mysql

import (
	"context"
	"slices"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// countTogether is how many pairs of queue and class are counted together.
const countTogether = 100

// Counts implements driver.Store. What waits and what is dead stands in the ledger;
// leased, blocked, suspect and due messages are counted in the index, all in one
// snapshot.
func (s *Store) Counts(ctx context.Context, names ...string) ([]driver.Counts, error) {
	if err := s.base.Ready(ctx); err != nil {
		return nil, err
	}
	var c counter
	err := s.inSnapshot(ctx, "counts", func(tx db) error {
		c = counter{db: tx, sql: s.sql, of: make(map[string]*driver.Counts)}
		return c.run(ctx, names)
	})
	if err != nil {
		return nil, fault("counts", err)
	}
	list := make([]driver.Counts, len(c.order))
	for i, name := range c.order {
		list[i] = *c.of[name]
	}
	return list, nil
}

// counter counts queues.
type counter struct {
	db    db
	sql   *statements
	of    map[string]*driver.Counts
	order []string
	now   int64
}

func (c *counter) queue(name string) *driver.Counts {
	if c.of[name] == nil {
		c.of[name] = &driver.Counts{Queue: name, Dead: make(map[redrive.Reason]int64)}
		c.order = append(c.order, name)
	}
	return c.of[name]
}

func (c *counter) run(ctx context.Context, names []string) error {
	for _, name := range names {
		c.queue(name)
	}
	args := make([]any, len(names))
	for i, name := range names {
		args[i] = []byte(name)
	}
	where, and := "", ""
	if len(names) > 0 {
		where, and = " WHERE queue IN ("+places(len(names))+")", " AND m.queue IN ("+places(len(names))+")"
	}
	type pair struct {
		queue string
		class int
		due   int64
	}
	var pairs []pair
	peek, peekArgs := peekStatement(c.sql, names)
	err := c.db.run(ctx,
		step{sql: c.sql.Get("now"), scan: scanInto(&c.now)},
		step{sql: c.sql.with("ledger", ":where", where), args: append(slices.Clone(args), args...), scan: c.scanLedger},
		step{sql: c.sql.with("count_classes", ":where", and), args: args, scan: c.scanClass},
		step{sql: peek, args: peekArgs, scan: func(r row) error {
			var p pair
			err := r.Scan(&p.queue, &p.class, &p.due)
			if p.due <= c.now && p.class != sqlstore.ClassBlocked && p.class != sqlstore.ClassLeasedBlocked {
				pairs = append(pairs, p)
			}
			return err
		}},
		step{sql: c.sql.with("oldest_dead", ":where", where), args: args, scan: c.scanDead})
	if err != nil {
		return err
	}
	for part := range slices.Chunk(pairs, countTogether) {
		steps := make([]step, len(part))
		for i, p := range part {
			q := c.queue(p.queue)
			switch at := timeAt(p.due); {
			case p.class < driver.Lanes:
				q.OldestDue[p.class] = at
			case q.OldestSuspect.IsZero() || at.Before(q.OldestSuspect): // named so, or a lease that ran out
				q.OldestSuspect = at
			}
			steps[i] = step{sql: c.sql.Get("count_due"), args: []any{[]byte(p.queue), p.class, driver.DueCounted + 1}, scan: func(r row) error {
				var n int64
				err := r.Scan(&n)
				q.Due += n
				return err
			}}
		}
		if err := c.db.run(ctx, steps...); err != nil {
			return err
		}
	}
	for _, q := range c.of {
		if q.Due > driver.DueCounted {
			q.Due, q.DueMore = driver.DueCounted, true
		}
	}
	if len(names) == 0 {
		slices.SortFunc(c.order, strings.Compare)
	}
	return nil
}

func (c *counter) scanLedger(r row) error {
	var name string
	var b sqlstore.Ledger
	err := r.Scan(append([]any{&name}, b.Dest()...)...)
	b.Fill(c.queue(name))
	return err
}

func (c *counter) scanClass(r row) error {
	var name string
	var class int
	var late bool
	var n int64
	err := r.Scan(&name, &class, &late, &n)
	q := c.queue(name)
	switch {
	case class >= sqlstore.ClassLeased && !late:
		q.Leased += n
	case class == sqlstore.ClassBlocked:
		q.Blocked += n
	case class == sqlstore.ClassLeasedBlocked:
		q.Blocked += n
		q.Suspects += n
	default: // named so, or a lease that ran out
		q.Suspects += n
	}
	return err
}

func (c *counter) scanDead(r row) error {
	var name string
	var died int64
	err := r.Scan(&name, &died)
	c.queue(name).OldestDead = timeAt(died)
	return err
}

// QueueNames implements sqlstore.Server.
func (d dialect) QueueNames(ctx context.Context) ([]string, error) {
	var names []string
	err := d.read(ctx, "queue_names", func() { names = nil }, step{sql: d.sql.Get("queue_names"), scan: scanNames(&names)})
	return names, err
}

// scanNames returns a scan of rows of one name.
func scanNames(names *[]string) func(row) error {
	return func(r row) error {
		var name string
		err := r.Scan(&name)
		*names = append(*names, name)
		return err
	}
}

// SetUp implements sqlstore.Server.
func (d dialect) SetUp(ctx context.Context, queue string, s *driver.QueueSettings) error {
	return d.inTx(ctx, "configure", func(tx db) error {
		return tx.run(ctx, step{sql: d.sql.Get("configure"), args: []any{[]byte(queue), s.OrderByKey, s.DeadRelease, sqlstore.Micros(s.Remember)}})
	})
}
