package sqlite

import (
	"fmt"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

var (
	countsUpdate = "UPDATE queue SET " + strings.Join(counterNames, " = ?, ") + " = ? WHERE queue = ?"
	queueSelect  = "SELECT queue, name, order_by_key, dead_release, remember, " + strings.Join(counterNames, ", ") + " FROM queue"
)

// recover reads what the store keeps in memory, raises the epoch, and makes
// suspects of the messages that were in flight when the last process ended.
func (s *Store) recover() error {
	if err := s.loadQueues(); err != nil {
		return err
	}
	last, err := s.w.value("SELECT coalesce(max(seq), 0) FROM message")
	if err != nil {
		return err
	}
	s.lastSeq = last
	if err := s.findAhead(); err != nil {
		return err
	}
	t := &tx{s: s, now: s.now(), durable: true}
	t.check(t.raiseEpoch())
	if t.failure == nil {
		t.check(t.readClaims())
	}
	return t.commit()
}

func (s *Store) loadQueues() error {
	st := s.w.stmt(queueSelect)
	for st.next() {
		q := s.addQueue(st.colText(1))
		q.id = st.colInt(0)
		scanQueue(st, q)
		q.state.next = [claimable]int64{} // unknown
		for lane := range driver.Lanes {
			if q.state.counts[lane] == 0 {
				q.state.next[lane] = dueNever
			}
		}
		if q.state.counts[countSuspects] == 0 {
			q.state.next[classSuspect] = dueNever
		}
		q.shared, q.number = q.state, q.id
		s.byID[q.id] = q
	}
	return st.done()
}

// scanQueue reads settings and counters from a row of queueSelect.
func scanQueue(st *stmt, q *queue) {
	q.settings = driver.QueueSettings{OrderByKey: st.colInt(2) != 0, DeadRelease: st.colInt(3) != 0, Remember: time.Duration(st.colInt(4))}
	for c := range q.state.counts {
		q.state.counts[c] = st.colInt(5 + int32(c))
	}
}

// raiseEpoch makes every token of former processes a thing of the past.
func (t *tx) raiseEpoch() error {
	st := t.write("UPDATE meta SET value = value + 1 WHERE name = 'epoch' RETURNING value")
	var epoch int64
	for st.next() {
		epoch = st.colInt(0)
	}
	if err := st.done(); err != nil {
		return err
	}
	if epoch <= 0 || epoch >= 1<<31 {
		return fmt.Errorf("%w: epoch %d", redrive.ErrCorrupt, epoch)
	}
	t.s.lastToken = uint64(epoch) << 32
	return nil
}

// readClaims makes suspects of the messages in the claim records that were not settled: of
// those whose row carries an older token than the record gave them.
func (t *tx) readClaims() error {
	type record struct {
		token, queue int64
		isolated     bool
		seqs         []byte
	}
	var records []record
	st := t.read("SELECT token, queue, isolated, seqs FROM claim ORDER BY token")
	for st.next() {
		records = append(records, record{st.colInt(0), st.colInt(1), st.colInt(2) != 0, st.colBytes(3)})
	}
	if err := st.done(); err != nil || len(records) == 0 {
		return err
	}
	// Those that were isolated come last, so that others go first.
	for _, isolated := range []bool{false, true} {
		for _, m := range records {
			if m.isolated != isolated {
				continue
			}
			seqs, err := decodeSeqs(m.seqs)
			if err != nil {
				return err
			}
			q := t.s.byID[m.queue]
			if q == nil {
				return fmt.Errorf("%w: a claim record names no queue", redrive.ErrCorrupt)
			}
			for i, seq := range seqs {
				if err := t.suspect(q, seq, m.token+int64(i), isolated); err != nil {
					return err
				}
			}
		}
	}
	return t.write("DELETE FROM claim").run()
}

// suspect counts the attempt of a message that was in flight when the process died.
func (t *tx) suspect(q *queue, seq, token int64, isolated bool) error {
	r, ok, err := t.waitingRow(q, seq)
	if err != nil || !ok || r.token >= token {
		return err
	}
	next := r
	next.attempts++
	if isolated {
		next.crashes++
	}
	next.flags |= flagSuspect
	next.token = token
	next.setDue(t.now, t.now)
	if isolated {
		next.due++ // behind the others of this start
	}
	if next.class != classBlocked {
		next.class = classSuspect
	}
	return t.moveWaiting(q, &r, &next)
}
