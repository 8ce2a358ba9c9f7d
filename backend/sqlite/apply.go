package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// applyOp carries out a batch.
type applyOp struct {
	op
	batch  driver.Batch
	errs   []error // of validation, kept over a repetition
	result []error
	ids    []string
	err    error
}

// Apply implements driver.Store.
func (s *Store) Apply(ctx context.Context, b driver.Batch) ([]error, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o := &applyOp{batch: b, errs: make([]error, len(b.Publish)+len(b.Put)), ids: make([]string, len(b.Publish)+len(b.Put))}
	bytes := 0
	for i := range b.Publish {
		o.errs[i] = b.Publish[i].Validate()
		bytes += b.Publish[i].Size()
	}
	for i := range b.Put {
		o.errs[len(b.Publish)+i] = driver.CheckEntry(&b.Put[i])
		bytes += b.Put[i].Size()
	}
	for i := range b.Records {
		if err := checkRecord(&b.Records[i]); err != nil {
			return nil, err
		}
		bytes += len(b.Records[i].Value)
	}
	items := len(o.errs) + len(b.Records) + len(b.Delete)
	o.op = newOp(items, bytes, !b.Relaxed, len(o.errs) > 0)
	took, err := s.submit(lineOther, o, ctx.Done())
	if err != nil {
		return nil, err
	}
	if !took {
		return nil, ctx.Err()
	}
	if o.err != nil || driver.FirstError(o.result) == nil {
		return nil, o.err
	}
	return o.result, nil
}

func checkRecord(w *driver.RecordWrite) error {
	invalid := func(what string) error {
		return &redrive.Error{Op: "record", Err: fmt.Errorf("%w record %s/%s: %s", redrive.ErrInvalid, w.Space, w.Key, what)}
	}
	switch {
	case len(w.Value) > driver.MaxRecordSize:
		return invalid(fmt.Sprintf("%d bytes, at most %d", len(w.Value), driver.MaxRecordSize))
	case w.Space == "" || w.Key == "":
		return invalid("space and key must be named")
	case w.Version < driver.AnyVersion || w.Expires < 0:
		return invalid("a negative version or time")
	}
	return nil
}

func (o *applyOp) run(t *tx) {
	o.err = t.item(func() error { return o.apply(t) })
}

func (o *applyOp) apply(t *tx) error {
	o.result = append(o.result[:0], o.errs...)
	for i := range o.batch.Records {
		if err := t.putRecord(&o.batch.Records[i]); err != nil {
			return err
		}
	}
	for i := range o.result {
		if o.result[i] != nil {
			continue
		}
		err := o.one(t, i)
		switch {
		case err == nil:
		case errors.Is(err, redrive.ErrDuplicate), errors.Is(err, redrive.ErrConflict), errors.Is(err, redrive.ErrInvalid):
			o.result[i] = err
		default:
			return err
		}
	}
	for i := range o.batch.Delete {
		if err := t.deleteRange(&o.batch.Delete[i]); err != nil {
			return err
		}
	}
	return nil
}

// one stores the i-th of Publish and Put together.
func (o *applyOp) one(t *tx, i int) error {
	if i < len(o.batch.Publish) {
		m := o.batch.Publish[i]
		q, err := t.queue(m.Queue)
		if err != nil {
			return err
		}
		err = t.publish(q, &m)
		o.ids[i] = m.ID
		return err
	}
	e := o.batch.Put[i-len(o.batch.Publish)]
	q, err := t.queue(e.Queue)
	if err != nil {
		return err
	}
	err = t.put(q, &e, &o.batch)
	o.ids[i] = e.ID
	return err
}

func (o *applyOp) end(err error) {
	if err != nil {
		o.err = err
	}
	if o.err != nil {
		return
	}
	for i := range o.result {
		switch n := i - len(o.batch.Publish); {
		case o.result[i] != nil:
		case n < 0:
			o.batch.Publish[i].ID = o.ids[i]
		default:
			o.batch.Put[n].ID = o.ids[i]
		}
	}
}

