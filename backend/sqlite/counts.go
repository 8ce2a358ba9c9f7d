package sqlite

import (
	"context"
	"slices"
	"strings"

	"github.com/redrive/redrive"
)

// Counts implements redrive.Store. The numbers are kept in memory as of the last
// commit; only what is due is looked up.
func (s *Store) Counts(ctx context.Context, names ...string) ([]redrive.Counts, error) {
	now := s.now()
	if len(names) == 0 {
		names = s.queueNames()
	}
	list := make([]redrive.Counts, len(names))
	err := s.read(ctx, func(c *conn) error {
		for i, name := range names {
			list[i] = redrive.Counts{Queue: name, Dead: make(map[redrive.Reason]int64)}
			q := s.queueNamed(name)
			if q == nil {
				continue
			}
			s.mu.Lock()
			state, number := q.shared, q.number
			s.mu.Unlock()
			fillCounts(&list[i], &state)
			if err := s.countDue(c, number, now, &state, &list[i]); err != nil {
				return err
			}
			if err := oldestDead(c, number, &list[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
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

func fillCounts(c *redrive.Counts, st *queueState) {
	for lane := range redrive.Lanes {
		c.Waiting[lane] = st.counts[lane]
	}
	c.Leased, c.Blocked, c.Suspects, c.Bytes = st.leased, st.counts[countBlocked], st.counts[countSuspects], st.counts[countBytes]
	for _, r := range redrive.Reasons() {
		if n := st.counts[deadCounter(r)]; n != 0 {
			c.Dead[r] = n
		}
	}
	c.Books = st.counts.books()
}

// countDue counts what may be claimed now, and finds the oldest of each class.
func (s *Store) countDue(c *conn, queue, now int64, state *queueState, counts *redrive.Counts) error {
	if counts.AllWaiting() == 0 {
		return nil
	}
	for class := range claimable {
		if state.next[class] > now {
			continue
		}
		st := c.stmt(`SELECT due, seq FROM waiting WHERE queue = ? AND class = ? AND due <= ? ORDER BY due, seq`).int(queue).int(int64(class)).int(now)
		first := true
		for st.next() {
			if s.heldLease(st.colInt(1)) != nil {
				continue
			}
			if due := timeOf(st.colInt(0)); first && int64(class) == classSuspect {
				counts.OldestSuspect = due
			} else if first {
				counts.OldestDue[class] = due
			}
			first = false
			if counts.Due == redrive.DueCounted {
				counts.DueMore = true
				break
			}
			counts.Due++
		}
		if err := st.done(); err != nil {
			return err
		}
	}
	return nil
}

// oldestDead finds the oldest dead letter, by one step in the index.
func oldestDead(c *conn, queue int64, counts *redrive.Counts) error {
	if counts.AllDead() == 0 {
		return nil
	}
	st := c.stmt(`SELECT died FROM dead WHERE queue = ? ORDER BY died LIMIT 1`).int(queue)
	for st.next() {
		counts.OldestDead = timeOf(st.colInt(0))
	}
	return st.done()
}

// Configure implements redrive.Store.
func (s *Store) Configure(ctx context.Context, name string, settings redrive.QueueSettings) error {
	if err := redrive.CheckQueue(name); err != nil {
		return &redrive.Error{Op: "configure", Err: err}
	}
	return s.do(ctx, 1, func(t *tx) error {
		q, err := t.queue(name)
		if err != nil {
			return err
		}
		before := q.settings
		t.undo = append(t.undo, undo{settings: &before, owner: q})
		q.settings = settings
		return t.write(`UPDATE queue SET order_by_key = ?, dead_release = ?, remember = ? WHERE queue = ?`).
			flag(settings.OrderByKey).flag(settings.DeadRelease).int(int64(settings.Remember)).int(q.id).run()
	})
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
