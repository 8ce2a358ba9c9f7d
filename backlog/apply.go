package backlog

import (
	"context"
	"errors"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Apply is [driver.Store.Apply] for a batch whose Publish must fit below the watermarks as a
// whole: where one message does not, nothing is done and the error is [redrive.ErrBacklogged]. It
// never blocks.
func (w *Limiter) Apply(ctx context.Context, b driver.Batch) ([]error, error) {
	if len(b.Publish) == 0 {
		return w.store.Apply(ctx, b)
	}
	all := make([]int, len(b.Publish))
	for i := range all {
		all[i] = i
	}
	for rereads := 0; ; rereads++ {
		w.fresh(ctx, b.Publish, all)
		admitted, refused, sure := w.admit(b.Publish, all)
		if len(refused) == 0 {
			break
		}
		w.landed(b.Publish, admitted, func(int) bool { return false })
		if sure || rereads == maxRereads || ctx.Err() != nil {
			count(w.o.Refused, b.Publish, all, nil)
			at := &b.Publish[refused[0]]
			return nil, &redrive.Error{Op: "publish", Queue: at.Queue, ID: at.ID, Err: redrive.ErrBacklogged}
		}
	}
	items, err := w.store.Apply(ctx, b)
	w.landed(b.Publish, all, func(i int) bool {
		if err != nil {
			return errors.Is(err, redrive.ErrUnknown)
		}
		return items == nil || items[i] == nil || errors.Is(items[i], redrive.ErrUnknown)
	})
	if err == nil {
		count(w.o.Accepted, b.Publish, all, items)
	}
	return items, err
}

// landed ends the flight of messages: those that are there now, or may be, count.
func (w *Limiter) landed(msgs []redrive.Message, which []int, published func(i int) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range which {
		size := waitingSize(&msgs[at])
		for _, m := range []*mark{w.marks[msgs[at].Queue], &w.total} {
			if m != nil {
				m.settle(w.round, size, published(at))
			}
		}
	}
}
