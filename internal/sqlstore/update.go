package sqlstore

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Select carries out the Update of a [driver.Store] in steps: what a query selects is
// looked up first by find, and checked again under the lock of its change.
func Select(ctx context.Context, sel driver.Selection, c driver.Change, limit int,
	find func(ctx context.Context, q redrive.Query) (driver.Page, error), step func(ctx context.Context, u *Update) error,
) ([]driver.Updated, error) {
	carry := func(u *Update) ([]driver.Updated, error) {
		if len(u.Refs) == 0 {
			return nil, nil
		}
		err := step(ctx, u)
		if err != nil {
			return nil, err
		}
		return u.Result, nil
	}
	if limit <= 0 {
		limit = redrive.MaxPage
	}
	if sel.Refs != nil || sel.Query == nil {
		u := &Update{Refs: sel.Refs[:min(limit, len(sel.Refs))], Named: true, Change: c}
		if q := sel.Query; q != nil {
			u.Query = &redrive.Query{Queue: q.Queue, State: q.State, Since: q.Since, Until: q.Until, Plan: q.Plan, NotPlan: q.NotPlan}
		}
		return carry(u)
	}
	q := *sel.Query
	q.Bodies, q.Limit = false, min(limit, redrive.MaxPage)
	for {
		page, err := find(ctx, q)
		if err != nil {
			return nil, err
		}
		if len(page.Entries) > 0 {
			refs := make([]redrive.Ref, len(page.Entries))
			for i := range page.Entries {
				refs[i] = page.Entries[i].Ref()
			}
			result, err := carry(&Update{Refs: refs, Query: &q, Change: c})
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

// Update is one step of an Update.
type Update struct {
	Refs   []redrive.Ref
	Query  *redrive.Query // what each must match, if not nil
	Named  bool           // the caller named the messages
	Change driver.Change
	Result []driver.Updated
}

// Queues returns the queues that were changed.
func (u *Update) Queues() []string {
	var queues []string
	for i := range u.Result {
		queues = append(queues, u.Result[i].Queue)
		if u.Result[i].New.Queue != "" {
			queues = append(queues, u.Result[i].New.Queue)
		}
	}
	return queues
}

// Run carries the step out in a transaction.
func (u *Update) Run(ctx context.Context, w *Work) error {
	u.Result = nil
	if err := w.Rows.LockKeys(ctx, u.Refs); err != nil {
		return err
	}
	found, err := w.Lock(ctx, u.Refs)
	if err != nil {
		return err
	}
	if _, err := w.Now(ctx); err != nil {
		return err
	}
	for _, m := range found {
		if err := w.Know(ctx, m.Queue); err != nil {
			return err
		}
	}
	seen := make(map[redrive.Ref]bool)
	for _, ref := range u.Refs {
		m := found[ref]
		if seen[ref] {
			m = nil // it was changed just now, and is no longer what was read
		}
		seen[ref] = true
		one := driver.Updated{Ref: ref}
		var skipped bool
		skipped, one.New, err = u.one(ctx, w, m)
		switch {
		case skipped:
			continue
		case err != nil && !IsOutcome(err):
			return err
		}
		one.Err = err
		u.Result = append(u.Result, one)
	}
	return w.Rows.Flush(ctx)
}

// one changes one message. It skips what does not match the query any more.
func (u *Update) one(ctx context.Context, w *Work, m *Message) (skipped bool, now redrive.Ref, err error) {
	switch {
	case m == nil:
		return !u.Named, now, redrive.ErrNotFound
	case u.Query != nil && !stillMatches(u.Query, m, w.Clock):
		return !u.Named, now, redrive.ErrState
	case m.Held(w.Clock):
		return false, now, redrive.ErrState
	}
	c, err := u.Change.For(&m.Message)
	if err != nil {
		return false, now, err
	}
	m.Lapse()
	if m.Dead {
		now, err = w.changeDead(ctx, m, c)
		return false, now, err
	}
	return false, now, w.changeWaiting(ctx, m, c)
}

// stillMatches looks again at what may have changed since a page was read.
func stillMatches(q *redrive.Query, m *Message, now time.Time) bool {
	at := m.PublishedAt
	if m.Dead {
		at = m.Died
	}
	state, signature := redrive.StateWaiting, m.Signature
	if latest := m.LatestFailure(); !m.Dead && latest != nil {
		signature = latest.Signature
	}
	switch {
	case m.Dead:
		state = redrive.StateDead
	case m.Held(now):
		state = redrive.StateLeased
	case m.Class == ClassBlocked, m.Class == ClassLeasedBlocked:
		state = redrive.StateBlocked
	}
	return (q.Queue == "" || q.Queue == m.Queue) && (q.State == 0 || q.State == state) &&
		(q.Reason == 0 || q.Reason == m.Reason) && (q.Signature == "" || q.Signature == signature) && (!q.Retrying || !m.Dead && m.Lane == redrive.LaneRetry) &&
		(q.Kind == "" || q.Kind == m.Kind) && (q.Key == "" || q.Key == m.Key) &&
		(!q.Edited || m.Original != nil) && (q.Plan == "" || q.Plan == m.Plan) && (q.NotPlan == "" || q.NotPlan != m.Plan) &&
		(q.Since.IsZero() || !at.Before(q.Since)) && (q.Until.IsZero() || !at.After(q.Until))
}

// changeWaiting changes a waiting or blocked message.
func (w *Work) changeWaiting(ctx context.Context, m *Message, c *driver.Change) error {
	switch c.Action {
	case driver.ActDrop:
		w.Count(m.Queue, AccountDropped, 1)
		w.result(&m.Message, redrive.OutcomeDrop, c.Reason, nil)
		w.RemoveWaiting(m)
		w.LeaveLine(m)
		w.Note(m, Fate{redrive.OutcomeDrop, c.Reason, true})
	case driver.ActKill:
		w.kill(m, c)
	case driver.ActEdit:
		m.belong(c.Plan)
		return w.editWaiting(ctx, m, c.Edit)
	case driver.ActDueNow:
		later := m.Due.After(w.Clock)
		if !later && (c.Plan == "" || c.Plan == m.Plan) {
			break
		}
		w.RemoveWaiting(m)
		if later { // what is due already keeps its place
			m.Due, m.Delayed = w.Clock, false
		}
		m.belong(c.Plan)
		w.AddWaiting(m)
	case driver.ActRedrive, driver.ActArchive:
		return redrive.ErrState
	}
	return nil
}

// kill sets a waiting message aside.
func (w *Work) kill(m *Message, c *driver.Change) {
	reason := c.Reason
	if reason == 0 {
		reason = redrive.ReasonManual
	}
	f := &redrive.Failure{At: w.Clock, Reason: reason, Types: []string{"redrive.killed"}, Message: c.Note}
	f.Clean()
	if c.Note != "" {
		m.RecordFailure(f, false)
	}
	if latest := m.LatestFailure(); latest != nil {
		m.Signature = latest.Signature
	}
	w.result(&m.Message, redrive.OutcomeDead, reason, f)
	w.RemoveWaiting(m)
	m.Reason, m.Died, m.Due = reason, w.Clock, w.Clock
	w.AddDead(m)
}

// result has the result of a message that ended published, if it asks for one.
func (w *Work) result(m *redrive.Message, o redrive.Outcome, reason redrive.Reason, f *redrive.Failure) {
	r, ok := driver.ResultMessage(m, o, reason, f, nil)
	if ok && r.Validate() == nil { // a name that is no queue's has nobody who waits for it
		w.Results = append(w.Results, NewItem(&r, w.Masks, new(error)))
	}
}

// editWaiting edits a waiting message. Under another key it lines up at the end.
func (w *Work) editWaiting(ctx context.Context, m *Message, e *redrive.Edit) error {
	was := m.Message
	w.RemoveWaiting(m)
	m.KeepOriginal(&was, m.Sum)
	if e.Key != nil && *e.Key != was.Key {
		w.LeaveLine(m)
		m.edit(e)
		if err := w.EnterLine(ctx, m); err != nil {
			return err
		}
	} else {
		m.edit(e)
	}
	w.AddWaiting(m)
	return nil
}

// changeDead changes a dead letter, and returns where it is now if that changed.
func (w *Work) changeDead(ctx context.Context, m *Message, c *driver.Change) (now redrive.Ref, err error) {
	switch c.Action {
	case driver.ActRedrive:
		if err := c.CheckRedrive(&m.Message, m.Reason); err != nil {
			return now, err
		}
		return w.redrive(ctx, m, c, w.Clock)
	case driver.ActDrop:
		w.Count(m.Queue, AccountDropped, 1)
		w.Exhume(m, redrive.OutcomeDrop, c.Reason)
	case driver.ActArchive:
		w.Count(m.Queue, AccountArchived, 1)
		w.Exhume(m, redrive.OutcomeDead, m.Reason)
	case driver.ActEdit:
		w.rebury(m, func() { w.editDead(m, c.Edit); m.belong(c.Plan) })
	case driver.ActKill, driver.ActDueNow:
		return now, redrive.ErrState
	}
	return now, nil
}
