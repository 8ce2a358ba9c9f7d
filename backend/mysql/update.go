package mysql

import (
	"context"
	"errors"
	"time"

	"github.com/redrive/redrive"
)

// Update implements redrive.Store. What a query selects is looked up first, and checked
// again under the lock of its change.
func (s *Store) Update(ctx context.Context, sel redrive.Selection, c redrive.Change, limit int) ([]redrive.Updated, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if limit <= 0 {
		limit = redrive.MaxPage
	}
	if sel.Refs != nil || sel.Query == nil {
		u := &update{refs: sel.Refs[:min(limit, len(sel.Refs))], named: true, change: c}
		if q := sel.Query; q != nil {
			u.query = &redrive.Query{Queue: q.Queue, State: q.State, Since: q.Since, Until: q.Until, Plan: q.Plan, NotPlan: q.NotPlan}
		}
		return s.update(ctx, u)
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
			result, err := s.update(ctx, &update{refs: refs, query: &q, change: c})
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

// update is one step of an Update.
type update struct {
	refs   []redrive.Ref
	query  *redrive.Query // what each must match, if not nil
	named  bool           // the caller named the messages
	change redrive.Change
	result []redrive.Updated
}

func (s *Store) update(ctx context.Context, u *update) ([]redrive.Updated, error) {
	if len(u.refs) == 0 {
		return nil, nil
	}
	ctx, cancel := s.detach(ctx)
	defer cancel()
	err := s.inTx(ctx, "update", func(tx db) error { return u.run(ctx, &work{db: tx, sql: s.sql}) })
	if err != nil {
		return nil, fault("update", err)
	}
	var queues []string
	for i := range u.result {
		queues = append(queues, u.result[i].Queue)
		if u.result[i].New.Queue != "" {
			queues = append(queues, u.result[i].New.Queue)
		}
	}
	s.changed(queues...)
	return u.result, nil
}

func (u *update) run(ctx context.Context, w *work) error {
	u.result = nil
	if err := w.lockKeysOf(ctx, u.refs); err != nil {
		return err
	}
	found, err := w.lock(ctx, u.refs)
	if err != nil {
		return err
	}
	if _, err := w.now(ctx); err != nil {
		return err
	}
	for _, m := range found {
		if err := w.know(ctx, m.Queue); err != nil {
			return err
		}
	}
	seen := make(map[redrive.Ref]bool)
	for _, ref := range u.refs {
		m := found[ref]
		if seen[ref] {
			m = nil // it was changed just now, and is no longer what was read
		}
		seen[ref] = true
		one := redrive.Updated{Ref: ref}
		var skipped bool
		skipped, one.New, err = u.one(ctx, w, m)
		switch {
		case skipped:
			continue
		case err != nil && !isOutcome(err):
			return err
		}
		one.Err = err
		u.result = append(u.result, one)
	}
	return w.flush(ctx)
}

// isOutcome reports an error that is what became of one message, not a fault.
func isOutcome(err error) bool {
	for _, known := range []error{redrive.ErrState, redrive.ErrNotFound, redrive.ErrUncertain, redrive.ErrLoop, redrive.ErrDuplicate,
		redrive.ErrConflict, redrive.ErrInvalid} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// one changes one message. It skips what does not match the query any more.
func (u *update) one(ctx context.Context, w *work, m *message) (skipped bool, now redrive.Ref, err error) {
	switch {
	case m == nil:
		return !u.named, now, redrive.ErrNotFound
	case u.query != nil && !stillMatches(u.query, m, w.clock):
		return !u.named, now, redrive.ErrState
	case m.held(w.clock):
		return false, now, redrive.ErrState
	}
	m.lapse()
	if m.dead {
		now, err = w.changeDead(ctx, m, &u.change)
		return false, now, err
	}
	return false, now, w.changeWaiting(ctx, m, &u.change)
}

// stillMatches looks again at what may have changed since a page was read.
func stillMatches(q *redrive.Query, m *message, now time.Time) bool {
	at := m.PublishedAt
	if m.dead {
		at = m.died
	}
	state := redrive.StateWaiting
	switch {
	case m.dead:
		state = redrive.StateDead
	case m.held(now):
		state = redrive.StateLeased
	case m.class == classBlocked, m.class == classLeasedBlocked:
		state = redrive.StateBlocked
	}
	return (q.Queue == "" || q.Queue == m.Queue) && (q.State == 0 || q.State == state) &&
		(q.Reason == 0 || q.Reason == m.reason) && (q.Signature == "" || q.Signature == m.signature) &&
		(q.Kind == "" || q.Kind == m.Kind) && (q.Key == "" || q.Key == m.Key) &&
		(q.Plan == "" || q.Plan == m.Plan) && (q.NotPlan == "" || q.NotPlan != m.Plan) &&
		(q.Since.IsZero() || !at.Before(q.Since)) && (q.Until.IsZero() || !at.After(q.Until))
}

// changeWaiting changes a waiting or blocked message.
func (w *work) changeWaiting(ctx context.Context, m *message, c *redrive.Change) error {
	switch c.Action {
	case redrive.ActDrop:
		w.count(m.Queue, bookDropped, 1)
		w.result(&m.Message, redrive.OutcomeDrop, c.Reason, nil)
		w.removeWaiting(m)
		w.leaveLine(m)
		w.note(m, fate{redrive.OutcomeDrop, c.Reason, true})
	case redrive.ActKill:
		w.kill(m, c)
	case redrive.ActEdit:
		return w.editWaiting(ctx, m, c.Edit)
	case redrive.ActDueNow:
		if m.due.After(w.clock) {
			w.removeWaiting(m)
			m.due = w.clock
			w.addWaiting(m)
		}
	case redrive.ActRedrive, redrive.ActArchive:
		return redrive.ErrState
	}
	return nil
}

// kill sets a waiting message aside.
func (w *work) kill(m *message, c *redrive.Change) {
	reason := c.Reason
	if reason == 0 {
		reason = redrive.ReasonManual
	}
	f := &redrive.Failure{At: w.clock, Reason: reason, Types: []string{"redrive.killed"}, Message: c.Note}
	f.Clean()
	if c.Note != "" {
		m.recordFailure(f, false)
	}
	if latest := m.latestFailure(); latest != nil {
		m.signature = latest.Signature
	}
	w.result(&m.Message, redrive.OutcomeDead, reason, f)
	w.removeWaiting(m)
	m.reason, m.died, m.due = reason, w.clock, w.clock
	w.addDead(m)
}

// result has the result of a message that ended published, if it asks for one.
func (w *work) result(m *redrive.Message, o redrive.Outcome, reason redrive.Reason, f *redrive.Failure) {
	r, ok := redrive.ResultMessage(m, o, reason, f, nil)
	if ok && r.Validate() == nil { // a name that is no queue's has nobody who waits for it
		w.results = append(w.results, newItem(&r, new(error)))
	}
}

// editWaiting edits a waiting message. Under another key it lines up at the end.
func (w *work) editWaiting(ctx context.Context, m *message, e *redrive.Edit) error {
	was := m.Message
	w.removeWaiting(m)
	m.keepOriginal(&was)
	if e.Key != nil && *e.Key != was.Key {
		w.leaveLine(m)
		e.Apply(&m.Message)
		if err := w.enterLine(ctx, m); err != nil {
			return err
		}
	} else {
		e.Apply(&m.Message)
	}
	w.addWaiting(m)
	return nil
}

// changeDead changes a dead letter, and returns where it is now if that changed.
func (w *work) changeDead(ctx context.Context, m *message, c *redrive.Change) (now redrive.Ref, err error) {
	switch c.Action {
	case redrive.ActRedrive:
		switch {
		case m.reason == redrive.ReasonUncertain && !c.ConfirmUncertain:
			return now, redrive.ErrUncertain
		case c.MaxRedrives > 0 && m.Redrives >= c.MaxRedrives:
			return now, redrive.ErrLoop
		}
		return w.redrive(ctx, m, c, w.clock)
	case redrive.ActDrop:
		w.count(m.Queue, bookDropped, 1)
		w.exhume(m, redrive.OutcomeDrop, c.Reason)
	case redrive.ActArchive:
		w.count(m.Queue, bookArchived, 1)
		w.exhume(m, redrive.OutcomeDead, m.reason)
	case redrive.ActEdit:
		w.rebury(m, func() { w.editDead(m, c.Edit) })
	case redrive.ActKill, redrive.ActDueNow:
		return now, redrive.ErrState
	}
	return now, nil
}
