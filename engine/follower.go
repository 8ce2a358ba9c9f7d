package engine

import (
	"context"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// followerRounds is how often a claim is repeated of which all was parked.
const followerRounds = 64

// parkFollowers keeps the order of keys across retries, for a source that keeps it among
// what it delivers: a message goes behind what of its key is in the store, as its
// predecessor was parked there before it was settled at the source. The rest is delivered.
func (p *parking) parkFollowers(ctx context.Context, queue string, ds []redrive.Delivery) (rest []redrive.Delivery, err error) {
	if !p.caps.Ordered || len(ds) == 0 {
		return ds, nil
	}
	counts, err := p.store.Counts(ctx, queue)
	if err != nil || len(counts) == 0 || counts[0].AllWaiting()+counts[0].AllDead() == 0 {
		return ds, err
	}
	var puts items
	var done []driver.Settlement
	for i := range ds {
		d := &ds[i]
		stored := false
		if d.Key != "" {
			if stored, err = p.holdsKey(ctx, queue, d.Key); err != nil {
				return ds, err
			}
		}
		if !stored {
			rest = append(rest, *d)
			continue
		}
		puts.put(len(done), parkedEntry(p.caps, d, &driver.Settlement{Outcome: redrive.OutcomeRelease}))
		done = append(done, driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeDone})
	}
	if len(done) == 0 {
		return ds, nil
	}
	errs := make([]error, len(done))
	p.park(ctx, &puts, errs)
	if err := driver.FirstError(errs); err != nil {
		return ds, err
	}
	p.Source.Settle(ctx, done) // if that fails, it comes again and is recognised
	return rest, nil
}

// holdsKey reports whether the store has something of a key, waiting or dead.
func (p *parking) holdsKey(ctx context.Context, queue, key string) (bool, error) {
	q := redrive.Query{Queue: queue, Key: key, Limit: 1}
	for {
		page, err := p.store.Find(ctx, q)
		if err != nil || len(page.Entries) > 0 {
			return err == nil, err
		}
		if q.After = page.Next; q.After == "" {
			return false, nil
		}
	}
}
