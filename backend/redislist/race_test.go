package redislist

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
)

// rounds is how often the monitor race is driven: REDRIVE_PROOF_ROUNDS, or 10,000.
func rounds(t *testing.T) int {
	text := os.Getenv("REDRIVE_PROOF_ROUNDS")
	if text == "" {
		return 10_000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("REDRIVE_PROOF_ROUNDS=%q is not a number of rounds", text)
	}
	return n
}

// raced is a queue in which the race can be driven: a worker finishes an entry whose
// lease has run out while recoverers bring it back and another worker takes it.
type raced interface {
	// fill makes n entries whose lease has run out, all with the same body, and
	// returns for each what finishes it, which reports whether it counted.
	fill(n int) []func() bool
	// recover returns what has timed out to the queue, once.
	recover()
	// take takes what is in the queue and finishes it, once, and returns how many counted.
	take() int
	// left empties the queue and returns how many entries were still in it.
	left() int
}

// drive lets finishers, recoverers and another worker meet over n entries, and returns
// how many were finished by whom, and found in the queue afterwards.
func drive(q raced, n, recoverers int) (done, taken, left int) {
	finish := q.fill(n)
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range recoverers {
		wg.Go(func() {
			<-start
			for range n {
				q.recover()
			}
		})
	}
	wg.Go(func() {
		<-start
		for range 2 * n {
			got := q.take()
			mu.Lock()
			taken += got
			mu.Unlock()
		}
	})
	for _, f := range finish {
		wg.Go(func() {
			<-start
			if f() {
				mu.Lock()
				done++
				mu.Unlock()
			}
		})
	}
	close(start)
	wg.Wait()
	return done, taken, q.left()
}

// TestMonitorRace drives the race of the reliable queue: the monitor sees an entry
// time out while its worker finishes it. Each entry must be done or returned, never
// both and never neither. Bodies are equal, and the queue is empty but for the entries.
func TestMonitorRace(t *testing.T) {
	const each, recoverers = 2, 2
	q := &soundList{t: t, s: open(t, Options{})}
	n := rounds(t)
	var doneAll, takenAll int
	for i := range n {
		done, taken, left := drive(q, each, recoverers)
		doneAll, takenAll = doneAll+done, takenAll+taken
		if done+taken+left != each {
			t.Fatalf("round %d: of %d entries %d were finished in time, %d after a recovery, and %d were left", i, each, done, taken, left)
		}
	}
	t.Logf("%d entries in %d rounds: %d finished in time, %d by another after a recovery, %d recovered and still waiting", n*each, n, doneAll, takenAll, n*each-doneAll-takenAll)
	if doneAll == 0 || takenAll == 0 {
		t.Errorf("it was no race: %d finished in time, %d after a recovery", doneAll, takenAll)
	}
}

// TestMonitorRaceFindsTheNaiveQueue proves that the check finds what is wrong with the
// usual queue of RPOPLPUSH, a time stamp in the payload, LREM by value and a monitor that
// compensates.
func TestMonitorRaceFindsTheNaiveQueue(t *testing.T) {
	const each, recoverers, most = 2, 2, 20_000
	s := redistest.Shared(t)
	q := &naiveList{t: t, c: s.Client(t), list: redistest.Prefix()}
	for i := range most {
		if done, taken, left := drive(q, each, recoverers); done+taken+left != each {
			t.Logf("round %d: of %d entries %d were finished in time, %d after a recovery, and %d were left", i, each, done, taken, left)
			return
		}
	}
	t.Errorf("the check found nothing wrong with the naive queue in %d rounds", most)
}

// soundList is our queue. A recovery is a claim of a suspect.
type soundList struct {
	t *testing.T
	s *Source

	mu        sync.Mutex
	recovered []redrive.Delivery
}

