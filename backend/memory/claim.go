package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

const minLease = 10 * time.Millisecond

// Claim implements driver.Source.
func (s *Store) Claim(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	if req.Max < 1 || req.Lease < minLease || int(req.Lane) >= driver.Lanes {
		return nil, &redrive.Error{
			Op: "claim", Queue: req.Queue,
			Err:  fmt.Errorf("%w request: max %d, lease %s, lane %d", redrive.ErrInvalid, req.Max, req.Lease, req.Lane),
			Hint: "ask for at least one message, under a lease of at least 10 ms",
		}
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.step.RUnlock()
	q := s.lookup(req.Queue)
	if q == nil {
		return nil, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := s.now()
	q.refresh(now)
	if req.Expired {
		return q.claimExpired(&req, now), nil
	}
	l := &q.lanes[req.Lane]
	switch {
	case req.Dead:
		l = &q.lanes[laneDead]
	case req.Isolated:
		l = &q.lanes[laneSuspect]
	}
	if l.n == 0 {
		return nil, nil
	}
	deliveries := make([]redrive.Delivery, 0, min(req.Max, l.n))
	f, firstLease := (*filter)(&req), q.leases.first()
	for it := l.head; it != nil && len(deliveries) < req.Max; {
		next := it.next
		if f.matches(it) {
			deliveries = append(deliveries, redrive.Delivery{})
			q.claim(it, &req, now, &deliveries[len(deliveries)-1])
		}
		it = next
	}
	if q.leases.first() < firstLease { // its end is now what a waiter must expect
		q.bump()
	}
	return deliveries, nil
}

// filter is a ClaimRequest that can be asked about an item.
type filter driver.ClaimRequest

func (f *filter) matches(it *item) bool {
	return (len(f.Kinds) == 0 || slices.Contains(f.Kinds, it.msg.Kind)) &&
		(len(f.ExceptKinds) == 0 || !slices.Contains(f.ExceptKinds, it.msg.Kind)) &&
		(len(f.ExceptIDs) == 0 || !slices.Contains(f.ExceptIDs, it.msg.ID))
}

// claim leases one item.
func (q *queue) claim(it *item, req *driver.ClaimRequest, now int64, d *redrive.Delivery) {
	lane := it.lane
	q.lease(it, later(now, req.Lease))
	it.token++
	it.attempts++
	it.instance = req.Instance
	it.isolated, it.held, it.lapsed = req.Isolated, true, false
	d.Message = it.msg
	d.Lane = lane
	d.Attempt, d.Failures, d.Crashes, d.Suspect = it.attempts, it.failures, it.crashes, it.suspect
	d.Dead = it.reason
	if !it.sound() {
		d.Unfit = redrive.ReasonCorrupt
	}
	d.LeasedAt = moment(now)
	d.Lease = req.Lease
	d.Receipt.Ref = redrive.Ref{Queue: q.name, ID: it.msg.ID}
	d.Receipt.Token = it.token
}

// claimExpired delivers what is no longer worth delivering: by its own expiry, then
// by age.
func (q *queue) claimExpired(req *driver.ClaimRequest, now int64) []redrive.Delivery {
	f := (*filter)(req)
	var found, passed []*item
	for len(found) < req.Max && q.expiries.first() <= now {
		it := q.expiries.entries[0].it
		q.expiries.remove(it)
		if f.matches(it) {
			found = append(found, it)
		} else {
			passed = append(passed, it)
		}
	}
	for _, it := range passed {
		q.expiries.push(nanos(it.msg.ExpiresAt), it)
	}
	if cutoff := now - int64(req.MaxAge); req.MaxAge > 0 && q.oldest <= cutoff {
		oldest, all := never, true
		for it := range q.waiting.after(0) {
			if published := nanos(it.msg.PublishedAt); published > cutoff || it.place == leased || !f.matches(it) || slices.Contains(found, it) {
				oldest = min(oldest, published)
				continue
			}
			if len(found) == req.Max {
				all = false
				break
			}
			found = append(found, it)
		}
		if all && len(found) == 0 {
			q.oldest = oldest
		}
	}
	deliveries := make([]redrive.Delivery, len(found))
	for i, it := range found {
		q.claim(it, req, now, &deliveries[i])
	}
	return deliveries
}
