package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
)

// Apply implements redrive.Store.
func (s *Store) Apply(ctx context.Context, b redrive.Batch) ([]error, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	a := &apply{batch: &b, errs: make([]error, len(b.Publish)+len(b.Put)), put: make([]*message, len(b.Put))}
	for i := range b.Publish {
		a.errs[i] = b.Publish[i].Validate()
	}
	for i := range b.Put {
		a.errs[len(b.Publish)+i] = checkEntry(&b.Put[i])
	}
	for i := range b.Records {
		if err := checkRecord(&b.Records[i]); err != nil {
			return nil, err
		}
	}
	a.invalid = slices.Clone(a.errs)
	ctx, cancel := s.detach(ctx)
	defer cancel()
	err := s.inTx(ctx, "apply", func(tx db) error { return a.run(ctx, &work{db: tx, sql: s.sql}) })
	if err != nil {
		if errors.Is(err, redrive.ErrVersion) {
			return nil, redrive.ErrVersion
		}
		return nil, fault("apply", err)
	}
	s.changed(a.finish()...)
	for i := range b.Put {
		s.floors.Forget(b.Put[i].Queue)
	}
	if redrive.FirstError(a.errs) == nil {
		return nil, nil
	}
	return a.errs, nil
}

// apply carries out a batch.
type apply struct {
	batch   *redrive.Batch
	invalid []error // of validation
	errs    []error
	items   []*item    // of Publish
	put     []*message // of Put; nil if refused
}

// checkEntry reports what keeps an entry from being put. A dead letter may be what
// Publish would refuse: it is dead for it.
func checkEntry(e *redrive.Entry) error {
	bad := func(what string) error {
		return &redrive.Error{Op: "put", Queue: e.Queue, ID: e.ID, Err: fmt.Errorf("%w entry: %s", redrive.ErrInvalid, what)}
	}
	if int(e.Lane) >= redrive.Lanes || e.Attempts < 0 || e.Crashes < 0 || e.History.Count < 0 {
		return bad("a lane or number that cannot be")
	}
	if e.State != redrive.StateDead {
		return e.Validate()
	}
	if err := redrive.CheckQueue(e.Queue); err != nil {
		return err
	}
	if e.Reason == 0 || e.Reason > redrive.ReasonManual {
		return bad("a dead letter needs a reason")
	}
	if e.ID == "" {
		return nil
	}
	return redrive.CheckID(e.ID)
}

func (a *apply) run(ctx context.Context, w *work) error {
	copy(a.errs, a.invalid)
	clear(a.put)
	if a.batch.Relaxed {
		// Only until the end of the transaction: no state of the session.
		if err := w.db.query(ctx, "SELECT set_config('synchronous_commit', 'off', true)", func(row) error { return nil }); err != nil {
			return err
		}
	}
	if err := w.writeRecords(ctx, a.batch.Records); err != nil {
		return err
	}
	if err := a.publish(ctx, w); err != nil {
		return err
	}
	if err := a.putAll(ctx, w); err != nil {
		return err
	}
	for i := range a.batch.Delete {
		if err := w.deleteRange(ctx, &a.batch.Delete[i]); err != nil {
			return err
		}
	}
	return w.flush(ctx)
}

func (a *apply) publish(ctx context.Context, w *work) error {
	a.items = nil
	for i := range a.batch.Publish {
		if a.errs[i] == nil {
			a.items = append(a.items, newItem(&a.batch.Publish[i], &a.errs[i]))
		}
	}
	return store(ctx, w.db, w.sql, a.items)
}

// putAll stores entries as they are.
func (a *apply) putAll(ctx context.Context, w *work) error {
	n := len(a.batch.Publish)
	for i := range a.batch.Put {
		if a.errs[n+i] != nil {
			continue
		}
		m, err := w.put(ctx, &a.batch.Put[i], a.batch.Entered)
		switch {
		case err == nil:
			a.put[i] = m
		case isOutcome(err):
			a.errs[n+i] = err
		default:
			return err
		}
	}
	return nil
}

// finish gives the callers their ids, and returns the queues that changed.
func (a *apply) finish() []string {
	queues := queuesOf(a.items)
	for _, it := range a.items {
		it.from.ID = it.ID
	}
	for i, m := range a.put {
		if m != nil {
			a.batch.Put[i].ID = m.ID
			queues = append(queues, m.Queue)
		}
	}
	for i := range a.batch.Delete {
		queues = append(queues, a.batch.Delete[i].Queue)
	}
	return queues
}

