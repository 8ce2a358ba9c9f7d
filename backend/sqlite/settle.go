package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// settleOp carries out settlements.
type settleOp struct {
	op
	items  []driver.Settlement
	errs   []error // of validation, kept over a repetition
	result []error
}

// Settle implements driver.Source. It returns after the results are synced.
func (s *Store) Settle(ctx context.Context, items []driver.Settlement) []error {
	if err := ctx.Err(); err != nil {
		return fillErrors(len(items), err)
	}
	o := &settleOp{items: items, errs: make([]error, len(items))}
	ok, bytes, grows := 0, 0, false
	for i := range items {
		if o.errs[i] = items[i].Validate(); o.errs[i] != nil {
			continue
		}
		ok++
		for j := range items[i].Emit {
			bytes += items[i].Emit[j].Size() //nolint:gosec // it ranges over this
			grows = true
		}
	}
	if ok == 0 {
		return o.errs
	}
	o.op = newOp(len(items), bytes, true, grows)
	took, err := s.submit(lineDeliver, o, ctx.Done())
	if err != nil {
		return fillErrors(len(items), err)
	}
	if !took {
		return fillErrors(len(items), ctx.Err())
	}
	if driver.FirstError(o.result) == nil {
		return nil
	}
	return o.result
}

func (o *settleOp) run(t *tx) {
	o.result = append(o.result[:0], o.errs...)
	for i := range o.items {
		if o.result[i] == nil {
			o.result[i] = t.item(func() error { return t.settle(&o.items[i]) })
		}
	}
}

func (o *settleOp) end(err error) {
	if err == nil {
		return
	}
	for i := range o.items {
		if o.errs[i] == nil {
			o.errs[i] = err
		}
	}
	o.result = o.errs
}

// settle carries out one settlement.
func (t *tx) settle(st *driver.Settlement) error {
	l := t.s.leases.byToken[st.Receipt.Token]
	if l == nil || l.id != st.Receipt.ID || l.queue.name != st.Receipt.Queue {
		var err error
		if l, err = t.former(&st.Receipt); err != nil {
			return err
		}
	}
	for i := range st.Emit {
		m := st.Emit[i]
		q, err := t.queue(m.Queue)
		if err != nil {
			return err
		}
		if err := t.publish(q, &m); err != nil && err != redrive.ErrDuplicate { //nolint:errorlint // publish returns it bare
			return fmt.Errorf("emit: %w", err)
		}
	}
	if l.dead {
		return t.settleDead(l, st)
	}
	err := t.settleWaiting(l, st)
	if err != nil {
		return err
	}
	if !l.lapsed {
		err = t.settledOne(l)
	}
	if t.s.leases.byToken[l.token] == l {
		t.endLease(l, false)
	}
	return err
}

// former returns the lease of a process that is gone, as one that ran out: nobody
// has claimed the message since if its row still carries the token of the claim record.
func (t *tx) former(r *redrive.Receipt) (*lease, error) {
	q := t.s.queueNamed(r.Queue)
	if q == nil || q.id == 0 {
		return nil, redrive.ErrNotFound
	}
	seq, err := t.lookup(q, r.ID)
	if err != nil || seq == 0 {
		return nil, orNotFound(err)
	}
	at, waits, err := t.waitingRow(q, seq)
	if err != nil {
		return nil, err
	}
	if !waits || t.s.leases.bySeq[seq] != nil || at.flags&flagSuspect == 0 || at.token == 0 || uint64(at.token) != r.Token { //nolint:gosec // a token
		return nil, redrive.ErrLeaseLost
	}
	m, err := t.body(q, &at)
	if err != nil {
		return nil, err
	}
	return &lease{row: at, queue: q, id: m.ID, key: m.Key, size: int64(m.Size()), token: r.Token, lapsed: true, slot: -1}, nil
}

// lostOrGone is the result for a token that holds nothing.
func (t *tx) lostOrGone(ref redrive.Ref) error {
	q := t.s.queueNamed(ref.Queue)
	if q == nil || q.id == 0 {
		return redrive.ErrNotFound
	}
	seq, err := t.lookup(q, ref.ID)
	if err != nil {
		return err
	}
	if seq == 0 {
		return redrive.ErrNotFound
	}
	return redrive.ErrLeaseLost
}

func (t *tx) settleWaiting(l *lease, st *driver.Settlement) error {
	q := l.queue
	switch st.Outcome {
	case redrive.OutcomeDone:
		t.count(q, countDone, 1)
		return t.remove(l, st.Outcome, 0)
	case redrive.OutcomeDrop:
		t.count(q, countDropped, 1)
		return t.remove(l, st.Outcome, st.Reason)
	case redrive.OutcomeDead:
		return t.die(l, st)
	case redrive.OutcomeRepeat:
		return t.repeat(l, st.After)
	case redrive.OutcomeRetry, redrive.OutcomeRelease:
	}
	next := l.settled()
	next.setDue(t.now, later(t.now, st.After))
	if st.Outcome == redrive.OutcomeRetry {
		next.flags &^= flagSuspect
		next.lane = int64(redrive.LaneRetry)
	} else {
		next.attempts-- // given back; and what was suspected of it stays
		if next.flags&flagSuspect != 0 {
			next.token = int64(t.s.newTokens(1)) //nolint:gosec // see settled; or it would settle again, as one from before a crash
		}
	}
	if err := t.recordFailure(&next, st.Failure, st.Outcome == redrive.OutcomeRetry); err != nil {
		return err
	}
	if next.class != classBlocked {
		next.class = next.openClass()
	}
	return t.moveWaiting(q, &l.row, &next)
}

