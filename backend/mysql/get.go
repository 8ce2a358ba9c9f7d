package mysql

import (
	"context"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Get implements driver.Store.
func (s *Store) Get(ctx context.Context, refs []redrive.Ref) ([]*redrive.Entry, error) {
	entries := make([]*redrive.Entry, len(refs))
	if len(refs) == 0 {
		return entries, s.base.Ready(ctx)
	}
	var now int64
	found := make(map[redrive.Ref]*redrive.Entry, len(refs))
	keep := func(r row) error {
		m, err := scanMessage(r)
		if err != nil {
			return err
		}
		found[m.Ref()], err = m.Entry(timeAt(now), true)
		return err
	}
	steps := []step{stepSnapshot[0], stepSnapshot[1], {sql: s.sql.Get("now"), scan: scanInto(&now)}}
	for _, l := range byQueue(refs) {
		steps = append(steps, l.step(s.sql, "get_messages", keep), l.step(s.sql, "get_dead", keep))
	}
	if err := s.read(ctx, "get", nil, append(steps, stepCommit)...); err != nil {
		return nil, err
	}
	for i, ref := range refs {
		entries[i] = found[ref]
	}
	return entries, nil
}

// Recall implements driver.Store.
func (s *Store) Recall(ctx context.Context, refs []redrive.Ref) ([]*driver.Remembered, error) {
	found := make(map[redrive.Ref]*driver.Remembered, len(refs))
	var steps []step
	for _, l := range byQueue(refs) {
		steps = append(steps, l.step(s.sql, "recall", func(r row) error {
			m := new(driver.Remembered)
			var outcome, reason int
			var hash, at int64
			err := r.Scan(&m.Queue, &m.ID, &hash, &outcome, &reason, &at)
			m.Hash, m.Outcome, m.Reason, m.At = uint64(hash), redrive.Outcome(outcome), redrive.Reason(reason), timeAt(at) //nolint:gosec // bits, and small
			found[m.Ref] = m
			return err
		}))
	}
	if err := s.read(ctx, "recall", nil, steps...); err != nil {
		return nil, err
	}
	list := make([]*driver.Remembered, len(refs))
	for i, ref := range refs {
		list[i] = found[ref]
	}
	return list, nil
}
