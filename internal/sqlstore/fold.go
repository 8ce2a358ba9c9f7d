package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Folding the ledger is the work of one process at a time: it holds a record that
// expires.
const (
	foldEvery = time.Second
	foldLease = 10 * time.Second
	foldSpace = "_store"
	foldKey   = "fold"
)

// Fold folds differences into the ledger until ctx ends, while the process of this name
// holds the record. fold reports whether there is more.
func Fold(ctx context.Context, s driver.Store, self string, fold func(context.Context) (more bool, err error)) {
	h := foldHold{store: s, self: self}
	for {
		Sleep(ctx, foldEvery)
		if ctx.Err() != nil {
			return
		}
		for more := true; more && ctx.Err() == nil; {
			more = h.take(ctx)
			if more {
				more, _ = fold(ctx) // what fails is tried again the next time
			}
		}
	}
}

// foldHold is this process's hold on the record.
type foldHold struct {
	store   driver.Store
	self    string
	version int64     // 0: another has it
	renewed time.Time // by our own clock, which measures only how long ago that was
}

// take takes or keeps the record, and reports whether this process has it.
func (h *foldHold) take(ctx context.Context) bool {
	if h.version != 0 && time.Since(h.renewed) < foldLease/2 { // nobody else takes it before
		return true
	}
	renewed := time.Now()
	_, err := h.store.Apply(ctx, driver.Batch{Relaxed: true, Records: []driver.RecordWrite{
		{Space: foldSpace, Key: foldKey, Value: []byte(h.self), Version: h.version, Expires: foldLease},
	}})
	h.version = 0
	if errors.Is(err, redrive.ErrVersion) && h.stale(ctx) {
		return h.take(ctx)
	}
	if err != nil {
		return false
	}
	rec, err := h.store.GetRecord(ctx, foldSpace, foldKey)
	if err != nil || string(rec.Value) != h.self {
		return false
	}
	h.version, h.renewed = rec.Version, renewed
	return true
}

// stale reports whether the record cannot be a living process's, as it expires later than any
// of now would: the server's clock went back since it was written. It is then ours to replace.
func (h *foldHold) stale(ctx context.Context) bool {
	rec, err := h.store.GetRecord(ctx, foldSpace, foldKey)
	if err != nil {
		return false
	}
	now, err := h.store.Now(ctx)
	if err != nil || rec.ExpiresAt.Sub(now) <= 2*foldLease {
		return false
	}
	h.version, h.renewed = rec.Version, time.Time{}
	return true
}
