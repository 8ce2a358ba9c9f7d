package deadletter

import (
	"context"
	"fmt"
	"slices"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// redriveBatch is how many messages Redrive changes in one step.
const redriveBatch = 200

// Redrive gives dead letters another life: each is due at once in its queue, in the
// next generation and the redrive lane, with fresh attempts. The error names the
// messages that were refused, the others are redriven: it wraps [redrive.ErrNotFound],
// [redrive.ErrState] for a message that is not dead, [redrive.ErrBodyGone] for one
// without a body, [redrive.ErrBodyCorrupt] for one whose bytes do not match their
// checksum, [redrive.ErrLoop] for one that was redriven too often, or
// [redrive.ErrUncertain] for one whose effect is unknown (see
// [plan.Request.ConfirmUncertain] and ConfirmCorrupt for those). When the store fails, the rest is not
// redriven, and the error wraps its fault, too. For many messages, or a pace, make a
// plan; see [plan.Plans].
func Redrive(ctx context.Context, store driver.Store, refs ...redrive.Ref) error {
	var done []driver.Updated
	var fault error
	for batch := range slices.Chunk(refs, redriveBatch) {
		results, err := store.Update(ctx, driver.Selection{Refs: batch}, driver.Change{Action: driver.ActRedrive}, len(batch))
		done = append(done, results...)
		if err != nil {
			fault = fmt.Errorf("redrive: %w", err)
			break
		}
	}
	refused := driver.Refused("redrive", len(done), func(i int) (redrive.Ref, error) { return done[i].Ref, done[i].Err })
	switch {
	case fault == nil:
		return refused
	case refused == nil:
		return fault
	}
	return fmt.Errorf("%w; %w", fault, refused)
}
