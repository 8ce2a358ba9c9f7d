package deadletter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/text"
)

// ImportOptions configures [ImportFrom]. Every field but Reason has a default.
type ImportOptions struct {
	// To is the queue in the store. Defaults to the source's queue.
	To string
	// Reason makes the messages dead letters with this reason. Zero: they wait.
	Reason redrive.Reason
	// Entry makes the entry of a message, for those that carry the history of their
	// failures in a dialect of their own. Defaults to the message as it is.
	Entry func(d *redrive.Delivery) redrive.Entry
	// Copy leaves the messages where they were, by releasing them at the end.
	Copy bool
	// Limit is how many messages are imported at most; 0: all that can be claimed.
	Limit int
}

// Bounds of an import.
const (
	importBatch = 100
	importLease = time.Minute
)

// ImportFrom takes the messages of a source's queue into a store: a broker's dead-letter
// queue, for instance, so that they can be looked into and redriven. It is idempotent
// by the identity of the source: what was imported before is recognised, and a message
// is acknowledged at its source only after it is durable in the store. It returns how
// many were new. It stops at the first fault; repeating it goes on. What the store refuses
// stays at its source, by itself: the others are imported, and the error, which wraps
// [redrive.ErrInvalid] or [redrive.ErrConflict], says how many were refused and why the first was.
func ImportFrom(ctx context.Context, src driver.Source, store driver.Store, queue string, o ImportOptions) (imported int, err error) {
	var stay []driver.Settlement // released at the end: before it they would come again
	var refused refusals
	defer func() {
		if len(stay) > 0 {
			err = errors.Join(err, driver.FirstError(src.Settle(context.WithoutCancel(ctx), stay)))
		}
		if err == nil && refused.count > 0 {
			err = &redrive.Error{Op: "import", Queue: queue, Err: fmt.Errorf("%s refused, the first: %w", text.Plural(refused.count, "message"), refused.first),
				Hint: "they are still at their source"}
		}
	}()
	instance := redrive.NewID()
	seen := make(map[redrive.Ref]struct{})
	for n := 0; o.Limit == 0 || n < o.Limit; {
		size := importBatch
		if o.Limit > 0 {
			size = min(size, o.Limit-n)
		}
		batch, again, err := importClaim(ctx, src, driver.ClaimRequest{Queue: queue, Max: src.Caps().Most(size), Lease: importLease, Instance: instance}, seen)
		if err != nil {
			return imported, &redrive.Error{Op: "import", Queue: queue, Err: err}
		}
		if len(batch) == 0 {
			return imported, nil
		}
		n += len(batch)
		each, err := importPut(ctx, store, batch, &o)
		added, settle, leave, fault := importSettlements(batch, each, err, &o, &refused)
		imported += added
		stay = append(stay, leave...)
		if len(settle) > 0 {
			fault = errors.Join(fault, driver.FirstError(src.Settle(ctx, settle)))
		}
		if fault != nil {
			return imported, &redrive.Error{Op: "import", Queue: queue, Err: fault}
		}
		if again {
			return imported, nil
		}
	}
	return imported, nil
}

// importClaim claims from the first lane that has something. It reports whether a
// message came a second time, which ends a copy.
func importClaim(ctx context.Context, src driver.Source, req driver.ClaimRequest, seen map[redrive.Ref]struct{}) (batch []redrive.Delivery, again bool, err error) {
	for lane := range redrive.LaneFresh + redrive.Lane(driver.Lanes) {
		req.Lane = lane
		batch, err = src.Claim(ctx, req)
		if err != nil || len(batch) > 0 {
			break
		}
	}
	for i := range batch {
		ref := batch[i].Ref()
		_, ok := seen[ref]
		again = again || ok
		seen[ref] = struct{}{}
	}
	return batch, again, err
}

// refusals are what a store would not take.
type refusals struct {
	count int
	first error
}

// importSettlements returns how many of a batch are new in the store, what is settled at the source and
// what stays there, and what ends the import.
func importSettlements(batch []redrive.Delivery, each []error, err error, o *ImportOptions, refused *refusals) (added int, done, stay []driver.Settlement, fault error) {
	fault = err
	for i := range batch {
		result := err
		if err == nil && each != nil {
			result = each[i]
		}
		switch {
		case result == nil:
			added++
		case errors.Is(result, redrive.ErrDuplicate):
			result = nil
		case errors.Is(result, redrive.ErrInvalid), errors.Is(result, redrive.ErrConflict):
			refused.count++
			refused.first = cmp.Or(refused.first, result)
		default:
			fault = cmp.Or(fault, result)
		}
		if result != nil || o.Copy {
			stay = append(stay, driver.Settlement{Receipt: batch[i].Receipt, Outcome: redrive.OutcomeRelease})
			continue
		}
		done = append(done, driver.Settlement{Receipt: batch[i].Receipt, Outcome: redrive.OutcomeDone})
	}
	return added, done, stay, fault
}

func importPut(ctx context.Context, store driver.Store, batch []redrive.Delivery, o *ImportOptions) ([]error, error) {
	put := make([]redrive.Entry, len(batch))
	for i := range batch {
		d := &batch[i]
		put[i] = redrive.Entry{Message: d.Message, State: redrive.StateWaiting, Attempts: d.Attempt - 1}
		if o.Entry != nil {
			put[i] = o.Entry(d)
		}
		if o.Reason != 0 {
			put[i].State, put[i].Reason = redrive.StateDead, o.Reason
		}
		if d.Unfit != 0 { // here nothing would tell any more that it cannot be delivered
			put[i].State, put[i].Reason = redrive.StateDead, d.Unfit
		}
		if put[i].Origin == "" {
			put[i].Origin = d.Ref().String()
		}
		if o.To != "" {
			put[i].Queue = o.To
		}
	}
	return store.Apply(ctx, driver.Batch{Put: put, Entered: driver.EnteredImported})
}
