package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/onequeue"
)

// minLease is the shortest lease that may be asked for.
const minLease = 10 * time.Millisecond

// Wait implements driver.Source.
func (s *Source) Wait(ctx context.Context, watches []driver.Watch) ([]driver.Event, error) {
	return onequeue.Wait(ctx, s.o.Queue, watches, s.state)
}

func (s *Source) state() onequeue.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	now := onequeue.State{Closed: s.closed, Version: s.version + 1, Changed: s.changed, NextDueIn: driver.Never}
	if len(s.buffer) > 0 || s.resting || s.fault != nil {
		now.NextDueIn, now.Lanes = 0, now.Lanes.With(redrive.LaneFresh)
	}
	return now
}

// Claim implements driver.Source. It ignores kinds: what stands first comes
// first.
func (s *Source) Claim(_ context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if refused, err := onequeue.Refuse(s.closed, s.o.Queue, redrive.LaneFresh, &req); refused {
		return nil, err
	}
	now := time.Now()
	s.claimed, s.resting = now, false
	if s.fault != nil && len(s.buffer) == 0 {
		err := s.fault
		if !s.nc.IsConnected() {
			err = fmt.Errorf("%w: %w", redrive.ErrUnavailable, err)
		}
		return nil, &redrive.Error{Op: "claim", Queue: req.Queue, Err: err}
	}
	if req.Max >= len(s.buffer) { // it could have been more
		s.target = min(2*max(s.target, len(s.buffer)), bufferMost)
	}
	n := min(req.Max, len(s.buffer))
	ds := make([]redrive.Delivery, 0, n)
	wait := s.consumer.ackWait
	for len(s.buffer) > 0 && len(ds) < n {
		it := s.buffer[0]
		s.buffer[0] = nil
		s.buffer = s.buffer[1:]
		s.bytes -= len(it.msg.Data)
		if now.Sub(it.known) >= wait { // the server has given it to somebody else
			delete(s.items, it.meta.Sequence.Stream)
			continue
		}
		ds = append(ds, s.deliverLocked(it, max(req.Lease, minLease), now))
	}
	s.pullLocked()
	return ds, nil
}

// deliverLocked delivers an item.
func (s *Source) deliverLocked(it *item, lease time.Duration, now time.Time) redrive.Delivery {
	s.token++
	s.inFlight++
	it.inFlight, it.until = true, now.Add(lease)
	d := redrive.Delivery{Message: s.message(it.msg, it.meta), Lane: redrive.LaneFresh, Attempt: 1, LeasedAt: now,
		Suspect: it.again, Identity: redrive.IdentityMessage}
	if d.ID == "" {
		d.ID, d.Identity = s.positionID(it), redrive.IdentityPosition
	}
	it.receipt = redrive.Receipt{Ref: d.Ref(), Token: s.token, Position: position(it.meta)}
	d.Receipt = it.receipt
	return d
}

// positionID names a message by its place, also across streams of the same name.
func (s *Source) positionID(it *item) string {
	return driver.DeriveID("jetstream", s.at.domain, it.meta.Stream, strconv.FormatInt(s.consumer.created.UnixNano(), 36), strconv.FormatUint(it.meta.Sequence.Stream, 10))
}

// Extend implements driver.Source. The server is informed at once.
func (s *Source) Extend(ctx context.Context, receipts []redrive.Receipt, lease time.Duration) []error {
	errs := make([]error, len(receipts))
	now := time.Now()
	var words []ack
	var kept []*item
	var of []int
	s.mu.Lock()
	for i := range receipts {
		it, err := s.heldLocked(&receipts[i], now)
		switch {
		case err != nil:
			errs[i] = err
		case !now.Before(it.until):
			errs[i] = redrive.ErrLeaseLost
		default:
			words, kept, of = append(words, ack{it.reply, working}), append(kept, it), append(of, i)
		}
	}
	s.mu.Unlock()
	answers := s.acks.send(ctx, words)
	s.knows(kept, answers, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	for j, i := range of {
		if answers != nil && answers[j] != nil {
			errs[i] = answers[j]
			continue
		}
		kept[j].until = now.Add(lease)
	}
	return errs
}

// heldLocked returns the item of a receipt that is in flight here, as far as we know.
func (s *Source) heldLocked(r *redrive.Receipt, now time.Time) (*item, error) {
	sequence, ok := readPosition(r.Position)
	if !ok {
		return nil, errors.Join(redrive.ErrInvalid, redrive.ErrLeaseLost)
	}
	it := s.items[sequence]
	if s.closed || it == nil || !it.inFlight || it.receipt != *r || now.Sub(it.known) >= s.consumer.ackWait {
		return nil, redrive.ErrLeaseLost
	}
	return it, nil
}