func (l *soundList) fill(n int) []func() bool {
	ctx := context.Background()
	for range n {
		if err := l.s.conn.LPush(ctx, l.s.o.List("race"), "same").Err(); err != nil {
			l.t.Fatal(err)
		}
	}
	ds, err := l.s.Claim(ctx, driver.ClaimRequest{Queue: "race", Max: n, Lease: minLease, Instance: "worker"})
	if err != nil || len(ds) != n {
		l.t.Fatal(len(ds), err)
	}
	for _, d := range ds { // the lease runs out now, and not in 10 ms
		entry, _, _ := strings.Cut(d.Receipt.Position, ".")
		if err := l.s.conn.ZAdd(ctx, newKeys(l.s.o.List("race")).leases, redis.Z{Score: 1, Member: entry}).Err(); err != nil {
			l.t.Fatal(err)
		}
	}
	finish := make([]func() bool, n)
	for i := range ds {
		finish[i] = func() bool {
			err := driver.FirstError(l.s.Settle(ctx, []driver.Settlement{{Receipt: ds[i].Receipt, Outcome: redrive.OutcomeDone}}))
			if err != nil && !errors.Is(err, redrive.ErrLeaseLost) && !errors.Is(err, redrive.ErrNotFound) {
				l.t.Error(err)
			}
			return err == nil
		}
	}
	return finish
}

func (l *soundList) recover() {
	ds, err := l.s.Claim(context.Background(), driver.ClaimRequest{Queue: "race", Max: 1, Isolated: true, Lease: time.Hour, Instance: "recoverer"})
	if err != nil {
		l.t.Error(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recovered = append(l.recovered, ds...)
}

func (l *soundList) take() int {
	l.mu.Lock()
	ds := l.recovered
	l.recovered = nil
	l.mu.Unlock()
	n := 0
	for _, d := range ds {
		if err := driver.FirstError(l.s.Settle(context.Background(), []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}})); err == nil {
			n++
		}
	}
	return n
}

// left finishes what was recovered last: nothing else may be in the queue.
func (l *soundList) left() int {
	n := l.take()
	c, err := l.s.Counts(context.Background(), "race")
	if err != nil {
		l.t.Fatal(err)
	}
	return n + int(c.Waiting+c.Delayed+c.Retries+c.Redriven+c.Processing)
}

// naiveList is the reliable queue as it is often built.
type naiveList struct {
	t    *testing.T
	c    *redis.Client
	list string
}

func (l *naiveList) processing() string { return l.list + ":processing" }

func (l *naiveList) fill(n int) []func() bool {
	ctx := context.Background()
	payload := fmt.Sprintf(`{"published":%d,"body":"same"}`, 1) // long ago
	finish := make([]func() bool, n)
	for i := range n {
		l.c.LPush(ctx, l.list, payload)
		l.c.LMove(ctx, l.list, l.processing(), "RIGHT", "LEFT")
		finish[i] = func() bool { return l.c.LRem(ctx, l.processing(), 1, payload).Val() == 1 }
	}
	return finish
}

// recover is the monitor: it looks for what is too old, puts it back, takes it out of
// the processing list, and if it was gone from there takes it back out of the queue.
func (l *naiveList) recover() {
	ctx := context.Background()
	old := l.c.LRange(ctx, l.processing(), -1, -1).Val()
	if len(old) == 0 {
		return
	}
	l.c.LPush(ctx, l.list, old[0])
	if l.c.LRem(ctx, l.processing(), 1, old[0]).Val() == 0 {
		l.c.LRem(ctx, l.list, 1, old[0])
	}
}

func (l *naiveList) take() int {
	ctx := context.Background()
	payload, err := l.c.LMove(ctx, l.list, l.processing(), "RIGHT", "LEFT").Result()
	if err != nil {
		return 0
	}
	return int(l.c.LRem(ctx, l.processing(), 1, payload).Val())
}

func (l *naiveList) left() int {
	ctx := context.Background()
	n := int(l.c.LLen(ctx, l.list).Val() + l.c.LLen(ctx, l.processing()).Val())
	l.c.Del(ctx, l.list, l.processing())
	return n
}
