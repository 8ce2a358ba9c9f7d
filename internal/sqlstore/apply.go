package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// NewApply checks a batch. checkNames reports what keeps a record of that space and key from
// being written, or "".
func NewApply(b *driver.Batch, checkNames func(space, key string) string) (*Apply, error) {
	a := &Apply{Batch: b, Errs: make([]error, len(b.Publish)+len(b.Put)), put: make([]*Message, len(b.Put))}
	for i := range b.Publish {
		a.Errs[i] = b.Publish[i].Validate()
	}
	for i := range b.Put {
		a.Errs[len(b.Publish)+i] = driver.CheckEntry(&b.Put[i])
	}
	for i := range b.Records {
		if err := checkRecord(&b.Records[i], checkNames); err != nil {
			return nil, err
		}
	}
	a.invalid = slices.Clone(a.Errs)
	return a, nil
}

// Apply carries out a batch.
type Apply struct {
	Batch   *driver.Batch
	invalid []error // of validation
	Errs    []error
	items   []*Item    // of Publish
	put     []*Message // of Put; nil if refused
}

func checkRecord(r *driver.RecordWrite, checkNames func(space, key string) string) error {
	wrong := checkNames(r.Space, r.Key)
	switch {
	case len(r.Value) > driver.MaxRecordSize:
		wrong = fmt.Sprintf("%d bytes, at most %d", len(r.Value), driver.MaxRecordSize)
	case r.Space == "" || r.Key == "":
		wrong = "space and key must be named"
	case r.Version < driver.AnyVersion || r.Expires < 0:
		wrong = "a negative version or time"
	}
	if wrong == "" {
		return nil
	}
	return &redrive.Error{Op: "record", Err: fmt.Errorf("%w record %s/%s: %s", redrive.ErrInvalid, r.Space, r.Key, wrong)}
}

// Run carries the batch out in a transaction.
func (a *Apply) Run(ctx context.Context, w *Work) error {
	copy(a.Errs, a.invalid)
	clear(a.put)
	if a.Batch.Relaxed {
		if err := w.Rows.Relax(ctx); err != nil {
			return err
		}
	}
	// Batches that write the same records wait for one another in one order.
	writes := slices.Clone(a.Batch.Records)
	slices.SortStableFunc(writes, func(a, b driver.RecordWrite) int {
		return strings.Compare(a.Space+"\x00"+a.Key, b.Space+"\x00"+b.Key)
	})
	for i := range writes {
		if err := w.Rows.WriteRecord(ctx, &writes[i]); err != nil {
			return err
		}
	}
	if err := a.publish(ctx, w); err != nil {
		return err
	}
	if err := a.putAll(ctx, w); err != nil {
		return err
	}
	for i := range a.Batch.Delete {
		if err := w.deleteRange(ctx, &a.Batch.Delete[i]); err != nil {
			return err
		}
	}
	return w.Rows.Flush(ctx)
}

func (a *Apply) publish(ctx context.Context, w *Work) error {
	a.items = nil
	for i := range a.Batch.Publish {
		if a.Errs[i] == nil {
			a.items = append(a.items, NewItem(&a.Batch.Publish[i], w.Masks, &a.Errs[i]))
		}
	}
	return w.Rows.Publish(ctx, a.items)
}

// putAll stores entries as they are.
func (a *Apply) putAll(ctx context.Context, w *Work) error {
	n := len(a.Batch.Publish)
	for i := range a.Batch.Put {
		if a.Errs[n+i] != nil {
			continue
		}
		m, err := w.putEntry(ctx, &a.Batch.Put[i], a.Batch)
		switch {
		case err == nil:
			a.put[i] = m
		case IsOutcome(err):
			a.Errs[n+i] = err
		default:
			return err
		}
	}
	return nil
}

// Finish gives the callers their ids, and returns the queues that changed.
func (a *Apply) Finish() []string {
	queues := QueuesOf(a.items)
	for _, it := range a.items {
		it.From.ID = it.ID
	}
	for i, m := range a.put {
		if m != nil {
			a.Batch.Put[i].ID = m.ID
			queues = append(queues, m.Queue)
		}
	}
	for i := range a.Batch.Delete {
		queues = append(queues, a.Batch.Delete[i].Queue)
	}
	return queues
}

// putEntry stores an entry as it is. It fails with ErrDuplicate or ErrConflict before it has
// written anything.
func (w *Work) putEntry(ctx context.Context, e *redrive.Entry, b *driver.Batch) (*Message, error) {
	now, err := w.Now(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.Know(ctx, e.Queue); err != nil {
		return nil, err
	}
	m := &Message{
		Message: e.Message, Due: e.Due, Attempts: e.Attempts, Crashes: e.Crashes, Failures: e.History.Count, Lane: e.Lane, Suspect: e.Suspect,
		First: driver.EncodeFailure(e.History.First), Last: driver.EncodeFailure(e.History.Last),
	}
	m.Sum = e.Checksum
	sound := driver.Matches(&m.Message, m.Sum)
	w.Rows.Fit(m) // which may change it
	if sound {
		m.seal()
	}
	if m.Due.IsZero() {
		m.Due = now.Add(time.Duration(Micros(e.Delay)) * time.Microsecond)
	}
	if m.PublishedAt.IsZero() {
		m.PublishedAt = now
	}
	// Who was parked with a retry's delay may have been published by a clock that is ahead.
	m.Delayed = m.Due.After(now) && (e.Due.IsZero() || e.Lane == redrive.LaneRetry || m.Due.After(m.PublishedAt))
	if e.Original != nil {
		m.keepGiven(e.Original, e.OriginalChecksum)
	}
	if m.ID == "" {
		m.ID = redrive.NewID()
	} else {
		if b.Restore {
			if err := w.Rows.ForgetRemoved(ctx, m); err != nil {
				return nil, err
			}
		}
		if err := w.reserve(ctx, m); err != nil {
			return nil, err
		}
	}
	w.Count(m.Queue, AccountParked+Account(b.Entered), 1)
	if err := w.EnterLine(ctx, m); err != nil {
		return nil, err
	}
	if e.State != redrive.StateDead {
		w.AddWaiting(m)
		return m, nil
	}
	m.Reason, m.Died, m.Due = e.Reason, e.DiedAt, now
	if m.Died.IsZero() {
		m.Died = now
	}
	if f := e.History.Latest(); f != nil {
		m.Signature = f.Signature
	}
	if err := w.Rows.Number(ctx, m); err != nil {
		return nil, err
	}
	w.AddDead(m)
	return m, nil
}

// deleteRange removes the waiting messages of a key up to an id, as done.
func (w *Work) deleteRange(ctx context.Context, g *driver.Range) error {
	refs, err := w.Rows.Range(ctx, g)
	if err != nil || len(refs) == 0 {
		return err
	}
	if err := w.Rows.LockKeys(ctx, refs); err != nil {
		return err
	}
	found, err := w.Lock(ctx, refs)
	if err != nil {
		return err
	}
	now, err := w.Now(ctx)
	if err != nil {
		return err
	}
	for _, ref := range refs {
		m := found[ref]
		if m == nil || m.Dead || m.Held(now) {
			continue
		}
		w.Count(m.Queue, AccountDone, 1)
		w.RemoveWaiting(m)
		w.LeaveLine(m)
		w.Note(m, Fate{Outcome: redrive.OutcomeDone, Ended: true})
	}
	return nil
}
