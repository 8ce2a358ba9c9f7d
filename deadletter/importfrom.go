package deadletter

import (
	"context"
	"errors"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
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
// many were new. It stops at the first fault; repeating it goes on.
func ImportFrom(ctx context.Context, src driver.Source, store driver.Store, queue string, o ImportOptions) (imported int, err error) {
	var copied []driver.Settlement
	defer func() {
		if len(copied) > 0 {
			err = errors.Join(err, driver.FirstError(src.Settle(context.WithoutCancel(ctx), copied)))
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
		settle := importSettlements(batch, o.Copy)
		if o.Copy {
			copied = append(copied, settle...)
		}
		added, err := importPut(ctx, store, batch, &o)
		imported += added
		if err == nil && !o.Copy {
			err = driver.FirstError(src.Settle(ctx, settle))
		}
		if err != nil {
			return imported, &redrive.Error{Op: "import", Queue: queue, Err: err}
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

func importSettlements(batch []redrive.Delivery, keep bool) []driver.Settlement {
	settle := make([]driver.Settlement, len(batch))
	for i := range batch {
		settle[i] = driver.Settlement{Receipt: batch[i].Receipt, Outcome: redrive.OutcomeDone}
		if keep {
			settle[i].Outcome = redrive.OutcomeRelease
		}
	}
	return settle
}

func importPut(ctx context.Context, store driver.Store, batch []redrive.Delivery, o *ImportOptions) (added int, err error) {
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
	errs, err := store.Apply(ctx, driver.Batch{Put: put, Entered: driver.EnteredImported})
	if err != nil {
		return 0, err
	}
	added = len(put)
	for i := range errs {
		switch {
		case errors.Is(errs[i], redrive.ErrDuplicate):
			added--
		case errs[i] != nil:
			return added, errs[i]
		}
	}
	return added, nil
}
