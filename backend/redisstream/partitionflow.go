package redisstream

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// How messages go through a store with partitions.

func (s *Store) publishParts(ctx context.Context, msgs []redrive.Message) []error {
	all := make([]*redrive.Message, len(msgs))
	for i := range msgs {
		all[i] = &msgs[i]
	}
	errs := s.reserve(ctx, all)
	turn := s.next() // what has neither key nor id stays together: one script
	groups := s.split(len(msgs), func(i int) int {
		if m := &msgs[i]; m.Key+m.ID != "" {
			return s.home(m.Key, m.ID).part
		}
		return turn
	})
	for p := range groups {
		groups[p] = slices.DeleteFunc(groups[p], func(i int) bool { return errs[i] != nil })
	}
	s.each(groups, func(p *Store, which []int) {
		some := pick(msgs, which)
		spread(errs, p.Publish(ctx, some), which)
		for n, i := range which {
			msgs[i].ID = some[n].ID
		}
	})
	if driver.FirstError(errs) == nil {
		return nil
	}
	return errs
}

// claimParts asks one partition after the other for all, each time beginning with
// another, and what the first lacks of several at once.
func (s *Store) claimParts(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	n, turn := len(s.parts), s.next()
	pending := make([]*Store, n)
	for i := range n {
		pending[i] = s.parts[(turn+i)%n]
	}
	all, failed := []redrive.Delivery(nil), error(nil)
	for ask := 1; len(pending) > 0 && len(all) < max(req.Max, 1); ask = n {
		if req.Isolated || ask > 1 && req.Max-len(all) < len(pending) {
			ready, err := s.ready(ctx, &req, pending)
			if err != nil && len(all) == 0 {
				return nil, err
			}
			if pending = ready; len(pending) == 0 {
				break
			}
		}
		now := pending[:min(ask, len(pending), max(req.Max-len(all), 1))]
		got, more, err := s.claimSome(ctx, req, now, req.Max-len(all))
		if errors.Is(err, redrive.ErrInvalid) || errors.Is(err, redrive.ErrClosed) && len(got)+len(all) == 0 {
			return nil, err
		}
		if err != nil && failed == nil {
			failed = err // the others go on without the server of this one
		}
		all = append(all, got...)
		pending = append(slices.Clip(pending[len(now):]), more...)
	}
	if len(all) > 0 {
		return all, nil
	}
	return nil, failed
}

// claimSome claims up to limit messages from some partitions at once, a share from each,
// and returns those that may have more.
func (s *Store) claimSome(ctx context.Context, req driver.ClaimRequest, from []*Store, limit int) (all []redrive.Delivery, more []*Store, failed error) {
	lists, errs := make([][]redrive.Delivery, len(from)), make([]error, len(from))
	share := func(i int) int { return limit/len(from) + bit(i < limit%len(from)) }
	claim := func(i int) {
		r := req
		r.Max = share(i)
		lists[i], errs[i] = from[i].Claim(ctx, r)
		for k := range lists[i] {
			stampReceipt(&lists[i][k].Receipt, from[i])
		}
	}
	var wg sync.WaitGroup
	for i := 1; i < len(from); i++ {
		wg.Go(func() { claim(i) })
	}
	claim(0)
	wg.Wait()
	for i, p := range from {
		all = append(all, lists[i]...)
		if errs[i] == nil && len(lists[i]) > 0 && len(lists[i]) == share(i) {
			more = append(more, p)
		}
		if failed == nil {
			failed = errs[i]
		}
	}
	return all, more, failed
}

// ready returns those of some partitions that have what a claim asks for, as far as one
// can know; for suspects, that of the oldest first.
func (s *Store) ready(ctx context.Context, req *driver.ClaimRequest, parts []*Store) ([]*Store, error) {
	if req.Dead || req.Expired {
		return parts, nil
	}
	tallies, err := s.tallies(ctx, []string{req.Queue})
	if err != nil {
		return nil, err
	}
	of := func(p *Store) *tally { return tallies[0][p.part] }
	some := slices.DeleteFunc(slices.Clone(parts), func(p *Store) bool {
		if req.Isolated {
			return !of(p).suspects
		}
		return !of(p).lanes.Has(req.Lane)
	})
	if req.Isolated {
		slices.SortStableFunc(some, func(a, b *Store) int { return cmp.Compare(of(a).oldest[driver.Lanes], of(b).oldest[driver.Lanes]) })
	}
	return some, nil
}

func (s *Store) settleParts(ctx context.Context, list []driver.Settlement) []error {
	mine := slices.Clone(list)
	errs := s.emitBefore(ctx, mine)
	groups := s.split(len(mine), func(i int) int { return s.whose(&mine[i].Receipt) })
	for p := range groups {
		groups[p] = slices.DeleteFunc(groups[p], func(i int) bool { return errs[i] != nil })
	}
	s.each(groups, func(p *Store, which []int) { spread(errs, p.Settle(ctx, pick(mine, which)), which) })
	if driver.FirstError(errs) == nil {
		return nil
	}
	return errs
}

// emitBefore reserves the ids of what is emitted. Where the partitions are apart, it
// publishes it and takes it out of the settlements.
func (s *Store) emitBefore(ctx context.Context, list []driver.Settlement) []error {
	errs := make([]error, len(list))
	var emits []*redrive.Message
	var of []int
	for i := range list {
		if errs[i] = list[i].Validate(); errs[i] != nil {
			continue
		}
		for k := range list[i].Emit {
			emits, of = append(emits, &list[i].Emit[k]), append(of, i)
		}
	}
	if len(emits) == 0 {
		return errs
	}
	var refused []error
	if s.apart() {
		msgs := make([]redrive.Message, len(emits))
		for n, m := range emits {
			msgs[n] = *m
		}
		refused = s.publishParts(ctx, msgs)
		for n, m := range emits {
			m.ID = msgs[n].ID
		}
		for i := range list {
			list[i].Emit = nil
		}
	} else {
		refused = s.reserve(ctx, emits)
	}
	for n, i := range of {
		if refused != nil && refused[n] != nil && errs[i] == nil && !errors.Is(refused[n], redrive.ErrDuplicate) {
			errs[i] = refused[n]
		}
	}
	return errs
}

func (s *Store) extendParts(ctx context.Context, receipts []redrive.Receipt, lease time.Duration) []error {
	mine := slices.Clone(receipts)
	errs := make([]error, len(mine))
	groups := s.split(len(mine), func(i int) int { return s.whose(&mine[i]) })
	s.each(groups, func(p *Store, which []int) { spread(errs, p.Extend(ctx, pick(mine, which), lease), which) })
	if driver.FirstError(errs) == nil {
		return nil
	}
	return errs
}
