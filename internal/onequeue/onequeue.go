// Package onequeue is what sources of a single queue have in common: one topic,
// queue or stream of a broker is one queue here.
package onequeue

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// State is what a source knows of its queue at one moment.
type State struct {
	Closed  bool
	Version uint64          // rises with every change; at least 1
	Changed <-chan struct{} // closed at the next change
	// NextDueIn is the time until something may be claimed: 0 now, [driver.Never] if
	// nothing waits.
	NextDueIn time.Duration
	Lanes     driver.LaneSet // that have something due now
	Suspects  bool
}

// Refuse reports that a claim finds nothing whatever the queue holds, or why it fails: the
// source is closed; the claim is of another queue, or of a lane after the last of the source; or
// it asks for what no broker tells apart, messages to be isolated, dead or expired.
func Refuse(closed bool, queue string, last redrive.Lane, req *driver.ClaimRequest) (refused bool, err error) {
	if closed {
		return true, redrive.ErrClosed
	}
	return req.Queue != queue || req.Lane > last || req.Isolated || req.Dead || req.Expired, nil
}

// Wait carries out [driver.Source.Wait] for a source of the queue, whose state look
// returns. Other queues have nothing, ever.
func Wait(ctx context.Context, queue string, watches []driver.Watch, look func() State) ([]driver.Event, error) {
	for {
		now := look()
		if now.Closed {
			return nil, redrive.ErrClosed
		}
		var events []driver.Event
		for _, w := range watches {
			switch {
			case w.Queue != queue && w.Since == 0:
				events = append(events, driver.Event{Queue: w.Queue, Version: 1, NextDueIn: driver.Never})
			case w.Queue == queue && w.Since < now.Version:
				events = append(events, driver.Event{Queue: queue, Version: now.Version, NextDueIn: now.NextDueIn, Lanes: now.Lanes, Suspects: now.Suspects})
			}
		}
		if len(events) > 0 {
			return events, nil
		}
		select {
		case <-now.Changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Extend carries out [driver.Source.Extend] where a lease is the connection's: held
// tells why a receipt is not ours any more.
func Extend(receipts []redrive.Receipt, held func(*redrive.Receipt) error) []error {
	var errs []error
	for i := range receipts {
		if err := held(&receipts[i]); err != nil {
			if errs == nil {
				errs = make([]error, len(receipts))
			}
			errs[i] = err
		}
	}
	return errs
}
