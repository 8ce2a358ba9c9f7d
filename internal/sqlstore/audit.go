package sqlstore

import (
	"fmt"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Auditor compares the ledger of one queue with its rows.
type Auditor struct {
	driver.Audit
	Counted Ledger
	Orphans [4]int64 // messages that wait and are dead, that nobody blocks, ids that are not remembered, keys that are miscounted
	found   Ledger
	corrupt [2]corrupt // messages, and originals of edited ones
}

// corrupt is what does not match its checksum.
type corrupt struct {
	n        int64
	examples []string
}

// corruptNamed is how many a problem names.
const corruptNamed = 5

func (c *corrupt) add(id string) {
	if c.n++; c.n <= corruptNamed {
		c.examples = append(c.examples, id)
	}
}

func (a *Auditor) problem(format string, args ...any) {
	a.Problems = append(a.Problems, fmt.Sprintf(format, args...))
}

// ScanWaiting takes in a row of a lane: how many messages, their size, and by how much
// that differs from their sizes.
func (a *Auditor) ScanWaiting(r Row) error {
	var lane, rows, size int64
	var off *int64
	if err := r.Scan(&lane, &rows, &size, &off); err != nil {
		return err
	}
	if lane < 0 || lane >= int64(driver.Lanes) {
		a.problem("%d messages in lane %d, which is none", rows, lane)
		return nil
	}
	if off != nil && *off != 0 {
		a.problem("messages of lane %d are off by %d bytes from their sizes", lane, *off)
	}
	a.found[lane] += rows
	a.found[AccountBytes] += size
	return nil
}

// ScanDead takes in a row of a reason.
func (a *Auditor) ScanDead(r Row) error {
	var reason, rows int64
	if err := r.Scan(&reason, &rows); err != nil {
		return err
	}
	if reason < 1 || reason > int64(driver.LastReason) {
		a.problem("%d dead letters for reason %d, which is none", rows, reason)
		return nil
	}
	a.found[DeadAccount(redrive.Reason(reason))] = rows
	return nil
}

// Check compares a message and its original with their checksums.
func (a *Auditor) Check(m *Message) {
	switch {
	case driver.Matches(&m.Message, m.Sum):
	case m.Reason == redrive.ReasonCorrupt: // which is known
		a.Corrupt++
	default:
		a.corrupt[0].add(m.ID)
	}
	if !m.originalMatches() {
		a.corrupt[1].add(m.ID)
	}
}

// ScanCause takes in a cause whose counter is wrong.
func (a *Auditor) ScanCause(r Row) error {
	var signature string
	var reason, counted, found int64
	err := r.Scan(&reason, &signature, &counted, &found)
	a.problem("cause %s %s: %d counted, %d found", redrive.Reason(reason), signature, counted, found) //nolint:gosec // small
	return err
}

func (a *Auditor) judge() {
	a.Ledger, a.Waiting, a.Dead = a.Counted.Totals(), a.found.Waiting(), a.found.Dead()
	for b, name := range accountNames {
		moves := Account(b) >= AccountPublished && Account(b) <= AccountMovedOut
		if !moves && a.Counted[b] != a.found[b] {
			a.problem("%s: %d counted, %d found", name, a.Counted[b], a.found[b])
		}
	}
	if n := a.Imbalance(); n != 0 {
		a.problem("%d more entered than left, wait or are dead", n)
	}
	for i, what := range []string{"messages that wait and are dead", "messages blocked by nobody", "chosen ids that are not remembered",
		"keys whose members are miscounted"} {
		if a.Orphans[i] != 0 {
			a.problem("%d %s", a.Orphans[i], what)
		}
	}
	for i, what := range []string{"messages", "originals of edited messages"} {
		if c := &a.corrupt[i]; c.n != 0 {
			a.problem("%d %s do not match their checksum, for instance %s", c.n, what, strings.Join(c.examples, ", "))
		}
	}
}
