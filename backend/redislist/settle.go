package redislist

import (
	"context"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Settle implements driver.Source.
func (s *Source) Settle(ctx context.Context, batchOf []driver.Settlement) []error {
	errs := make([]error, len(batchOf))
	if err := s.enter(ctx); err != nil {
		return fill(errs, err)
	}
	groups := byQueue(len(batchOf), func(i int) (string, bool) {
		t := &batchOf[i]
		switch {
		case t.Validate() != nil:
			errs[i] = t.Validate()
		case len(t.Emit) > 0, t.Edit != nil, t.Outcome == redrive.OutcomeDead && !s.o.KeepDead:
			errs[i] = redrive.ErrUnsupported
		default:
			if _, _, ok := position(&t.Receipt); !ok {
				errs[i] = redrive.ErrNotFound
			}
		}
		return t.Receipt.Queue, errs[i] == nil
	})
	for name, group := range groups {
		q, err := s.queue(name)
		for part := range slices.Chunk(group, batch) {
			if err != nil {
				answer(errs, part, nil, err)
				continue
			}
			s.settle(ctx, q, batchOf, part, errs)
		}
	}
	return errs
}

func (s *Source) settle(ctx context.Context, q *queue, all []driver.Settlement, part []int, errs []error) {
	args := make([]any, 0, 1+6*len(part))
	args = append(args, s.o.Remember.Microseconds())
	again := false
	for _, i := range part {
		t := &all[i]
		n, claim, _ := position(&t.Receipt)
		args = append(args, n, claim, uint8(t.Outcome), t.After.Microseconds(), uint8(t.Reason), driver.EncodeFailure(t.Failure))
		again = again || t.Outcome == redrive.OutcomeRetry || t.Outcome == redrive.OutcomeRelease || t.Outcome == redrive.OutcomeRepeat
	}
	k := q.keys
	v, err := s.conn.Write(ctx, settleScript, []string{k.body, k.state, k.history, k.leases,
		k.due[0], k.due[1], k.due[2], k.dead, k.deadIDs, k.ids, k.forget}, args...)
	got, err := codes(settleScript.Name(), v, len(part), err)
	answer(errs, part, got, err)
	s.held.leave(all, part, errs)
	if again {
		s.look(q)
	}
}

// Extend implements driver.Source.
func (s *Source) Extend(ctx context.Context, receipts []redrive.Receipt, lease time.Duration) []error {
	errs := make([]error, len(receipts))
	if err := s.enter(ctx); err != nil {
		return fill(errs, err)
	}
	groups := byQueue(len(receipts), func(i int) (string, bool) {
		if _, _, ok := position(&receipts[i]); !ok {
			errs[i] = redrive.ErrNotFound
		}
		return receipts[i].Queue, errs[i] == nil
	})
	for name, group := range groups {
		q, err := s.queue(name)
		for part := range slices.Chunk(group, batch) {
			if err != nil {
				answer(errs, part, nil, err)
				continue
			}
			args := make([]any, 0, 1+2*len(part))
			args = append(args, max(lease, minLease).Microseconds())
			for _, i := range part {
				n, claim, _ := position(&receipts[i])
				args = append(args, n, claim)
			}
			v, err := s.conn.Write(ctx, extendScript, []string{q.keys.state, q.keys.leases}, args...)
			got, err := codes(extendScript.Name(), v, len(part), err)
			answer(errs, part, got, err)
		}
	}
	return errs
}

// byQueue groups the items that are fit to be sent by queue.
func byQueue(n int, fit func(i int) (queue string, ok bool)) map[string][]int {
	groups := make(map[string][]int)
	for i := range n {
		if queue, ok := fit(i); ok {
			groups[queue] = append(groups[queue], i)
		}
	}
	return groups
}

// answer turns the codes of a script into the errors of the items that part names.
func answer(errs []error, part []int, codes []int64, err error) {
	for j, i := range part {
		switch {
		case err != nil:
			errs[i] = err
		case codes[j] == 1:
			errs[i] = redrive.ErrLeaseLost
		case codes[j] == 2:
			errs[i] = redrive.ErrNotFound
		}
	}
}
