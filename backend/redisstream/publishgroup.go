package redisstream

import (
	"context"
	"sync/atomic"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/gather"
)

// publishGroups is how many scripts publish to a queue at once: one is written while the server runs the other.
const publishGroups = 2

// published is one Publish.
type published struct {
	ctx  context.Context //nolint:containedctx // of the call
	msgs []redrive.Message
	errs []error
}

// together reports the queue of messages whose Publish may share a script with others.
func (s *Store) together(msgs []redrive.Message) *queue {
	if len(msgs) == 0 || len(msgs) >= stepPage || driver.CheckQueue(msgs[0].Queue) != nil {
		return nil
	}
	for i := range msgs[1:] {
		if msgs[i+1].Queue != msgs[0].Queue {
			return nil
		}
	}
	return s.queue(msgs[0].Queue)
}

// publishTogether publishes what several callers bring to one queue at the same time.
func (s *Store) publishTogether(ctx context.Context, q *queue, msgs []redrive.Message) []error {
	p := &published{ctx: ctx, msgs: msgs}
	size := gather.Size{Items: len(msgs)}
	for i := range msgs {
		size.Bytes += msgs[i].Size()
	}
	if err := q.publishes.Call(ctx, p, size); err != nil {
		p.errs = make([]error, len(msgs))
		for i := range p.errs {
			p.errs[i] = err
		}
	}
	return p.errs
}

func (s *Store) publishGroup(group []*published) {
	if len(group) == 1 {
		p := group[0]
		p.errs = s.publish(p.ctx, p.msgs)
		return
	}
	ctx, cancel := whileAny(group)
	defer cancel()
	var all []redrive.Message
	for _, p := range group {
		all = append(all, p.msgs...)
	}
	errs := s.publish(ctx, all)
	for _, p := range group {
		for i := range p.msgs {
			p.msgs[i].ID = all[i].ID
		}
		all = all[len(p.msgs):]
		if errs != nil {
			p.errs, errs = errs[:len(p.msgs):len(p.msgs)], errs[len(p.msgs):]
		}
	}
}

// whileAny is a context that ends when those of all callers have.
func whileAny(group []*published) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(group[0].ctx))
	var left atomic.Int64
	left.Store(int64(len(group)))
	stops := make([]func() bool, len(group))
	for i, p := range group {
		stops[i] = context.AfterFunc(p.ctx, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		})
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel()
	}
}
