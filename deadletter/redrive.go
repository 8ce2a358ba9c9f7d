package deadletter

import (
	"context"
	"fmt"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// redriveBatch is how many messages Redrive changes in one step.
const redriveBatch = 200

// Redrive gives dead letters another life: each is due at once in its queue, in the
// next generation and the redrive lane, with fresh attempts. The result has an element
// for each name, in order; its Err is [redrive.ErrNotFound], [redrive.ErrState] for a message that is
// not dead, [redrive.ErrBodyGone] for one without a body, or [redrive.ErrUncertain] for one whose effect is unknown (see
// [plan.Request.ConfirmUncertain] for those). The error is not nil when the store
// failed; the results up to there are returned with it. For many messages, or
// a pace, make a plan; see [plan.Plans].
func Redrive(ctx context.Context, store driver.Store, refs ...redrive.Ref) ([]driver.Updated, error) {
	results := make([]driver.Updated, 0, len(refs))
	for len(refs) > 0 {
		batch := refs[:min(len(refs), redriveBatch)]
		refs = refs[len(batch):]
		done, err := store.Update(ctx, driver.Selection{Refs: batch}, driver.Change{Action: driver.ActRedrive}, len(batch))
		results = append(results, done...)
		if err != nil {
			return results, fmt.Errorf("redrive: %w", err)
		}
	}
	return results, nil
}
