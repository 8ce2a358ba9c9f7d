package memory

import (
	"context"
	"fmt"
	"maps"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Verify implements driver.Store. It looks at every item while nothing else happens.
func (s *Store) Verify(ctx context.Context, queues ...string) ([]driver.Audit, error) {
	if err := s.enterExclusively(ctx); err != nil {
		return nil, err
	}
	defer s.step.Unlock()
	if len(queues) == 0 {
		queues = s.names()
	}
	now := s.now()
	audits := make([]driver.Audit, len(queues))
	for i, name := range queues {
		audits[i] = driver.Audit{Queue: name}
		if q := s.lookup(name); q != nil {
			audits[i] = q.verify(now)
		}
	}
	return audits, nil
}

func (q *queue) verify(now int64) driver.Audit {
	a := driver.Audit{Queue: q.name, Ledger: q.ledger}
	problem := func(format string, args ...any) { a.Problems = append(a.Problems, fmt.Sprintf(format, args...)) }
	counted := q.counts(now)
	var byLane [driver.Lanes]int64
	var nLeased, nBlocked, size, nDead int64
	byReason := make(map[redrive.Reason]int64)
	byCause := make(map[cause]int64)
	corrupt, example := 0, ""
	for id, it := range q.byID {
		switch first := it.original == nil || driver.Checksum(it.original) == it.firstSum; {
		case it.sound() && first:
		case it.dead && it.reason == redrive.ReasonCorrupt && first: // which is known
			a.Corrupt++
		default:
			corrupt++
			example = id
		}
		switch {
		case it.msg.ID != id || it.seq == 0:
			problem("%s is listed under another name", id)
		case it.dead:
			nDead++
			byReason[it.reason]++
			byCause[it.cause()]++
			continue
		case it.place == leased:
			nLeased++
		case it.place == blocked:
			nBlocked++
			if !it.ordered || it.leads() {
				problem("%s is blocked by nothing", id)
			}
		case it.place != inLane:
			problem("%s can never be claimed", id)
		case it.ordered && !it.leads():
			problem("%s may overtake another message of its key", id)
		}
		byLane[it.lane]++
		size += int64(it.msg.Size())
		a.Waiting++
	}
	a.Dead = nDead
	if corrupt > 0 {
		problem("%d messages do not match their checksum, for instance %s", corrupt, example)
	}
	if byLane != q.byLane {
		problem("waiting by lane: counted %v, found %v", q.byLane, byLane)
	}
	if nLeased != counted.Leased || nBlocked != counted.Blocked || size != counted.Bytes {
		problem("leased, blocked, bytes: counted %d, %d, %d, found %d, %d, %d", counted.Leased, counted.Blocked, counted.Bytes, nLeased, nBlocked, size)
	}
	for _, r := range redrive.Reasons() {
		if byReason[r] != counted.Dead[r] {
			problem("dead as %s: counted %d, found %d", r, counted.Dead[r], byReason[r])
		}
	}
	if !maps.Equal(byCause, q.causes) {
		problem("causes of dead letters: counted %v, found %v", q.causes, byCause)
	}
	if int64(q.waiting.live) != a.Waiting || int64(q.dead.live) != a.Dead {
		problem("lists: %d waiting and %d dead, found %d and %d", q.waiting.live, q.dead.live, a.Waiting, a.Dead)
	}
	if n := a.Imbalance(); n != 0 {
		problem("the ledger does not balance by %d", n)
	}
	return a
}
