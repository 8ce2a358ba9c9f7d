package mysql

import (
	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// batch gathers what settlements of waiting messages change: those that are alike go by
// one statement.
type batch struct {
	work   *work
	alike  map[change][]int64
	order  []change
	single []step
}

// change is a settlement without a failure.
type change struct {
	outcome redrive.Outcome
	after   int64
	reason  redrive.Reason
	letsGo  bool
}

// unknown names the queue whose settings matter for a settlement.
func (b *batch) unknown(h *holding, st *driver.Settlement) []string {
	if h.turn > 0 && st.Outcome == redrive.OutcomeDead {
		return []string{h.Queue}
	}
	return nil
}

// settle notes what becomes of one message.
func (b *batch) settle(h *holding, st *driver.Settlement) {
	w := b.work
	c := change{outcome: st.Outcome, after: sqlstore.Micros(st.After)}
	lane := sqlstore.Account(h.lane)
	leaves := st.Outcome != redrive.OutcomeRetry && st.Outcome != redrive.OutcomeRelease
	switch st.Outcome {
	case redrive.OutcomeDone:
		c.after = 0
		w.Count(h.Queue, sqlstore.AccountDone, 1)
	case redrive.OutcomeDrop:
		c.after = 0
		w.Count(h.Queue, sqlstore.AccountDropped, 1)
	case redrive.OutcomeDead:
		c.after, c.reason, c.letsGo = 0, st.Reason, h.turn > 0 && w.Settings[h.Queue].DeadRelease
		leaves = c.letsGo
		w.Count(h.Queue, sqlstore.DeadAccount(st.Reason), 1)
		if st.Failure != nil { // else the row knows of what
			w.CountDeath(sqlstore.Cause{Queue: h.Queue, Reason: st.Reason, Signature: string(cut(st.Failure.Signature))}, w.Clock)
		}
	case redrive.OutcomeRepeat:
		w.Count(h.Queue, sqlstore.AccountDone, 1)
		w.Count(h.Queue, sqlstore.AccountRepeated, 1)
		w.Count(h.Queue, lane, -1)
		w.Count(h.Queue, sqlstore.AccountFresh, 1)
	case redrive.OutcomeRetry:
		w.Count(h.Queue, lane, -1)
		w.Count(h.Queue, sqlstore.AccountRetry, 1)
	case redrive.OutcomeRelease:
	}
	if ends := c.outcome != redrive.OutcomeRepeat && c.outcome != redrive.OutcomeRetry && c.outcome != redrive.OutcomeRelease; ends {
		w.Count(h.Queue, lane, -1)
		w.Count(h.Queue, sqlstore.AccountBytes, -int64(h.size))
		w.Gone = append(w.Gone, sqlstore.Gone{Ref: h.Ref, Seq: h.seq})
		if h.chosen {
			f := sqlstore.Fate{Outcome: c.outcome, Ended: c.outcome != redrive.OutcomeDead}
			if c.outcome != redrive.OutcomeDone {
				f.Reason = st.Reason
			}
			w.Memories = append(w.Memories, sqlstore.Memory{Ref: h.Ref, Fate: f})
		}
	}
	if h.turn > 0 && leaves {
		w.Leavers = append(w.Leavers, sqlstore.Leaving{LineKey: sqlstore.LineKey{Queue: h.Queue, Key: h.key}, ID: h.ID, Back: c.outcome == redrive.OutcomeRepeat})
	}
	b.add(h.seq, c, st.Failure)
}

// add notes the statement that a change takes.
func (b *batch) add(seq int64, c change, f *redrive.Failure) {
	switch c.outcome {
	case redrive.OutcomeDone, redrive.OutcomeDrop:
		return // the row goes with all that go
	case redrive.OutcomeRepeat:
		f = nil
	}
	if f != nil {
		b.single = append(b.single, b.failed(seq, c, f))
		return
	}
	if b.alike == nil {
		b.alike = make(map[change][]int64)
	}
	if b.alike[c] == nil {
		b.order = append(b.order, c)
	}
	b.alike[c] = append(b.alike[c], seq)
}

// failed is the statement of a settlement with a failure.
func (b *batch) failed(seq int64, c change, f *redrive.Failure) step {
	sql, text := b.work.sql, driver.EncodeFailure(f)
	one := numbers([]int64{seq})
	if c.outcome == redrive.OutcomeDead {
		return step{sql: sql.with("bury_failed", ":seqs", one), args: []any{c.letsGo, int(c.reason), cut(f.Signature), text, text}}
	}
	retried := c.outcome == redrive.OutcomeRetry
	return step{sql: sql.with("failed", ":seqs", one), args: []any{retried, c.after, c.after > 0, retried, !retried, !retried, retried, text, text}}
}

// steps returns all statements. What is copied to the dead letters is removed
// afterwards, with what else goes.
func (b *batch) steps() []step {
	steps := b.single
	sql := b.work.sql
	for _, c := range b.order {
		retried := c.outcome == redrive.OutcomeRetry
		for _, seqs := range chunks(b.alike[c]) {
			list := numbers(seqs)
			switch c.outcome {
			case redrive.OutcomeDead:
				steps = append(steps, step{sql: sql.with("bury_causes", ":seqs", list), args: []any{int(c.reason)}},
					step{sql: sql.with("bury", ":seqs", list), args: []any{c.letsGo, int(c.reason)}})
			case redrive.OutcomeRepeat:
				steps = append(steps, step{sql: sql.with("repeat", ":seqs", list), args: []any{c.after, c.after > 0}})
			default:
				steps = append(steps, step{sql: sql.with("back", ":seqs", list), args: []any{retried, c.after, c.after > 0, retried, !retried, !retried}})
			}
		}
	}
	return steps
}
