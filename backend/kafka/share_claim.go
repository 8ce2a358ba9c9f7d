package kafka

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/onequeue"
)

// Wait implements redrive.Source.
func (s *Share) Wait(ctx context.Context, watches []redrive.Watch) ([]redrive.Event, error) {
	return onequeue.Wait(ctx, s.o.Queue, watches, s.state)
}

func (s *Share) state() onequeue.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := onequeue.State{Closed: s.closed, Version: s.version + 1, Changed: s.changed, NextDueIn: redrive.Never}
	if len(s.buffer) > 0 || s.fault != nil {
		now.NextDueIn, now.Lanes = 0, now.Lanes.With(redrive.LaneFresh)
	}
	return now
}

// Claim implements redrive.Source. It does not heed kinds. What was delivered most often comes first.
func (s *Share) Claim(_ context.Context, req redrive.ClaimRequest) ([]redrive.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, redrive.ErrClosed
	case req.Queue != s.o.Queue || req.Lane != redrive.LaneFresh || req.Alone || req.Dead || req.Expired:
		return nil, nil
	}
	if err := s.fault; err != nil && len(s.buffer) == 0 {
		if s.alive.Err() == nil {
			s.fault = nil
		}
		return nil, &redrive.Error{Op: "claim", Queue: req.Queue, Err: err}
	}
	now := time.Now()
	slices.SortStableFunc(s.buffer, func(a, b *sharedRecord) int { return cmp.Compare(b.deliveries, a.deliveries) })
	var ds []redrive.Delivery
	for len(s.buffer) > 0 && len(ds) < req.Max {
		it := s.buffer[0]
		s.buffer[0] = nil
		s.buffer = s.buffer[1:]
		if now.Before(it.until) {
			ds = append(ds, s.handLocked(it, now))
		}
	}
	if len(s.buffer) == 0 { // there is room
		s.wakeLocked()
	}
	return ds, nil
}

// handLocked hands a record out.
func (s *Share) handLocked(it *sharedRecord, now time.Time) redrive.Delivery {
	s.token++
	d := redrive.Delivery{Message: message(it.Record, s.o.Queue), Lane: redrive.LaneFresh, Attempt: 1, LeasedAt: now, Lease: redrive.Never,
		Suspect: it.deliveries > 1}
	identify(&d, s.cluster, it.Record)
	it.since = now
	it.receipt = redrive.Receipt{Ref: redrive.Ref{Queue: s.o.Queue, ID: d.ID}, Token: s.token, Position: it.at.String()}
	d.Receipt = it.receipt
	s.hands[it.at] = it
	return d
}

// Extend implements redrive.Source: a record is ours as long as its lock is renewed.
func (s *Share) Extend(_ context.Context, receipts []redrive.Receipt, _ time.Duration) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	return onequeue.Extend(receipts, func(r *redrive.Receipt) error {
		_, err := s.heldLocked(r, now)
		return err
	})
}

// heldLocked returns the record of a receipt that is in our hands.
func (s *Share) heldLocked(r *redrive.Receipt, now time.Time) (*sharedRecord, error) {
	at, ok := s.readAt(r.Position)
	if !ok {
		return nil, errors.Join(redrive.ErrInvalid, redrive.ErrLeaseLost)
	}
	it := s.hands[at]
	if s.closed || it == nil || it.receipt.Token != r.Token || !now.Before(it.until) {
		return nil, redrive.ErrLeaseLost
	}
	return it, nil
}

// String is the position of a receipt: the partition and the offset.
func (at sharedAt) String() string {
	return strconv.Itoa(int(at.number)) + "/" + strconv.FormatInt(at.offset, 10)
}

func (s *Share) readAt(text string) (at sharedAt, ok bool) {
	partition, offset, _ := strings.Cut(text, "/")
	number, err := strconv.ParseInt(partition, 10, 32)
	if err != nil {
		return at, false
	}
	at.offset, err = strconv.ParseInt(offset, 10, 64)
	at.place = place{s.topic, int32(number)}
	return at, err == nil
}

// Records that the store adopts while they are in hand.
const (
	shareMargin = 2    // deliveries before the broker's last one
	shareAhead  = 1000 // records beyond one in hand: the broker locks 2000 of a partition
)

// HoldingBack implements redrive.MarkedSource: the records that the broker would end by
// itself after a few deliveries more, and those in hand for [Options.Hold] that others of their
// partition are far ahead of, so that the broker would soon hand out no more of it.
func (s *Share) HoldingBack() []redrive.Receipt {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var held []redrive.Receipt
	for _, it := range s.hands {
		last := s.limit > 0 && it.deliveries >= max(s.limit-shareMargin, 2)
		far := s.newest[it.at.place]-it.at.offset > shareAhead && now.Sub(it.since) >= s.o.Hold
		if !it.sent && (last || far) {
			held = append(held, it.receipt)
		}
	}
	return held
}
