package sqlstore

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Verbs are the methods of a [driver.Store] that all stores carry out alike.
type Verbs struct{ base *Base }

// SetMasks implements driver.Masked.
func (v Verbs) SetMasks(m driver.Masks) { v.base.Masks = m }

// Publish implements redrive.Sink. Calls that come together share a statement or a
// transaction. ctx withdraws the call until that is begun; after it the outcome is
// awaited for at most the store's timeout.
func (v Verbs) Publish(ctx context.Context, msgs []redrive.Message) []error {
	if err := v.base.Ready(ctx); err != nil {
		return FillErrors(len(msgs), err)
	}
	return v.base.gatherer.Publish(ctx, msgs)
}

// Claimed is one row of a claim, with what orders it.
type Claimed struct {
	Due time.Time
	Seq int64
	redrive.Delivery
}

// Compare orders rows as they are due.
func (c *Claimed) Compare(o *Claimed) int {
	if c := c.Due.Compare(o.Due); c != 0 {
		return c
	}
	return int(c.Seq - o.Seq)
}

// SortClaimed sorts rows as they are due.
func SortClaimed(rows []Claimed) {
	slices.SortFunc(rows, func(a, b Claimed) int { return a.Compare(&b) })
}

// Claim implements driver.Source.
func (v Verbs) Claim(ctx context.Context, req driver.ClaimRequest) ([]redrive.Delivery, error) {
	if err := CheckClaim(&req); err != nil {
		return nil, err
	}
	if err := v.base.Ready(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := v.base.Detach(ctx)
	defer cancel()
	rows, err := v.base.own.Pick(ctx, &req)
	if err != nil {
		return nil, err
	}
	SortClaimed(rows)
	got := make([]redrive.Delivery, len(rows))
	for i := range rows {
		got[i] = rows[i].Delivery
	}
	return got, nil
}

// Extend implements driver.Source.
func (v Verbs) Extend(ctx context.Context, receipts []redrive.Receipt, lease time.Duration) []error {
	if err := v.base.Ready(ctx); err != nil {
		return FillErrors(len(receipts), err)
	}
	ctx, cancel := v.base.Detach(ctx)
	defer cancel()
	lost, err := v.base.own.Prolong(ctx, receipts, max(lease, MinLease))
	if err != nil {
		return FillErrors(len(receipts), v.base.own.Fault("extend", err))
	}
	if len(lost) == 0 {
		return nil
	}
	errs := make([]error, len(receipts))
	v.base.explain(ctx, func(i int) redrive.Ref { return receipts[i].Ref }, lost, errs)
	return errs
}

// explain finds out why claims did not hold: the message is gone, or it is another's.
func (b *Base) explain(ctx context.Context, ref func(int) redrive.Ref, lost []int, errs []error) {
	if len(lost) == 0 {
		return
	}
	refs := make([]redrive.Ref, len(lost))
	for j, i := range lost {
		refs[j] = ref(i)
	}
	there, err := b.own.There(ctx, refs)
	for j, i := range lost {
		errs[i] = redrive.ErrNotFound
		if err != nil || there[refs[j]] { // that much is certain
			errs[i] = redrive.ErrLeaseLost
		}
	}
}

// Wait implements driver.Source. A change is seen at once if this process made it or
// another announced it, else within the longest poll interval.
func (v Verbs) Wait(ctx context.Context, watches []driver.Watch) ([]driver.Event, error) {
	return v.base.watcher.Wait(ctx, watches)
}

// Update implements driver.Store. What a query selects is looked up first, and checked
// again under the lock of its change.
func (v Verbs) Update(ctx context.Context, sel driver.Selection, c driver.Change, limit int) ([]driver.Updated, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := v.base.Ready(ctx); err != nil {
		return nil, err
	}
	return Select(ctx, sel, c, limit, v.Find, v.base.update)
}

func (b *Base) update(ctx context.Context, u *Update) error {
	ctx, cancel := b.Detach(ctx)
	defer cancel()
	if err := b.own.InTx(ctx, "update", func(w *Work) error { return u.Run(ctx, w) }); err != nil {
		return b.own.Fault("update", err)
	}
	queues := u.Queues()
	for _, name := range queues {
		b.Floors.Forget(name) // what is changed keeps the time it was due at
	}
	b.Changed(queues...)
	return nil
}

// Apply implements driver.Store.
func (v Verbs) Apply(ctx context.Context, batch driver.Batch) ([]error, error) {
	b := v.base
	if err := b.Ready(ctx); err != nil {
		return nil, err
	}
	a, err := NewApply(&batch, b.own.CheckNames)
	if err != nil {
		return nil, err
	}
	ctx, cancel := b.Detach(ctx)
	defer cancel()
	b.Texts.Learn(ctx, &b.Masks, func(add func(string, *redrive.Failure)) {
		for i := range batch.Put {
			if batch.Put[i].State == redrive.StateDead {
				add(batch.Put[i].Queue, batch.Put[i].History.Latest())
			}
		}
	})
	err = b.own.InTx(ctx, "apply", func(w *Work) error { return a.Run(ctx, w) })
	if errors.Is(err, redrive.ErrVersion) {
		return nil, redrive.ErrVersion
	}
	if err != nil {
		return nil, b.own.Fault("apply", err)
	}
	for i := range batch.Put {
		b.Floors.Forget(batch.Put[i].Queue) // which may have been due for long
	}
	b.Changed(a.Finish()...)
	return OrNil(a.Errs), nil
}

// Configure implements driver.Store.
func (v Verbs) Configure(ctx context.Context, name string, settings driver.QueueSettings) error {
	if err := driver.CheckQueue(name); err != nil {
		return &redrive.Error{Op: "configure", Err: err}
	}
	if err := v.base.Ready(ctx); err != nil {
		return err
	}
	ctx, cancel := v.base.Detach(ctx)
	defer cancel()
	if settings.Remember <= 0 {
		settings.Remember = driver.DefaultRemember
	}
	return v.base.own.Fault("configure", v.base.own.SetUp(ctx, name, &settings))
}

// Settings implements driver.SettingsStore.
func (v Verbs) Settings(ctx context.Context, queue string) (settings driver.QueueSettings, err error) {
	if err := v.base.Ready(ctx); err != nil {
		return settings, err
	}
	err = v.base.own.InSnapshot(ctx, "settings", func(w *Work) error {
		err := w.Know(ctx, queue)
		settings = w.Settings[queue]
		return err
	})
	return settings, v.base.own.Fault("settings", err)
}

// Verify implements driver.Store. It reads within one snapshot, which keeps old versions
// of rows from being removed meanwhile.
func (v Verbs) Verify(ctx context.Context, names ...string) ([]driver.Audit, error) {
	if err := v.base.Ready(ctx); err != nil {
		return nil, err
	}
	var audits []driver.Audit
	err := v.base.own.InSnapshot(ctx, "verify", func(w *Work) (err error) {
		audits = nil
		list := names
		if len(list) == 0 {
			if list, err = w.Rows.ReadQueueNames(ctx); err != nil {
				return err
			}
		}
		for _, name := range list {
			a := Auditor{Audit: driver.Audit{Queue: name}}
			if err := w.Rows.Audit(ctx, &a); err != nil {
				return err
			}
			a.judge()
			audits = append(audits, a.Audit)
		}
		return nil
	})
	if err != nil {
		return nil, v.base.own.ReadFault("verify", err)
	}
	return audits, nil
}

// Get implements driver.Store.
func (v Verbs) Get(ctx context.Context, refs []redrive.Ref) ([]*redrive.Entry, error) {
	entries := make([]*redrive.Entry, len(refs))
	if len(refs) == 0 {
		return entries, v.base.Ready(ctx)
	}
	found := make(map[redrive.Ref]*redrive.Entry, len(refs))
	err := v.base.own.ReadMessages(ctx, refs, func(m *Message, now time.Time) (err error) {
		found[m.Ref()], err = m.Entry(now, true)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, ref := range refs {
		entries[i] = found[ref]
	}
	return entries, nil
}

// Recall implements driver.Store.
func (v Verbs) Recall(ctx context.Context, refs []redrive.Ref) ([]*driver.Remembered, error) {
	found := make(map[redrive.Ref]*driver.Remembered, len(refs))
	if err := v.base.own.ReadRemembered(ctx, refs, func(m *driver.Remembered) { found[m.Ref] = m }); err != nil {
		return nil, err
	}
	list := make([]*driver.Remembered, len(refs))
	for i, ref := range refs {
		list[i] = found[ref]
	}
	return list, nil
}

// GetRecord implements driver.Store.
func (v Verbs) GetRecord(ctx context.Context, space, key string) (driver.Record, error) {
	list, err := v.base.own.ReadRecords(ctx, "record_get", space, key)
	if err == nil && len(list) == 0 {
		err = redrive.ErrNotFound
	}
	if err != nil {
		return driver.Record{Space: space}, err
	}
	return list[0], nil
}

// ListRecords implements driver.Store.
func (v Verbs) ListRecords(ctx context.Context, space, after string, limit int) ([]driver.Record, error) {
	if limit <= 0 {
		limit = redrive.DefaultPage
	}
	return v.base.own.ReadRecords(ctx, "record_list", space, after, limit)
}

// Caps are those of a store of that name.
func Caps(name string) driver.Caps {
	return driver.Caps{
		Name: name, MaxDelay: driver.Never, DeadLetters: true, KeepsHistory: true, Repeats: true, Emits: true,
		Fenced: true, Filters: true, RecordsClaims: true, KeepsLeases: true, Remembers: true, Expires: true, Ordered: true, Browsable: true,
		Identity: redrive.IdentityMessage, Transfer: driver.TransferTransaction,
	}
}