// put stores an entry as it is. It fails with ErrDuplicate or ErrConflict before it
// has written anything.
func (t *tx) put(q *queue, e *redrive.Entry, b *driver.Batch) error {
	r := row{
		lane: int64(e.Lane), kind: e.Kind, expires: nanos(e.ExpiresAt), attempts: int64(e.Attempts),
		crashes: int64(e.Crashes), failures: int64(e.History.Count), born: nanos(e.PublishedAt),
	}
	due := nanos(e.Due)
	if due == 0 {
		due = later(t.now, e.Delay)
	}
	r.setDue(t.now, due)
	if e.Suspect {
		r.flags |= flagSuspect
	}
	m := &e.Message
	if m.PublishedAt.IsZero() {
		m.PublishedAt = timeOf(t.now)
	}
	if b.Restore {
		if err := t.forgetRemoved(q, m.ID); err != nil {
			return err
		}
	}
	if err := t.identify(q, m, &r); err != nil {
		return err
	}
	t.count(q, countParked+counter(b.Entered), 1)
	turn, head, err := t.enterKey(q, m.Key, r.seq)
	if err != nil {
		return err
	}
	r.turn, r.class = turn, r.openClass()
	if !head {
		r.class = classBlocked
	}
	if err := t.putHistory(&r, e); err != nil {
		return err
	}
	if err := t.insertMessage(q, r.seq, put(m, e.Checksum)); err != nil {
		return err
	}
	if e.State != redrive.StateDead {
		return t.insertWaiting(q, &r, int64(m.Size()))
	}
	d := deadRow{row: r, died: nanos(e.DiedAt), due: t.now, reason: e.Reason}
	if d.died == 0 {
		d.died = t.now
	}
	if f := e.History.Latest(); f != nil {
		d.signature = f.Signature
	}
	return t.bury(q, &d, m.ID, m.Key)
}

// putHistory stores the failures and the original of an entry.
func (t *tx) putHistory(r *row, e *redrive.Entry) error {
	for i, f := range []*redrive.Failure{e.History.First, e.History.Last} {
		if f == nil {
			continue
		}
		r.flags |= flagFirst << i
		err := t.write(`INSERT OR REPLACE INTO failure (slot, json) VALUES (?, ?)`).int(2*r.seq + int64(i)).blob(driver.EncodeFailure(f)).run()
		if err != nil {
			return err
		}
	}
	if e.Original == nil {
		return nil
	}
	return t.keepOriginal(r, put(e.Original, e.OriginalChecksum))
}

// keepOriginal stores a message as it was before its first edit.
func (t *tx) keepOriginal(r *row, m *stored) error {
	if r.flags&flagEdited != 0 {
		return nil
	}
	r.flags |= flagEdited
	return t.write(`INSERT INTO original (seq, ` + originalColumns + `) VALUES (?, ?, ?, ?, ?, ?)`).
		int(r.seq).textOrNull(m.Kind).textOrNull(m.Key).blobOrNull(encodeHeaders(m.Headers)).checksum(m.checksum).blob(m.Body).run()
}

// deleteRange removes the waiting messages of a key up to an id, as done.
func (t *tx) deleteRange(g *driver.Range) error {
	q := t.s.queueNamed(g.Queue)
	if q == nil || q.id == 0 {
		return nil
	}
	last, err := t.lookup(q, g.UpTo)
	if err != nil || last == 0 {
		return err
	}
	if m, _, err := t.load(q, last); err != nil || m.Key != g.Key {
		return err
	}
	first := int64(0)
	if g.Single {
		first = last
	}
	var seqs []int64
	s := t.read(`SELECT seq FROM keyed WHERE queue = ? AND key = ? AND seq BETWEEN ? AND ?`).int(q.id).text(g.Key).int(first).int(last)
	for s.next() {
		seqs = append(seqs, s.colInt(0))
	}
	if err := s.done(); err != nil {
		return err
	}
	for _, seq := range seqs {
		r, ok, err := t.waitingRow(q, seq)
		if err != nil {
			return err
		}
		if !ok || t.s.leases.held(seq) != nil {
			continue
		}
		m, err := t.body(q, &r)
		if err != nil {
			return err
		}
		t.count(q, countDone, 1)
		if err := t.removeRow(q, &r, &m, redrive.OutcomeDone, 0); err != nil {
			return err
		}
	}
	return nil
}

// removeRow ends a waiting message that nobody holds.
func (t *tx) removeRow(q *queue, r *row, m *stored, o redrive.Outcome, reason redrive.Reason) error {
	t.forgetLease(r.seq)
	l := &lease{row: *r, queue: q, id: m.ID, key: m.Key, size: int64(m.Size())}
	return t.remove(l, o, reason)
}
