package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// SettleDead settles claims of dead letters and returns those that did not hold.
func (w *Work) SettleDead(ctx context.Context, items []driver.Settlement, which []int) (lost []int, err error) {
	refs := make([]redrive.Ref, len(which))
	for j, i := range which {
		refs[j] = items[i].Receipt.Ref
	}
	found, err := w.Lock(ctx, refs)
	if err != nil {
		return nil, err
	}
	now, err := w.Now(ctx)
	if err != nil {
		return nil, err
	}
	for j, i := range which {
		st := &items[i]
		m := found[refs[j]]
		if m == nil || !m.Dead || !m.Leased || uint64(m.Token) != st.Receipt.Token || m.Nonce != w.Rows.Nonce(st.Receipt.Position) { //nolint:gosec // counts from 0
			lost = append(lost, i)
			continue
		}
		if err := w.Know(ctx, m.Queue); err != nil {
			return nil, err
		}
		if err := w.settleOneDead(ctx, m, st, now); err != nil {
			if IsRepeated(err) || errors.Is(err, redrive.ErrInvalid) {
				return nil, &RefusedError{Err: err}
			}
			return nil, err
		}
	}
	return lost, w.Rows.Flush(ctx)
}

func (w *Work) settleOneDead(ctx context.Context, m *Message, st *driver.Settlement, now time.Time) error {
	due := now.Add(time.Duration(Micros(st.After)) * time.Microsecond)
	switch st.Outcome {
	case redrive.OutcomeDone:
		w.Count(m.Queue, AccountDone, 1)
		w.Exhume(m, st.Outcome, st.Reason)
		return nil
	case redrive.OutcomeDrop:
		w.Count(m.Queue, AccountDropped, 1)
		w.Exhume(m, st.Outcome, st.Reason)
		return nil
	case redrive.OutcomeRepeat:
		_, err := w.redrive(ctx, m, &driver.Change{Action: driver.ActRedrive, Edit: st.Edit}, due)
		return err
	case redrive.OutcomeDead:
		due = now
		w.rebury(m, func() { w.editDead(m, st.Edit) })
	case redrive.OutcomeRetry, redrive.OutcomeRelease:
		w.rebury(m, func() {})
	}
	m.Due = due
	if st.Outcome != redrive.OutcomeRelease {
		m.Attempts++
		w.fail(m, st.Failure)
	}
	return nil
}

// fail records a failure of a dead letter that stays, whose cause it is then.
func (w *Work) fail(m *Message, f *redrive.Failure) {
	m.RecordFailure(f, false)
	if f != nil {
		m.Text = w.Texts.Of(w.Masks, m.Queue, f)
	}
	if f != nil && f.Signature != m.Signature {
		w.countCause(CauseBucket{Cause: m.cause()}, -1, 0)
		m.Signature = f.Signature
		w.countCause(CauseBucket{Cause: m.cause()}, 1, 0)
	}
}

// rebury writes a dead letter anew after a change that leaves it dead.
func (w *Work) rebury(m *Message, change func()) {
	w.GoneDead = append(w.GoneDead, m.Ref())
	change()
	m.Leased, m.Instance = false, ""
	m.Bytes = m.Size()
	w.Bury = append(w.Bury, m)
}

// Exhume removes a dead letter for good.
func (w *Work) Exhume(m *Message, o redrive.Outcome, reason redrive.Reason) {
	w.RemoveDead(m)
	w.LeaveLine(m)
	w.Note(m, Fate{o, reason, true})
}

// editDead edits a dead letter. Under a new key it does not stand in the way of others.
func (w *Work) editDead(m *Message, e *redrive.Edit) {
	if e == nil {
		return
	}
	was := m.Message
	m.KeepOriginal(&was, m.Sum)
	if e.Key != nil && *e.Key != was.Key {
		w.LeaveLine(m)
	}
	m.edit(e)
}

// redrive gives a dead letter its next generation, due then. It returns where the
// message is now if it moved.
func (w *Work) redrive(ctx context.Context, m *Message, c *driver.Change, due time.Time) (now redrive.Ref, err error) {
	clock, err := w.Now(ctx)
	if err != nil {
		return now, err
	}
	if c.NewID || c.To != "" && c.To != m.Queue {
		return w.redriveAway(ctx, m, c, due)
	}
	w.RemoveDead(m)
	w.editDead(m, c.Edit)
	m.confirm(c)
	w.Note(m, Fate{})
	m.NextGeneration(c, clock, due)
	if m.Turn == 0 { // else it kept its place in its key
		if err := w.EnterLine(ctx, m); err != nil {
			return now, err
		}
	}
	w.AddWaiting(m)
	return now, nil
}

// redriveAway redrives into another queue or under another id: the dead letter goes
// here, and a message of the next generation comes there, with its failure history.
func (w *Work) redriveAway(ctx context.Context, m *Message, c *driver.Change, due time.Time) (now redrive.Ref, err error) {
	from := m.Ref()
	next := *m
	if c.Edit != nil {
		next.KeepOriginal(&m.Message, m.Sum)
	}
	next.edit(c.Edit)
	next.confirm(c)
	if c.To != "" && c.To != m.Queue {
		next.Queue, next.Origin = c.To, from.String()
	}
	if c.NewID {
		next.ID, next.EditedFrom, next.Chosen = redrive.NewID(), from.String(), false
	} else if err := w.reserve(ctx, &next); err != nil {
		return now, err
	}
	if err := w.Know(ctx, next.Queue); err != nil {
		return now, err
	}
	w.Count(m.Queue, AccountMovedOut, 1)
	w.Count(next.Queue, AccountMovedIn, 1)
	next.NextGeneration(c, w.Clock, due)
	next.Seq, next.Token, next.Nonce = 0, 0, 0
	if err := w.EnterLine(ctx, &next); err != nil {
		return now, err
	}
	w.Exhume(m, 0, 0)
	w.AddWaiting(&next)
	return next.Ref(), nil
}