// put stores an entry as it is. It fails with ErrDuplicate or ErrConflict before it has
// written anything.
func (w *work) put(ctx context.Context, e *redrive.Entry, entered redrive.Entered) (*message, error) {
	now, err := w.now(ctx)
	if err != nil {
		return nil, err
	}
	if err := w.know(ctx, e.Queue); err != nil {
		return nil, err
	}
	m := &message{
		Message: e.Message, due: e.Due, attempts: e.Attempts, crashes: e.Crashes, failures: e.History.Count, lane: e.Lane, suspect: e.Suspect,
		first: redrive.EncodeFailure(e.History.First), last: redrive.EncodeFailure(e.History.Last),
	}
	m.cleanForeign()
	if m.due.IsZero() {
		m.due = now.Add(time.Duration(micros(e.Delay)) * time.Microsecond)
	}
	if m.PublishedAt.IsZero() {
		m.PublishedAt = now
	}
	if e.Original != nil {
		m.keepOriginal(e.Original)
	}
	if m.ID == "" {
		m.ID = redrive.NewID()
	} else {
		if entered == redrive.EnteredImported {
			if err := w.forgetArchived(ctx, m); err != nil {
				return nil, err
			}
		}
		if err := w.reserve(ctx, m); err != nil {
			return nil, err
		}
	}
	w.count(m.Queue, bookParked+book(entered), 1)
	if err := w.enterLine(ctx, m); err != nil {
		return nil, err
	}
	if e.State != redrive.StateDead {
		w.addWaiting(m)
		return m, nil
	}
	m.reason, m.died, m.due = e.Reason, e.DiedAt, now
	if m.died.IsZero() {
		m.died = now
	}
	if f := e.History.Latest(); f != nil {
		m.signature = f.Signature
	}
	w.addDead(m)
	return m, nil
}

// Headers that hold the bytes of names that are no text.
const (
	headerNativeKey  = "redrive-native-key"
	headerNativeKind = "redrive-native-kind"
)

// cleanForeign makes text of names that are none; their bytes stay in headers.
func (m *message) cleanForeign() {
	for _, part := range []struct {
		text   *string
		header string
	}{{&m.Key, headerNativeKey}, {&m.Kind, headerNativeKind}, {&m.ReplyTo, ""}, {&m.Origin, ""}, {&m.EditedFrom, ""}, {&m.Plan, ""}} {
		clean, changed := storable(*part.text)
		if changed && part.header != "" {
			m.Headers = m.Headers.Clone()
			m.Headers.Add(part.header, *part.text)
		}
		*part.text = clean
	}
}

// deleteRange removes the waiting messages of a key up to an id, as done.
func (w *work) deleteRange(ctx context.Context, g *redrive.Range) error {
	var refs []redrive.Ref
	err := w.db.query(ctx, w.sql.get("range"), func(r row) error {
		ref := redrive.Ref{Queue: g.Queue}
		err := r.Scan(&ref.ID)
		refs = append(refs, ref)
		return err
	}, g.Queue, g.Key, g.UpTo, g.Alone)
	if err != nil || len(refs) == 0 {
		return err
	}
	if err := w.lockKeys(ctx, refs); err != nil {
		return err
	}
	found, err := w.lock(ctx, refs)
	if err != nil {
		return err
	}
	now, err := w.now(ctx)
	if err != nil {
		return err
	}
	for _, ref := range refs {
		m := found[ref]
		if m == nil || m.dead || m.held(now) {
			continue
		}
		w.count(m.Queue, bookDone, 1)
		w.removeWaiting(m)
		w.leaveLine(m)
		w.note(m, redrive.OutcomeDone, 0, true)
	}
	return nil
}

func checkRecord(r *redrive.RecordWrite) error {
	bad := func(what string) error {
		return &redrive.Error{Op: "record", Err: fmt.Errorf("%w record %s/%s: %s", redrive.ErrInvalid, r.Space, r.Key, what)}
	}
	_, space := storable(r.Space)
	_, key := storable(r.Key)
	switch {
	case len(r.Value) > redrive.MaxRecordSize:
		return bad(fmt.Sprintf("%d bytes, at most %d", len(r.Value), redrive.MaxRecordSize))
	case r.Space == "" || r.Key == "":
		return bad("space and key must be named")
	case space || key:
		return bad("space and key must be text")
	case r.Version < redrive.AnyVersion || r.Expires < 0:
		return bad("a negative version or time")
	}
	return nil
}

// writeRecords carries out the writes of records, or fails with ErrVersion.
func (w *work) writeRecords(ctx context.Context, writes []redrive.RecordWrite) error {
	// Batches that write the same records wait for one another in one order.
	writes = slices.Clone(writes)
	slices.SortStableFunc(writes, func(a, b redrive.RecordWrite) int {
		return strings.Compare(a.Space+"\x00"+a.Key, b.Space+"\x00"+b.Key)
	})
	for i := range writes {
		if err := w.writeRecord(ctx, &writes[i]); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) writeRecord(ctx context.Context, r *redrive.RecordWrite) error {
	var n int64
	var err error
	expires := int64(-1)
	if r.Expires > 0 {
		expires = micros(r.Expires)
	}
	switch {
	case r.Value == nil && r.Version == 0: // it must not be there, and shall not be
		err = w.db.query(ctx, w.sql.get("record_absent"), func(row) error { n = -1; return nil }, r.Space, r.Key)
		n++
	case r.Value == nil:
		n, err = w.db.exec(ctx, w.sql.get("record_delete"), r.Space, r.Key, r.Version)
		if r.Version == redrive.AnyVersion {
			n = 1
		}
	case r.Version == 0:
		n, err = w.db.exec(ctx, w.sql.get("record_create"), r.Space, r.Key, r.Value, expires)
	case r.Version == redrive.AnyVersion:
		n, err = w.db.exec(ctx, w.sql.get("record_set"), r.Space, r.Key, r.Value, expires)
	default:
		n, err = w.db.exec(ctx, w.sql.get("record_update"), r.Space, r.Key, r.Value, expires, r.Version)
	}
	if err == nil && n == 0 {
		return redrive.ErrVersion
	}
	return err
}
