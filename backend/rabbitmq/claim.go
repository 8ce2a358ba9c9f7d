package rabbitmq

import (
	"context"
	"errors"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/onequeue"
)

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
	for lane := range s.buffer {
		if len(s.buffer[lane]) > 0 {
			now.NextDueIn, now.Lanes = 0, now.Lanes.With(redrive.Lane(lane))
		}
	}
	if s.fault != nil && s.session == nil { // so that somebody asks, and hears of it
		now.NextDueIn, now.Lanes = 0, driver.AllLanes
	}
	return now
}

// Claim implements driver.Source. It ignores kinds: what stands first comes
// first.
func (s *Source) Claim(_ context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if refused, err := onequeue.Refuse(s.closed, s.o.Queue, redrive.LaneRedrive, &req); refused {
		return nil, err
	}
	if err := s.fault; err != nil && s.session == nil {
		s.fault = nil // it is reported once; the next try to connect reports it again
		return nil, &redrive.Error{Op: "claim", Queue: req.Queue, Err: err}
	}
	if s.session == nil {
		return nil, nil
	}
	n := min(max(req.Max, 0), len(s.buffer[req.Lane]))
	ds := make([]redrive.Delivery, 0, n)
	now := time.Now()
	for _, it := range s.buffer[req.Lane][:n] {
		ds = append(ds, s.deliverLocked(it, req.Lane, now))
	}
	clear(s.buffer[req.Lane][:n])
	s.buffer[req.Lane] = s.buffer[req.Lane][n:]
	return ds, nil
}

// deliverLocked delivers a message.
func (s *Source) deliverLocked(it *item, lane redrive.Lane, now time.Time) redrive.Delivery {
	s.token++
	it.token = s.token
	s.inflight[it.d.DeliveryTag] = it
	d := redrive.Delivery{Lane: lane, LeasedAt: now, Lease: driver.Never, Suspect: it.d.Redelivered}
	s.read(it, &d)
	it.ref = d.Ref()
	d.Receipt = redrive.Receipt{Ref: it.ref, Token: s.token, Position: position{s.session.epoch, it.d.DeliveryTag}.String()}
	return d
}

// Extend implements driver.Source: a message is ours as long as the channel is.
func (s *Source) Extend(_ context.Context, receipts []redrive.Receipt, _ time.Duration) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return onequeue.Extend(receipts, func(r *redrive.Receipt) error {
		_, err := s.heldLocked(r)
		return err
	})
}

// heldLocked returns the message of a receipt, if it is in flight here.
func (s *Source) heldLocked(r *redrive.Receipt) (*item, error) {
	at, ok := readPosition(r.Position)
	if !ok {
		return nil, errors.Join(redrive.ErrInvalid, redrive.ErrLeaseLost)
	}
	it := s.inflight[at.tag]
	if s.session == nil || s.session.epoch != at.epoch || it == nil || it.token != r.Token {
		return nil, redrive.ErrLeaseLost
	}
	if r.Ref != it.ref {
		return nil, redrive.ErrNotFound
	}
	return it, nil
}
