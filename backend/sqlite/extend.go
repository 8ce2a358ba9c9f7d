package sqlite

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// extendOp makes leases run longer. It writes nothing.
type extendOp struct {
	op
	receipts []redrive.Receipt
	lease    time.Duration
	result   []error
}

// Extend implements driver.Source.
func (s *Store) Extend(ctx context.Context, receipts []redrive.Receipt, lease time.Duration) []error {
	if err := ctx.Err(); err != nil {
		return fillErrors(len(receipts), err)
	}
	o := &extendOp{op: newOp(len(receipts), 0, false, false), receipts: receipts, lease: max(lease, minLease)}
	took, err := s.submit(lineDeliver, o, ctx.Done())
	if err != nil {
		return fillErrors(len(receipts), err)
	}
	if !took {
		return fillErrors(len(receipts), ctx.Err())
	}
	if driver.FirstError(o.result) == nil {
		return nil
	}
	return o.result
}

func (o *extendOp) run(t *tx) {
	o.result = make([]error, len(o.receipts))
	for i := range o.receipts {
		r := &o.receipts[i]
		l := t.s.leases.byToken[r.Token]
		switch {
		case l == nil || l.id != r.ID || l.queue.name != r.Queue:
			o.result[i] = t.item(func() error { return t.lostOrGone(r.Ref) })
		case l.lapsed:
			o.result[i] = redrive.ErrLeaseLost
		default:
			l.until = later(t.now, o.lease)
			t.s.leases.fix(l.slot)
		}
	}
}

func (o *extendOp) end(err error) {
	if err != nil {
		o.result = fillErrors(len(o.receipts), err)
	}
}
