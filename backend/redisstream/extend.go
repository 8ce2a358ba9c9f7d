package redisstream

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Extend implements driver.Source.
func (s *Store) Extend(ctx context.Context, receipts []redrive.Receipt, lease time.Duration) []error {
	if s.parts != nil {
		return s.extendParts(ctx, receipts, lease)
	}
	errs := make([]error, len(receipts))
	byQueue := make(map[string][]int)
	for i := range receipts {
		byQueue[receipts[i].Queue] = append(byQueue[receipts[i].Queue], i)
	}
	for name, which := range byQueue {
		for len(which) > 0 {
			n := min(len(which), 500)
			s.extend(ctx, s.queue(name), receipts, which[:n], max(lease, minLease), errs)
			which = which[n:]
		}
	}
	if driver.FirstError(errs) == nil {
		return nil
	}
	return errs
}

func (s *Store) extend(ctx context.Context, q *queue, receipts []redrive.Receipt, which []int, lease time.Duration, errs []error) {
	args := []any{span(lease)}
	for _, i := range which {
		p := positionOf(&receipts[i])
		if !p.ok || !q.names(p.place, receipts[i].ID) {
			p.place, p.holder = "i"+receipts[i].ID, "?"
		}
		args = append(args, p.place, p.holder)
	}
	got, err := s.conn.Write(ctx, scriptExtend, s.keys(q), args...)
	results := items(got)
	for n, i := range which {
		if errs[i] = s.fail(err); err == nil {
			errs[i] = codeError(number(at(results, n)))
		}
	}
}
