package redisstream

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// tally is the answer of the counts script.
type tally struct {
	now, entries, claimed, leased, lost, released, blocked int64
	due, indexed, dead, next, caused                       int64
	oldest                                                 [driver.Lanes + 2]int64 // of the lanes, of suspects, of the dead; 0: none
	lanes                                                  driver.LaneSet
	suspects, guessed                                      bool   // guessed: leases are an estimate
	last                                                   string // entry of the stream
	added                                                  int64  // entries, ever; -1: the server does not count them
	c                                                      map[string]int64
}

func readTally(v any) *tally {
	list := items(v)
	n := func(i int) int64 { return number(at(list, i)) }
	t := &tally{
		now: n(0), entries: n(1), claimed: n(2), leased: n(3), lost: n(4), released: n(5), blocked: n(6),
		due: n(7), indexed: n(9), dead: n(10), next: -1, caused: n(16), guessed: n(17) == 1,
		lanes: driver.LaneSet(n(12)), suspects: n(13) == 1, last: text(at(list, 14)), c: make(map[string]int64), //nolint:gosec // three bits
	}
	if text(at(list, 11)) != "" {
		t.next = n(11)
	}
	for i, v := range items(at(list, 8)) {
		t.oldest[i] = number(v)
	}
	if t.added = -1; text(at(list, 18)) != "" {
		t.added = n(18)
	}
	counters := items(at(list, 15))
	for i := 0; i+1 < len(counters); i += 2 {
		t.c[text(counters[i])] = number(counters[i+1])
	}
	return t
}

// The counter xs counts entries that we added or claimed first, xd those that were ended; xo is what
// the server's number of added entries lacks since somebody deleted the stream.

// foreign is how many entries other clients added that nobody has claimed, whether they are there
// or were taken away. A server before 7.0 knows of those only that are there, less what of ours was
// taken away.
func (t *tally) foreign() int64 {
	n := t.entries - t.c["xs"] + t.c["xd"]
	if t.added >= 0 {
		n = max(n, t.added+t.c["xo"]-t.c["xs"])
	}
	return max(n, 0)
}

// takenAway is how many entries others deleted or trimmed that had not ended. Those that are in
// flight may end yet.
func (t *tally) takenAway() int64 {
	return max(t.c["xs"]+t.foreign()-t.c["xd"]-t.entries-t.c["lost"], 0)
}

// uncounted is how many entries less the server says were ever added than it must: the stream was
// deleted.
func (t *tally) uncounted() int64 {
	if t.added < 0 {
		return 0
	}
	return max(t.c["xs"]-t.added-t.c["xo"], 0)
}

func (t *tally) ledger() driver.Ledger {
	return driver.Ledger{
		Published: t.c["published"] + t.foreign(), Parked: t.c["parked"], Imported: t.c["imported"], MovedIn: t.c["movedin"], Repeated: t.c["repeated"],
		Done: t.c["done"], Dropped: t.c["dropped"] + t.c["lost"], Archived: t.c["archived"], MovedOut: t.c["movedout"],
	}
}

func (s *Store) tally(ctx context.Context, q *queue) (*tally, error) {
	got, err := s.conn.Run(ctx, scriptCounts, q.s.keys(q))
	if err != nil {
		return nil, s.fail(err)
	}
	return readTally(got), nil
}

// Counts implements driver.Store.
func (s *Store) Counts(ctx context.Context, queues ...string) ([]driver.Counts, error) {
	if len(queues) == 0 {
		var err error
		if queues, err = s.queueNames(ctx); err != nil {
			return nil, err
		}
	}
	tallies, err := s.tallies(ctx, queues)
	if err != nil {
		return nil, err
	}
	counts := make([]driver.Counts, len(queues))
	for i, name := range queues {
		counts[i] = tallies[i][0].counts(name)
		for _, t := range tallies[i][1:] {
			more := t.counts(name)
			merge(&counts[i], &more)
		}
	}
	return counts, nil
}

func (t *tally) counts(name string) driver.Counts {
	c := driver.Counts{
		Queue: name, Leased: t.leased, Blocked: t.blocked, Suspects: t.lost + t.released,
		Due: t.due, Bytes: t.c["bytes"], Ledger: t.ledger(), Dead: make(map[redrive.Reason]int64),
	}
	c.Waiting = [driver.Lanes]int64{t.entries + t.c["n0"], t.c["n1"], t.c["n2"]}
	for lane := range driver.Lanes {
		c.OldestDue[lane] = moment(t.oldest[lane])
	}
	c.OldestSuspect, c.OldestDead = moment(t.oldest[driver.Lanes]), moment(t.oldest[driver.Lanes+1])
	if c.Due > driver.DueCounted {
		c.Due, c.DueMore = driver.DueCounted, true
	}
	for _, r := range redrive.Reasons() {
		if n := t.c[fmt.Sprintf("dead%d", r)]; n != 0 {
			c.Dead[r] = n
		}
	}
	return c
}

// counters is what this process did.
type counters struct{ published, claimed, settled, wakeups atomic.Int64 }

// Activity is what a Store did since it was opened.
type Activity struct {
	Published, Claimed, Settled int64  // messages
	Wakeups                     int64  // times the waiter was woken
	Timeouts                    uint32 // calls that waited for a connection in vain
	Server                      string // its version
}

// Activity returns what the store did since it was opened. It asks nobody.
func (s *Store) Activity() Activity {
	a := Activity{Timeouts: s.conn.PoolStats().Timeouts, Server: s.conn.Version.String()}
	for _, p := range s.all() {
		a.Published += p.stats.published.Load()
		a.Claimed += p.stats.claimed.Load()
		a.Settled += p.stats.settled.Load()
		a.Wakeups += p.stats.wakeups.Load()
	}
	return a
}

// Stats returns the state of the pool of connections, and how long the scripts took. It
// asks nobody.
func (s *Store) Stats() driver.StoreStats {
	p := s.conn.PoolStats()
	return driver.StoreStats{
		Pool: driver.PoolStats{
			Max: s.conn.MaxConns(), Open: int(p.TotalConns), Idle: int(p.IdleConns), InUse: max(int(p.TotalConns)-int(p.IdleConns), 0),
			Waits: int64(p.WaitCount), Waited: time.Duration(p.WaitDurationNs),
		},
		Statements: s.conn.Scripts.Snapshot(),
	}
}
