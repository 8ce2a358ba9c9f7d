package sqlite

import (
	"context"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Get implements driver.Store.
func (s *Store) Get(ctx context.Context, refs []redrive.Ref) ([]*redrive.Entry, error) {
	entries := make([]*redrive.Entry, len(refs))
	err := s.read(ctx, func(c *conn) error {
		return snapshot(c, func() error {
			f := finder{s: s, read: c.stmt, held: s.heldLease, query: &redrive.Query{Bodies: true}}
			for i, ref := range refs {
				q := s.queueNamed(ref.Queue)
				if q == nil {
					continue
				}
				seq, err := lookup(c.stmt, s.numberOf(q), ref.ID)
				if err != nil {
					return err
				}
				if seq == 0 {
					continue
				}
				e, ok, err := f.entry(q, seq)
				if err != nil {
					return err
				}
				if ok {
					entries[i] = e
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

// heldLease returns a copy of the lease of a message, or nil, for readers.
func (s *Store) heldLease(seq int64) *lease {
	s.leaseMu.RLock()
	defer s.leaseMu.RUnlock()
	l := s.leases.held(seq)
	if l == nil {
		return nil
	}
	copied := *l
	return &copied
}

// numberOf returns the number of a queue, 0 if it is not in the file.
func (s *Store) numberOf(q *queue) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return q.number
}

// Recall implements driver.Store.
func (s *Store) Recall(ctx context.Context, refs []redrive.Ref) ([]*driver.Remembered, error) {
	found := make([]*driver.Remembered, len(refs))
	err := s.read(ctx, func(c *conn) error {
		for i, ref := range refs {
			q := s.queueNamed(ref.Queue)
			if q == nil {
				continue
			}
			st := c.stmt(`SELECT hash, outcome, reason, at FROM chosen WHERE queue = ? AND id = ? AND (until IS NULL OR until > ?)`)
			st.int(s.numberOf(q)).text(ref.ID).int(s.now())
			if st.next() {
				found[i] = &driver.Remembered{Ref: ref, Hash: uint64(st.colInt(0)), //nolint:gosec // the bits are what counts
					Outcome: redrive.Outcome(st.colInt(1)), Reason: redrive.Reason(st.colInt(2)), At: timeOf(st.colInt(3))} //nolint:gosec // small
			}
			if err := st.done(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}
