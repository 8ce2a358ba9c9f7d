package mysql

import (
	"context"
	"errors"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/sqlstore"
)

// settleDead settles claims of dead letters and returns those that did not hold.
func (w *work) settleDead(ctx context.Context, items []redrive.Settlement, which []int) (lost []int, err error) {
	refs := make([]redrive.Ref, len(which))
	for j, i := range which {
		refs[j] = items[i].Receipt.Ref
	}
	found, err := w.lock(ctx, refs)
	if err != nil {
		return nil, err
	}
	now, err := w.now(ctx)
	if err != nil {
		return nil, err
	}
	for j, i := range which {
		st := &items[i]
		m := found[refs[j]]
		p := parsePlace(st.Receipt.Position)
		if m == nil || !m.dead || !m.leased || uint64(m.token) != st.Receipt.Token || m.nonce != p.nonce { //nolint:gosec // counts from 0
			lost = append(lost, i)
			continue
		}
		if err := w.know(ctx, m.Queue); err != nil {
			return nil, err
		}
		if err := w.settleOneDead(ctx, m, st, now); err != nil {
			if isRepeated(err) || errors.Is(err, redrive.ErrInvalid) {
				return nil, &sqlstore.RefusedError{Err: err}
			}
			return nil, err
		}
	}
	return lost, nil
}

func (w *work) settleOneDead(ctx context.Context, m *message, st *redrive.Settlement, now time.Time) error {
	due := now.Add(time.Duration(span(st.After)) * time.Microsecond)
	switch st.Outcome {
	case redrive.OutcomeDone:
		w.count(m.Queue, bookDone, 1)
		w.exhume(m, st.Outcome, st.Reason)
		return nil
	case redrive.OutcomeDrop:
		w.count(m.Queue, bookDropped, 1)
		w.exhume(m, st.Outcome, st.Reason)
		return nil
	case redrive.OutcomeRepeat:
		_, err := w.redrive(ctx, m, &redrive.Change{Action: redrive.ActRedrive, Edit: st.Edit}, due)
		return err
	case redrive.OutcomeDead:
		due = now
		w.rebury(m, func() { w.editDead(m, st.Edit) })
	case redrive.OutcomeRetry, redrive.OutcomeRelease:
		w.rebury(m, func() {})
	}
	m.due = due
	if st.Outcome != redrive.OutcomeRelease {
		m.attempts++
		m.recordFailure(st.Failure, false)
	}
	return nil
}

// rebury writes a dead letter anew after a change that leaves it dead.
func (w *work) rebury(m *message, change func()) {
	w.goneDead = append(w.goneDead, m.Ref())
	change()
	m.leased, m.instance = false, ""
	m.size = m.Size()
	w.bury = append(w.bury, m)
}

// exhume removes a dead letter for good.
func (w *work) exhume(m *message, o redrive.Outcome, reason redrive.Reason) {
	w.removeDead(m)
	w.leaveLine(m)
	w.note(m, fate{o, reason, true})
}

// editDead edits a dead letter. Under a new key it does not stand in the way of others.
func (w *work) editDead(m *message, e *redrive.Edit) {
	if e == nil {
		return
	}
	was := m.Message
	m.keepOriginal(&was)
	if e.Key != nil && *e.Key != was.Key {
		w.leaveLine(m)
	}
	e.Apply(&m.Message)
}

// redrive gives a dead letter its next generation, due then. It returns where the
// message is now if it moved.
func (w *work) redrive(ctx context.Context, m *message, c *redrive.Change, due time.Time) (now redrive.Ref, err error) {
	clock, err := w.now(ctx)
	if err != nil {
		return now, err
	}
	if c.NewID || c.To != "" && c.To != m.Queue {
		return w.redriveAway(ctx, m, c, due)
	}
	w.removeDead(m)
	w.editDead(m, c.Edit)
	w.note(m, fate{})
	m.nextGeneration(c, clock, due)
	if m.turn == 0 { // else it kept its place in its key
		if err := w.enterLine(ctx, m); err != nil {
			return now, err
		}
	}
	w.addWaiting(m)
	return now, nil
}

// nextGeneration makes a dead letter a message of the redrive lane.
func (m *message) nextGeneration(c *redrive.Change, now, due time.Time) {
	m.Generation++
	m.Redrives++
	if c.Plan != "" {
		m.Plan = c.Plan
	}
	if !m.ExpiresAt.After(now) {
		m.ExpiresAt = time.Time{} // it was redriven although it had expired
	}
	m.due, m.lane = due, redrive.LaneRedrive
	m.earlier += m.failures
	m.attempts, m.failures, m.crashes, m.suspect = 0, 0, 0, false
}

// redriveAway redrives into another queue or under another id: the dead letter goes
// here, and a message of the next generation comes there, with its story.
func (w *work) redriveAway(ctx context.Context, m *message, c *redrive.Change, due time.Time) (now redrive.Ref, err error) {
	from := m.Ref()
	next := *m
	c.Edit.Apply(&next.Message)
	if c.To != "" && c.To != m.Queue {
		next.Queue, next.Origin = c.To, from.String()
	}
	if c.NewID {
		next.ID, next.EditedFrom, next.chosen = redrive.NewID(), from.String(), false
	} else if err := w.reserve(ctx, &next); err != nil {
		return now, err
	}
	if err := w.know(ctx, next.Queue); err != nil {
		return now, err
	}
	if c.Edit != nil {
		next.keepOriginal(&m.Message)
	}
	w.count(m.Queue, bookMovedOut, 1)
	w.count(next.Queue, bookMovedIn, 1)
	next.nextGeneration(c, w.clock, due)
	next.seq, next.token, next.nonce = 0, 0, 0
	if err := w.enterLine(ctx, &next); err != nil {
		return now, err
	}
	w.exhume(m, 0, 0)
	w.addWaiting(&next)
	return next.Ref(), nil
}
