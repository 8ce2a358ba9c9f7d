package kafka

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/native"
	"github.com/redrive/redrive/internal/onequeue"
)

// Wait implements redrive.Source.
func (s *Source) Wait(ctx context.Context, watches []redrive.Watch) ([]redrive.Event, error) {
	return onequeue.Wait(ctx, s.o.Queue, watches, s.state)
}

func (s *Source) state() onequeue.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := onequeue.State{Closed: s.closed, Version: s.version + 1, Changed: s.changed, NextDueIn: redrive.Never}
	for _, p := range s.partitions {
		if p.openLocked() {
			now.NextDueIn, now.Lanes = 0, now.Lanes.With(redrive.LaneFresh)
			break
		}
	}
	return now
}

// Claim implements redrive.Source. It does not heed kinds: what stands first comes
// first.
func (s *Source) Claim(_ context.Context, req redrive.ClaimRequest) ([]redrive.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, redrive.ErrClosed
	case req.Queue != s.o.Queue || req.Lane != redrive.LaneFresh || req.Alone || req.Dead || req.Expired:
		return nil, nil
	}
	if err := s.fault; err != nil && s.records == 0 {
		s.fault = nil
		return nil, &redrive.Error{Op: "claim", Queue: req.Queue, Err: err}
	}
	var ds []redrive.Delivery
	all := slices.Sorted(maps.Keys(s.partitions))
	now := time.Now()
	for i := 0; i < len(all) && len(ds) < req.Max; i++ {
		p := s.partitions[all[(s.turn+i)%len(all)]]
		for len(ds) < req.Max && p.openLocked() {
			ds = append(ds, s.handLocked(p, now))
		}
	}
	s.turn++
	if len(ds) > 0 {
		s.wakePollLocked()
	}
	return ds, nil
}

// wakePollLocked lets the poll loop see that there is room. It is no change for those
// who wait for records.
func (s *Source) wakePollLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// handLocked hands the first record of a partition out.
func (s *Source) handLocked(p *partition, now time.Time) redrive.Delivery {
	r := p.buffer[0]
	p.buffer = p.buffer[1:]
	s.records--
	s.bytes -= size(r)
	s.token++
	p.hands[r.Offset] = hand{token: s.token, record: r}
	d := redrive.Delivery{Message: s.message(r), Lane: redrive.LaneFresh, Attempt: 1, LeasedAt: now, Lease: redrive.Never,
		Suspect: r.Offset < p.old, Identity: redrive.IdentityMessage}
	if d.ID == "" {
		d.ID, d.Identity = deriveID(s.cluster, r.Topic, r.Partition, r.Offset), redrive.IdentityPosition
	}
	d.Receipt = redrive.Receipt{Ref: d.Ref(), Token: s.token, Position: position{p.epoch, p.number, r.Offset}.String()}
	return d
}

// message is a record as a message.
func (s *Source) message(r *kgo.Record) redrive.Message {
	m := redrive.Message{Queue: s.o.Queue, Body: r.Value, PublishedAt: r.Timestamp}
	for i := range r.Headers {
		native.Read(&m, r.Headers[i].Key, r.Headers[i].Value)
	}
	native.ReadKey(&m, r.Key)
	if m.Origin == "" {
		m.Origin = place(r.Topic, r.Partition, r.Offset)
	}
	return m
}

// Extend implements redrive.Source: a record is ours as long as its partition is.
func (s *Source) Extend(_ context.Context, receipts []redrive.Receipt, _ time.Duration) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return onequeue.Extend(receipts, func(r *redrive.Receipt) error {
		_, err := s.heldLocked(r)
		return err
	})
}

// heldLocked returns the partition of a receipt whose record is in our hands.
func (s *Source) heldLocked(r *redrive.Receipt) (*partition, error) {
	at, ok := readPosition(r.Position)
	if !ok {
		return nil, errors.Join(redrive.ErrInvalid, redrive.ErrLeaseLost)
	}
	p := s.partitions[at.partition]
	if p == nil || p.epoch != at.epoch || p.hands[at.offset].token != r.Token || r.Token == 0 {
		return nil, redrive.ErrLeaseLost
	}
	return p, nil
}
