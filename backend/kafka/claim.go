package kafka

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/native"
	"github.com/redrive/redrive/internal/onequeue"
	"github.com/redrive/redrive/internal/text"
)

// Wait implements driver.Source.
func (s *Source) Wait(ctx context.Context, watches []driver.Watch) ([]driver.Event, error) {
	return onequeue.Wait(ctx, s.o.Queue, watches, s.state)
}

func (s *Source) state() onequeue.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Now()
	now := onequeue.State{Closed: s.closed, Version: s.version + 1, Changed: s.changed, NextDueIn: driver.Never}
	if wait, _ := s.reach.wait(); wait < driver.Never { // a claim says so
		now.NextDueIn, now.Lanes = wait, now.Lanes.With(redrive.LaneFresh)
	}
	for _, p := range s.epochs {
		wait := p.waitLocked(at)
		now.NextDueIn = min(now.NextDueIn, wait)
		if wait == 0 {
			now.Lanes = now.Lanes.With(p.m.lane())
		}
	}
	return now
}

// lane is that of a member's records.
func (m *member) lane() redrive.Lane {
	if m.retries {
		return redrive.LaneRetry
	}
	return redrive.LaneFresh
}

// Claim implements driver.Source. It ignores kinds: what stands first comes
// first.
func (s *Source) Claim(_ context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	m := s.main
	if req.Lane == redrive.LaneRetry {
		m = s.retry
	}
	s.mu.Lock()
	if refused, err := onequeue.Refuse(s.closed, s.o.Queue, redrive.LaneRetry, &req); refused || m == nil {
		s.mu.Unlock()
		return nil, err
	}
	if err := s.reach.of(s.fault); err != nil && m.records == 0 {
		s.fault = nil
		s.mu.Unlock()
		return nil, &redrive.Error{Op: "claim", Queue: req.Queue, Err: err}
	}
	ds := m.claimLocked(req.Max, time.Now())
	brake := len(ds) > 0 && m.brakedLocked()
	s.mu.Unlock()
	if brake {
		m.brake()
	}
	return ds, nil
}

func (m *member) claimLocked(most int, now time.Time) (ds []redrive.Delivery) {
	all := m.orderedLocked()
	for i := 0; i < len(all) && len(ds) < most; i++ {
		p := all[(m.turn+i)%len(all)]
		for len(ds) < most && p.openLocked(now) {
			ds = append(ds, m.s.deliverLocked(p, now))
		}
	}
	m.turn++
	if len(ds) > 0 {
		m.s.wakePollLocked()
	}
	return ds
}

// orderedLocked returns the partitions in a fixed order.
func (m *member) orderedLocked() []*partition {
	if m.ordered == nil {
		m.ordered = slices.SortedFunc(maps.Values(m.partitions), func(a, b *partition) int {
			return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.number, b.number))
		})
	}
	return m.ordered
}

// wakePollLocked lets the poll loop see that there is room. It is no change for those
// who wait for records.
func (s *Source) wakePollLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// deliverLocked delivers the first record of a partition.
func (s *Source) deliverLocked(p *partition, now time.Time) redrive.Delivery {
	r := p.takeLocked()
	s.token++
	d := redrive.Delivery{Lane: p.m.lane(), Attempt: 1, LeasedAt: now, Lease: driver.Never,
		Suspect: r.Offset < p.old}
	d.Message = message(r, s.o.Queue)
	if p.m.retries {
		history := takeHistory(&d.Message)
		d.Attempt, d.Failures, d.Crashes, d.History = history.Attempts+1, history.History.Count, history.Crashes, &history.History
	}
	identify(&d, s.cluster, r)
	h := flight{token: s.token, record: r, id: d.ID, since: now}
	p.inflight[r.Offset] = h
	p.holdLocked(r)
	d.Receipt = s.receipt(r.Offset, p, &h)
	return d
}

// identify says what names a message: its publisher's id, or else the record's position.
func identify(d *redrive.Delivery, cluster string, r *kgo.Record) {
	d.Identity = redrive.IdentityMessage
	if d.ID == "" {
		d.ID, d.Identity = deriveID(cluster, r.Topic, r.Partition, r.Offset), redrive.IdentityPosition
	}
}

// message is a record as a message. One without an id of ours has none.
func message(r *kgo.Record, queue string) redrive.Message {
	m := redrive.Message{Queue: queue, Body: r.Value}
	if text.Dated(r.Timestamp) {
		m.PublishedAt = r.Timestamp
	}
	for i := range r.Headers {
		native.Read(&m, r.Headers[i].Key, r.Headers[i].Value)
	}
	native.ReadKey(&m, r.Key)
	if m.Origin == "" {
		m.Origin = origin(r.Topic, r.Partition, r.Offset)
	}
	return m
}

// Extend implements driver.Source: a record is ours as long as its partition is.
func (s *Source) Extend(_ context.Context, receipts []redrive.Receipt, _ time.Duration) []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return onequeue.Extend(receipts, func(r *redrive.Receipt) error {
		_, err := s.heldLocked(r)
		return err
	})
}

// heldLocked returns the partition of a receipt whose record is in flight here.
func (s *Source) heldLocked(r *redrive.Receipt) (*partition, error) {
	at, ok := readPosition(r.Position)
	if !ok {
		return nil, errors.Join(redrive.ErrInvalid, redrive.ErrLeaseLost)
	}
	p := s.epochs[at.epoch]
	if p == nil || p.inflight[at.offset].token != r.Token || r.Token == 0 {
		return nil, redrive.ErrLeaseLost
	}
	return p, nil
}

// receipt is that of a record in flight.
func (s *Source) receipt(offset int64, p *partition, h *flight) redrive.Receipt {
	return redrive.Receipt{Ref: redrive.Ref{Queue: s.o.Queue, ID: h.id}, Token: h.token, Position: position{p.epoch, offset}.String()}
}
