package daemon

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backlog"
	"github.com/redrive/redrive/internal/daemon/gateway"
	"github.com/redrive/redrive/internal/daemon/series"
)

// meteredSink counts published messages against the caller's limits.
type meteredSink struct {
	*backlog.Limiter
	traces *traces // nil: none
	series *series.Series
}

type meterKey struct{}

// metering is how a request's messages are counted.
type metering struct {
	*meter
	patient bool // a stream is slowed down to the rate instead of being refused
}

// patience is the longest pause of a stream for its rate; beyond it lines are refused.
const patience = 10 * time.Second

// Publish implements redrive.Sink.
func (s *meteredSink) Publish(ctx context.Context, msgs []redrive.Message) []error {
	var end func([]error)
	if s.traces != nil {
		end = s.traces.Send(ctx, msgs)
	}
	errs := s.publish(ctx, msgs)
	if end != nil {
		end(errs)
	}
	for i, accepted := 0, 0; i < len(msgs); i++ {
		if errs == nil || errs[i] == nil {
			accepted++
		}
		if i+1 == len(msgs) || msgs[i+1].Queue != msgs[i].Queue {
			s.series.Published(msgs[i].Queue, accepted)
			accepted = 0
		}
	}
	return errs
}

func (s *meteredSink) publish(ctx context.Context, msgs []redrive.Message) []error {
	m, ok := ctx.Value(meterKey{}).(metering)
	if !ok {
		return s.Limiter.Publish(ctx, msgs)
	}
	waiting := gateway.Waiting(ctx)
	errs := make([]error, len(msgs))
	for at := 0; at < len(msgs); {
		got, why, err := m.take(ctx, len(msgs)-at)
		if got > 0 {
			results := s.Limiter.Publish(ctx, msgs[at:at+got])
			copy(errs[at:], results)
			m.giveBack(refused(results))
			at += got
			continue
		}
		if err == nil && m.patient && slices.Contains(why.ViolatedPolicies, policyRate) && m.pause(waiting) {
			continue
		}
		if err == nil {
			err = why
		}
		if p := gateway.Ended(waiting); p != nil {
			err = p
		}
		for ; at < len(msgs); at++ {
			errs[at] = err
		}
	}
	return errs
}

// refused counts what was not stored.
func refused(results []error) (n int) {
	for _, err := range results {
		if err != nil && !errors.Is(err, redrive.ErrDuplicate) && !errors.Is(err, redrive.ErrUnknown) {
			n++
		}
	}
	return n
}

// pause waits until the rate lets one more through; false if that is too long.
func (m metering) pause(ctx context.Context) bool {
	m.mu.Lock()
	d := m.wait(1)
	m.mu.Unlock()
	if d > patience {
		return false
	}
	t := time.NewTimer(max(d, time.Millisecond))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
