package redisstream

import (
	"context"
	"fmt"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// verifyPage is how many messages one script of Verify looks at.
const verifyPage = 50

// Verify implements driver.Store. The ledger, numbers of messages and counters are read in
// one step; where each message stands, and whether it fits its checksum, is looked at in
// pages.
func (s *Store) Verify(ctx context.Context, queues ...string) ([]driver.Audit, error) {
	if len(queues) == 0 {
		var err error
		if queues, err = s.queueNames(ctx); err != nil {
			return nil, err
		}
	}
	audits := make([]driver.Audit, len(queues))
	for i, name := range queues {
		audits[i].Queue = name
		var bad unsound
		for _, q := range s.everywhere(name) {
			t, err := s.tally(ctx, q)
			if err != nil {
				return nil, err
			}
			a := t.audit(name)
			for _, section := range []string{"s", "w", "d"} {
				if err := s.verifySection(ctx, q, section, &a, &bad); err != nil {
					return nil, err
				}
			}
			mergeAudit(&audits[i], &a)
		}
		audits[i].Corrupt = bad.known
		if bad.n > 0 {
			audits[i].Problems = append(audits[i].Problems, fmt.Sprintf("%d messages do not match their checksum, for instance %s", bad.n, bad.example))
		}
	}
	return audits, nil
}

func (t *tally) audit(name string) driver.Audit {
	a := driver.Audit{Queue: name, Ledger: t.ledger(), Waiting: t.entries + t.indexed, Dead: t.dead}
	problem := func(format string, args ...any) { a.Problems = append(a.Problems, fmt.Sprintf(format, args...)) }
	if t.uncounted() > 0 {
		problem("the stream was deleted by another client: what others had added to it is not known any more")
	}
	if n := t.takenAway(); n > 0 {
		problem("%d entries of the stream were deleted or trimmed by another client before they had ended", n)
	}
	if n := t.c["n0"] + t.c["n1"] + t.c["n2"]; n != t.indexed {
		problem("waiting by lane: counted %d, found %d", n, t.indexed)
	}
	dead := int64(0)
	for field, n := range t.c {
		if strings.HasPrefix(field, "dead") {
			dead += n
		}
	}
	if dead != t.dead {
		problem("dead letters: counted %d, found %d", dead, t.dead)
	}
	if t.caused != t.dead {
		problem("dead letters by cause: counted %d, found %d", t.caused, t.dead)
	}
	if n := a.Imbalance(); n != 0 {
		problem("the ledger does not balance by %d", n)
	}
	return a
}

// imbalance is what the ledger lacks.
func (t *tally) imbalance() int64 {
	a := driver.Audit{Ledger: t.ledger(), Waiting: t.entries + t.indexed, Dead: t.dead}
	return a.Imbalance()
}

// AcknowledgeLoss implements [driver.LossyStore].
func (s *Store) AcknowledgeLoss(ctx context.Context, name string) (n int64, err error) {
	if err := driver.CheckQueue(name); err != nil {
		return 0, &redrive.Error{Op: "acknowledge", Err: err}
	}
	for _, q := range s.everywhere(name) {
		lost, err := s.acknowledgeLoss(ctx, q)
		if n += lost; err != nil {
			return n, err
		}
	}
	return n, nil
}

// acknowledgeLoss tries again while counters change.
func (s *Store) acknowledgeLoss(ctx context.Context, q *queue) (lost int64, err error) {
	for {
		t, err := s.tally(ctx, q)
		if err != nil {
			return 0, err
		}
		lost, uncounted := t.imbalance(), t.uncounted()
		switch {
		case lost == 0 && uncounted == 0:
			return 0, nil
		case lost < 0 && uncounted == 0:
			return 0, &redrive.Error{Op: "acknowledge", Queue: q.name, Err: fmt.Errorf("%w loss: there are %d more messages than the ledger says", redrive.ErrInvalid, -lost),
				Hint: "this is no loss but a fault of the counters: redrive verify --scan tells where"}
		}
		got, err := s.conn.Write(ctx, scriptAcknowledge, []string{q.keys[keyCounters]}, t.c["lost"], lost, uncounted)
		if err != nil {
			return 0, s.fail(err)
		}
		if number(got) == 1 {
			return max(lost, 0), nil // below 0 where the server began to count anew
		}
	}
}

// maxProblems bounds what an audit tells of single messages.
const maxProblems = 100

func (s *Store) verifySection(ctx context.Context, q *queue, section string, a *driver.Audit, bad *unsound) error {
	looked, behind := int64(0), ""
	for {
		got, err := s.conn.Run(ctx, scriptVerify, q.s.keys(q), section, looked, verifyPage, behind)
		if err != nil {
			return s.fail(err)
		}
		page := items(got)
		problems, shown := items(at(page, 1)), items(at(page, 2))
		for i := 0; i+1 < len(problems) && len(a.Problems) < maxProblems; i += 2 {
			a.Problems = append(a.Problems, text(problems[i])+" "+text(problems[i+1]))
		}
		for i := 0; i+2 < len(shown); i += 3 {
			id, raw := text(shown[i]), text(shown[i+1])
			if section == "s" {
				bad.entry(q, id, raw)
				continue
			}
			if st := bad.blob(id, raw); section == "d" && st.signature() != text(shown[i+2]) && len(a.Problems) < maxProblems {
				a.Problems = append(a.Problems, id+" is counted under another signature")
			}
		}
		n := number(at(page, 0))
		if looked, behind = looked+n, text(at(page, 3)); n < verifyPage {
			return nil
		}
	}
}

// unsound counts messages that are not as they were stored.
type unsound struct {
	n       int
	example string // the id of the first
	known   int64  // dead letters of the reason corrupt
}

func (u *unsound) add(id string) {
	if u.n++; u.n == 1 {
		u.example = id
	}
}

// entry looks at an envelope of the stream. What cannot be read is another client's, and
// becomes a dead letter when it is claimed.
func (u *unsound) entry(q *queue, entry, envelope string) {
	var m redrive.Message
	var st stored
	if unseal(envelope, &m, &st) == nil && !st.fits(&m) {
		u.add(q.id(entry))
	}
}

func (u *unsound) blob(id, blob string) (st stored) {
	var m redrive.Message
	h, ok := parseHead(blob)
	switch {
	case ok && unseal(blob[headLength:], &m, &st) == nil && st.fits(&m):
	case ok && h.reason == redrive.ReasonCorrupt: // which is known
		u.known++
	default:
		u.add(id)
	}
	return st
}

// fits says that a message and its original are as they were stored.
func (st *stored) fits(m *redrive.Message) bool {
	return st.sum.fits(m) && (st.original == nil || st.originalSum.fits(st.original))
}
