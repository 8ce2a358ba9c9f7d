package kafka

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/onequeue"
)

// Wait implements driver.Source.
func (s *Share) Wait(ctx context.Context, watches []driver.Watch) ([]driver.Event, error) {
	return onequeue.Wait(ctx, s.o.Queue, watches, s.state)
}

func (s *Share) state() onequeue.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := onequeue.State{Closed: s.closed, Version: s.version + 1, Changed: s.changed, NextDueIn: driver.Never}
	if wait, _ := s.reach.wait(); wait < driver.Never { // a claim says so
		now.NextDueIn, now.Lanes = wait, now.Lanes.With(redrive.LaneFresh)
	}
	if len(s.buffer) > 0 || s.fault != nil {
		now.NextDueIn, now.Lanes = 0, now.Lanes.With(redrive.LaneFresh)
	}
	return now
}

// Claim implements driver.Source. It ignores kinds. What was delivered most often comes first.
func (s *Share) Claim(_ context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if refused, err := onequeue.Refuse(s.closed, s.o.Queue, redrive.LaneFresh, &req); refused {
		return nil, err
	}
	if err := s.reach.of(s.fault); err != nil && len(s.buffer) == 0 {
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
			ds = append(ds, s.deliverLocked(it, now))
		}
	}
	if len(s.buffer) == 0 { // there is room
		s.wakeLocked()
	}
	return ds, nil
}

// deliverLocked delivers a record.
func (s *Share) deliverLocked(it *sharedRecord, now time.Time) redrive.Delivery {
	s.token++
	d := redrive.Delivery{Message: message(it.Record, s.o.Queue), Lane: redrive.LaneFresh, Attempt: 1, LeasedAt: now, Lease: driver.Never,
		Suspect: it.deliveries > 1}
	identify(&d, s.cluster, it.Record)
	if s.lastLocked(it) {
		d.Identity = redrive.IdentityNone // a suspect that is not looked up
	}
	it.since = now
	it.receipt = redrive.Receipt{Ref: redrive.Ref{Queue: s.o.Queue, ID: d.ID}, Token: s.token, Position: it.at.String()}
	d.Receipt = it.receipt
	s.inflight[it.at] = it
	return d
}

// Extend implements driver.Source: a record is ours as long as its lock is renewed.
func (s *Share) Extend(_ context.Context, receipts []redrive.Receipt, _ time.Duration) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	return onequeue.Extend(receipts, func(r *redrive.Receipt) error {
		_, err := s.heldLocked(r, now)
		return err
	})
}

// heldLocked returns the record of a receipt that is in flight here.
func (s *Share) heldLocked(r *redrive.Receipt, now time.Time) (*sharedRecord, error) {
	at, ok := s.readAt(r.Position)
	if !ok {
		return nil, errors.Join(redrive.ErrInvalid, redrive.ErrLeaseLost)
	}
	it := s.inflight[at]
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

// shareMargin is how many deliveries before the broker's last one a record goes on in the store.
const shareMargin = 2

// lastLocked reports whether the broker would end a record by itself, in silence, after a few
// deliveries more.
func (s *Share) lastLocked(it *sharedRecord) bool {
	return s.limit > 0 && it.deliveries >= max(s.limit-shareMargin, 2)
}

// shareAhead is how many records beyond one in flight are reported: the broker locks 2000 of a
// partition, and delivers no more of it.
const shareAhead = 1000

// reportSlow reports each record once that is in flight for slowAfter while many newer ones of
// its partition came.
func (s *Share) reportSlow(now time.Time) {
	var slow []slowReport
	s.mu.Lock()
	for _, it := range s.inflight {
		r := slowReport{place: it.at.place, offset: it.at.offset, id: it.receipt.ID, inFlight: now.Sub(it.since), above: s.newest[it.at.place] - it.at.offset}
		if !it.sent && !it.reported && r.above > shareAhead && r.inFlight >= slowAfter {
			it.reported = true
			slow = append(slow, r)
		}
	}
	s.mu.Unlock()
	for _, r := range slow {
		s.o.Log.LogAttrs(s.alive, slog.LevelWarn, "slow record may block delivery of its partition", slog.String("queue", s.o.Queue),
			slog.String("topic", r.topic), slog.Int("partition", int(r.number)), slog.Int64("offset", r.offset), slog.String("id", r.id),
			slog.Duration("in_flight", r.inFlight), slog.Int64("newer_records", r.above))
	}
}
