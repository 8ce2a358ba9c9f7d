package sqlstore

import (
	"context"
	"time"
)

// A message that nobody delayed is due when it is published. If it is due later by the
// store's clock, that clock went back, and the message would wait until it has caught up.
// What folds the differences looks for such messages: at the first of each class that lie
// ahead of the clock, since behind them may be any number that was delayed.
const (
	AheadMargin = time.Second // how far ahead is far
	AheadLooked = 1000        // messages of a class that are looked at
	aheadMost   = 500         // messages that a statement makes due
	aheadShare  = 100         // looks take at most a hundredth of the time
)

// pullAhead makes due what nobody delayed.
func (b *Base) pullAhead(ctx context.Context) error {
	began := time.Now()
	if began.Before(b.nextAhead) {
		return nil
	}
	parts, err := b.own.Ahead(ctx)
	b.nextAhead = time.Now().Add(aheadShare * time.Since(began))
	for _, p := range parts {
		for n := int64(aheadMost); err == nil && n == aheadMost; {
			n, err = b.own.Pull(ctx, p, aheadMost)
		}
		b.Changed(p.Queue)
	}
	return err
}
