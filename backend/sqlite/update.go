package sqlite

import (
	"context"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// updateOp changes messages.
type updateOp struct {
	op
	refs   []redrive.Ref
	query  *redrive.Query // what each must match, if not nil
	named  bool           // the caller named the messages
	change driver.Change
	result []driver.Updated
	err    error
}

// Update implements driver.Store. What a query selects is looked up beside the
// writer and checked again when it is changed.
func (s *Store) Update(ctx context.Context, sel driver.Selection, c driver.Change, limit int) ([]driver.Updated, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if limit <= 0 {
		limit = redrive.MaxPage
	}
	if sel.Refs != nil || sel.Query == nil {
		o := &updateOp{refs: sel.Refs[:min(limit, len(sel.Refs))], named: true, change: c}
		if q := sel.Query; q != nil {
			o.query = &redrive.Query{Queue: q.Queue, State: q.State, Since: q.Since, Until: q.Until, Plan: q.Plan, NotPlan: q.NotPlan}
		}
		return s.update(ctx, o)
	}
	q := *sel.Query
	q.Bodies, q.Limit = false, min(limit, redrive.MaxPage)
	for {
		page, err := s.Find(ctx, q)
		if err != nil {
			return nil, err
		}
		if len(page.Entries) > 0 {
			refs := make([]redrive.Ref, len(page.Entries))
			for i := range page.Entries {
				refs[i] = page.Entries[i].Ref()
			}
			result, err := s.update(ctx, &updateOp{refs: refs, query: &q, change: c})
			if err != nil || len(result) > 0 {
				return result, err
			}
		}
		if page.Next == "" {
			return nil, nil
		}
		q.After = page.Next
	}
}

func (s *Store) update(ctx context.Context, o *updateOp) ([]driver.Updated, error) {
	if len(o.refs) == 0 {
		return nil, nil
	}
	o.op = newOp(len(o.refs), 0, true, o.change.Edit != nil || o.change.Edits != nil)
	took, err := s.submit(lineOther, o, ctx.Done())
	if err != nil {
		return nil, err
	}
	if !took {
		return nil, ctx.Err()
	}
	return o.result, o.err
}

func (o *updateOp) end(err error) {
	if err != nil {
		o.result, o.err = nil, err
	}
}

func (o *updateOp) run(t *tx) {
	o.result = nil
	for _, ref := range o.refs {
		u := driver.Updated{Ref: ref}
		skipped := false
		u.Err = t.item(func() (err error) {
			u.New = redrive.Ref{}
			skipped, err = o.one(t, &u)
			return err
		})
		if !skipped {
			o.result = append(o.result, u)
		}
	}
}

// one changes one message. It skips what does not match the query any more.
func (o *updateOp) one(t *tx, u *driver.Updated) (skipped bool, err error) {
	q := t.s.queueNamed(u.Queue)
	if q == nil || q.id == 0 {
		return false, redrive.ErrNotFound
	}
	seq, err := t.lookup(q, u.ID)
	if err != nil || seq == 0 {
		return !o.named, orNotFound(err)
	}
	if o.query != nil {
		f := finder{s: t.s, read: t.read, held: t.s.leases.held, query: o.query}
		if _, ok, err := f.entry(q, seq); err != nil || !ok {
			if err == nil {
				err = redrive.ErrState
			}
			return !o.named, err
		}
	}
	if t.s.leases.held(seq) != nil {
		return false, redrive.ErrState
	}
	r, waits, err := t.waitingRow(q, seq)
	if err != nil {
		return false, err
	}
	if waits {
		m, err := t.body(q, &r)
		if err != nil {
			return false, err
		}
		c, err := o.change.For(&m.Message)
		if err != nil {
			return false, err
		}
		return false, t.changeWaiting(q, &r, &m, c)
	}
	d, m, err := t.deadRow(q, seq)
	if err != nil {
		return false, err
	}
	c, err := o.change.For(&m.Message)
	if err != nil {
		return false, err
	}
	u.New, err = t.changeDead(q, &d, &m, c)
	return false, err
}

func orNotFound(err error) error {
	if err == nil {
		return redrive.ErrNotFound
	}
	return err
}

// changeWaiting changes a waiting or blocked message.
func (t *tx) changeWaiting(q *queue, r *row, m *stored, c *driver.Change) error {
	switch c.Action {
	case driver.ActDrop:
		t.count(q, countDropped, 1)
		if err := t.publishResult(&m.Message, redrive.OutcomeDrop, c.Reason, nil); err != nil {
			return err
		}
		return t.removeRow(q, r, m, redrive.OutcomeDrop, c.Reason)
	case driver.ActKill:
		return t.kill(q, r, m, c)
	case driver.ActEdit:
		m.belong(c.Plan)
		return t.editWaiting(q, r, m, c.Edit)
	case driver.ActDueNow:
		if c.Plan != "" {
			if err := t.write(`UPDATE message SET plan = ? WHERE seq = ?`).text(c.Plan).int(r.seq).run(); err != nil {
				return err
			}
		}
		if r.due <= t.now {
			return nil
		}
		t.forgetLease(r.seq)
		next := *r
		next.setDue(t.now, t.now)
		return t.moveWaiting(q, r, &next)
	case driver.ActRedrive, driver.ActArchive:
	}
	return redrive.ErrState
}

// kill sets a waiting message aside.
func (t *tx) kill(q *queue, r *row, m *stored, c *driver.Change) (err error) {
	reason := c.Reason
	if reason == 0 {
		reason = redrive.ReasonManual
	}
	f := &redrive.Failure{At: timeOf(t.now), Reason: reason, Types: []string{"redrive.killed"}, Message: c.Note}
	f.Clean()
	t.forgetLease(r.seq)
	d := deadRow{row: *r, died: t.now, due: t.now, reason: reason}
	d.flags &^= flagSuspect
	latest := f
	if c.Note != "" {
		err = t.recordFailure(&d.row, f, false)
	} else {
		latest, err = readFailure(t.read, r.seq, r.flags)
	}
	if err != nil {
		return err
	}
	if latest != nil {
		d.signature = latest.Signature
	}
	if err := t.publishResult(&m.Message, redrive.OutcomeDead, reason, f); err != nil {
		return err
	}
	if err := t.deleteWaiting(q, r, int64(m.Size())); err != nil {
		return err
	}
	return t.bury(q, &d, m.ID, m.Key)
}

// publishResult publishes the result of a message that ended, if it asks for one.
func (t *tx) publishResult(m *redrive.Message, o redrive.Outcome, reason redrive.Reason, f *redrive.Failure) error {
	result, ok := driver.ResultMessage(m, o, reason, f, nil)
	if ok = ok && result.Validate() == nil; !ok { // a name that is no queue's has nobody who waits for it
		return nil
	}
	q, err := t.queue(result.Queue)
	if err != nil {
		return err
	}
	if err := t.publish(q, &result); err != nil && !isRepeated(err) {
		return err
	}
	return nil
}

// changeDead changes a dead letter, and returns where it is now if that changed.
func (t *tx) changeDead(q *queue, d *deadRow, m *stored, c *driver.Change) (now redrive.Ref, err error) {
	t.forgetLease(d.seq)
	switch c.Action {
	case driver.ActRedrive:
		if err := c.CheckRedrive(&m.Message, d.reason); err != nil {
			return now, err
		}
		return t.redrive(q, d, m, c, t.now)
	case driver.ActDrop:
		t.count(q, countDropped, 1)
		return now, t.exhume(q, d, m, redrive.OutcomeDrop, c.Reason)
	case driver.ActArchive:
		t.count(q, countArchived, 1)
		return now, t.exhume(q, d, m, redrive.OutcomeDead, d.reason)
	case driver.ActEdit:
		m.belong(c.Plan)
		return now, t.editDead(q, d, m, c.Edit)
	case driver.ActKill, driver.ActDueNow:
	}
	return now, redrive.ErrState
}