// settled is the row after the claim, with its attempt counted. What a lease that
// ran out has changed is taken back: the process lives after all.
func (l *lease) settled() row {
	r := l.row
	r.token = int64(l.token) //nolint:gosec // epochs are far below 2^31
	if !l.lapsed {
		r.attempts++
		return r
	}
	if l.claim != nil && l.claim.isolated {
		r.crashes--
	}
	r.flags = r.flags&^flagSuspect | l.suspect
	return r
}

// remove ends a message.
func (t *tx) remove(l *lease, o redrive.Outcome, reason redrive.Reason) error {
	if err := t.deleteWaiting(l.queue, &l.row, l.size); err != nil {
		return err
	}
	if err := t.leaveKey(l.queue, l.key, l.turn, l.seq); err != nil {
		return err
	}
	if err := t.ended(l.queue, l.id, l.flags, o, reason); err != nil {
		return err
	}
	return t.deleteMessage(l.seq, l.flags)
}

// deleteMessage removes what a message carried and its failure history.
func (t *tx) deleteMessage(seq, flags int64) error {
	if err := t.deleteHistory(seq, flags); err != nil {
		return err
	}
	return t.write(`DELETE FROM message WHERE seq = ?`).int(seq).run()
}

// deleteHistory removes the failures of a message and its original.
func (t *tx) deleteHistory(seq, flags int64) error {
	if flags&(flagFirst|flagLast) != 0 {
		if err := t.write(`DELETE FROM failure WHERE slot BETWEEN ? AND ?`).int(2 * seq).int(2*seq + 1).run(); err != nil {
			return err
		}
	}
	if flags&flagEdited == 0 {
		return nil
	}
	return t.write(`DELETE FROM original WHERE seq = ?`).int(seq).run()
}

// recordFailure keeps a failure as the first, or else as the last.
func (t *tx) recordFailure(r *row, f *redrive.Failure, counted bool) error {
	if f == nil {
		return nil
	}
	if counted {
		r.failures++
	}
	slot, flag := 2*r.seq, flagFirst
	if r.flags&flagFirst != 0 {
		slot, flag = slot+1, flagLast
	}
	r.flags |= flag
	return t.write(`INSERT OR REPLACE INTO failure (slot, json) VALUES (?, ?)`).int(slot).blob(driver.EncodeFailure(f)).run()
}

// die sets a message aside.
func (t *tx) die(l *lease, st *driver.Settlement) error {
	d := deadRow{row: l.settled(), died: t.now, due: t.now, reason: st.Reason}
	d.flags &^= flagSuspect
	if err := t.recordFailure(&d.row, st.Failure, true); err != nil {
		return err
	}
	if st.Failure != nil {
		d.signature = st.Failure.Signature
	} else if f, err := readFailure(t.read, l.seq, l.flags); err != nil {
		return err
	} else if f != nil {
		d.signature = f.Signature
	}
	if err := t.deleteWaiting(l.queue, &l.row, l.size); err != nil {
		return err
	}
	return t.bury(l.queue, &d, l.id, l.key)
}

// readFailure returns the newest failure of a message, or nil.
func readFailure(read func(string) *stmt, seq, flags int64) (*redrive.Failure, error) {
	if flags&(flagFirst|flagLast) == 0 {
		return nil, nil
	}
	s := read(`SELECT json FROM failure WHERE slot BETWEEN ? AND ? ORDER BY slot DESC LIMIT 1`).int(2 * seq).int(2*seq + 1)
	var f *redrive.Failure
	if s.next() {
		f = driver.DecodeFailure(s.colBytes(0))
	}
	return f, s.done()
}

// repeat ends a generation as done and makes the message due again.
func (t *tx) repeat(l *lease, after time.Duration) error {
	q := l.queue
	t.count(q, countDone, 1)
	t.count(q, countRepeated, 1)
	next := l.settled()
	next.born = t.now
	next.lane = int64(redrive.LaneFresh)
	next.attempts, next.failures, next.earlier, next.crashes = 0, 0, 0, 0
	if err := t.deleteHistory(l.seq, l.flags); err != nil {
		return err
	}
	next.flags &= flagChosen
	next.setDue(t.now, later(t.now, after))
	if err := t.write(`UPDATE message SET generation = generation + 1, published = ? WHERE seq = ?`).int(t.now).int(l.seq).run(); err != nil {
		return err
	}
	if err := t.became(q, l.id, l.flags, 0, 0); err != nil {
		return err
	}
	if l.turn == 0 {
		next.class = next.openClass()
		return t.moveWaiting(q, &l.row, &next)
	}
	// The key's next message has its turn before this one has another.
	if err := t.deleteWaiting(q, &l.row, 0); err != nil {
		return err
	}
	if err := t.leaveKey(q, l.key, l.turn, l.seq); err != nil {
		return err
	}
	return t.enterAgain(q, &next, l.key)
}

// enterAgain stores the row of a message that lines up in its key anew.
func (t *tx) enterAgain(q *queue, r *row, key string) error {
	turn, head, err := t.enterKey(q, key, r.seq)
	if err != nil {
		return err
	}
	r.turn, r.class = turn, r.openClass()
	if !head {
		r.class = classBlocked
	}
	return t.insertWaiting(q, r, 0)
}
