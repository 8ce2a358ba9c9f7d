package redrive

import (
	"context"
	"fmt"
)

// redriveBatch is how many messages Redrive changes in one step.
const redriveBatch = 200

// Redrive gives dead letters another life: each is due at once in its queue, in the
// next generation and the redrive lane, with fresh attempts. The result has an element
// for each name, in order; its Err is [ErrNotFound], [ErrState] for a message that is
// not dead, [ErrBodyGone] for one without a body, or [ErrUncertain] for one whose effect is unknown (see
// [PlanRequest.ConfirmUncertain] for those). The error is not nil when the store
// failed; the results up to there are returned with it. For many messages, or
// a pace, make a plan; see [Plans].
func Redrive(ctx context.Context, store Store, refs ...Ref) ([]Updated, error) {
	results := make([]Updated, 0, len(refs))
	for len(refs) > 0 {
		batch := refs[:min(len(refs), redriveBatch)]
		refs = refs[len(batch):]
		done, err := store.Update(ctx, Selection{Refs: batch}, Change{Action: ActRedrive}, len(batch))
		results = append(results, done...)
		if err != nil {
			return results, fmt.Errorf("redrive: %w", err)
		}
	}
	return results, nil
}
