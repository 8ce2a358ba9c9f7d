package engine_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
)

// What the simulation runs with.
const (
	queuePlain   = "plain"
	queueOrdered = "ordered"
	queueEmitted = "emitted"
	queueResults = "results"

	simAttempts  = 5
	simCrashes   = 3
	simMessages  = 2500 // published in one round
	simRounds    = 40
	simProcesses = 3
	simFaulty    = 2 * time.Minute
	simBound     = 2 * time.Hour // everything has ended so long after the last fault
)

// TestSimulation lets several processes consume one store while calls fail, answers
// get lost, the store goes away, processes die and handlers misbehave, all by dice
// from a seed, in virtual time. Then the faults stop, and everything must end. What
// must never happen is in history.
//
// REDRIVE_SEED names the first seed, REDRIVE_PROOF_ROUNDS how many follow it.
func TestSimulation(t *testing.T) {
	t.Parallel()
	seed, rounds := envNumber(t, "REDRIVE_SEED", 1), envNumber(t, "REDRIVE_PROOF_ROUNDS", simRounds)
	if testing.Short() {
		rounds = min(rounds, 4)
	}
	for i := range rounds {
		t.Run("seed="+strconv.FormatUint(seed+i, 10), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { simulate(t, seed+i) })
		})
	}
}

func envNumber(t *testing.T, name string, otherwise uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// simulation is one round.
type simulation struct {
	t       *testing.T
	store   *memory.Store
	faulty  atomic.Bool
	history *history

	mu        sync.Mutex // held while anything touches the store, so that the history is true
	rnd       *rand.Rand
	processes []*process
	booted    int
	kills     int
	over      bool
	awayUntil time.Time

	severity    float64 // factor of the faults' probabilities
	concurrency int
	lease       time.Duration
	target      string
}

func simulate(t *testing.T, seed uint64) {
	s := &simulation{t: t, store: memory.New(), history: newHistory(), rnd: rand.New(rand.NewPCG(seed, 0))}
	s.severity = 0.3 + 3*s.rnd.Float64()
	s.concurrency = 1 + s.rnd.IntN(40)
	s.lease = time.Duration(5+s.rnd.IntN(20)) * time.Second
	s.target = []string{"", "target"}[s.rnd.IntN(2)]
	if err := s.store.Configure(t.Context(), queueOrdered, driver.QueueSettings{OrderByKey: true, DeadRelease: true}); err != nil {
		t.Fatal(err)
	}
	s.faulty.Store(true)
	for range simProcesses {
		s.boot()
	}
	publishing := make(chan struct{})
	go func() {
		defer close(publishing)
		s.publish()
	}()
	began := time.Now()
	for time.Since(began) < simFaulty {
		<-time.After(s.someTime(3 * time.Second))
		s.mischief()
	}
	<-publishing
	s.faulty.Store(false)
	quiet := time.Now()
	for s.left() > 0 && time.Since(quiet) < simBound {
		<-time.After(time.Second)
	}
	took := time.Since(quiet)
	<-time.After(time.Minute) // calls that were slow, and handlers that do not listen
	s.end()
	s.check()
	h := s.history
	t.Logf("%d messages, %d claims (%d of suspects), %d settlements, %d deaths of %d processes; all ended %s after the last fault",
		len(h.messages), h.claims, h.suspects, h.settles, s.kills, s.booted, took.Round(time.Second))
	if t.Failed() {
		t.Logf("repeat with: REDRIVE_SEED=%d REDRIVE_PROOF_ROUNDS=1 go test -run TestSimulation ./engine", seed)
	}
}

// roll is true with the given probability.
func (s *simulation) roll(p float64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rnd.Float64() < p
}

func (s *simulation) someTime(most time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.rnd.Int64N(int64(most)))
}

func (s *simulation) sleep(most time.Duration, p *process) { _ = p.sleep(s.someTime(most)) }

func (s *simulation) away() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.awayUntil)
}

// mischief does one thing to the system as a whole.
func (s *simulation) mischief() {
	s.mu.Lock()
	var victim *process
	if len(s.processes) > 0 {
		victim = s.processes[s.rnd.IntN(len(s.processes))]
	}
	dice := s.rnd.IntN(20)
	switch {
	case dice == 0:
		s.awayUntil = time.Now().Add(time.Duration(s.rnd.Int64N(int64(20 * time.Second))))
	case dice < 4:
		s.redrive()
	}
	s.mu.Unlock()
	if victim != nil && dice >= 16 {
		go victim.stop(false)
	}
}

// redrive gives some dead letters another generation.
func (s *simulation) redrive() {
	for _, reason := range []redrive.Reason{redrive.ReasonExhausted, redrive.ReasonPermanent} {
		q := redrive.Query{Queue: queuePlain, State: redrive.StateDead, Reason: reason}
		got, err := s.store.Update(context.Background(), driver.Selection{Query: &q}, driver.Change{Action: driver.ActRedrive, MaxRedrives: 2}, 5)
		if err != nil {
			s.t.Errorf("redrive: %v", err)
		}
		for _, u := range got {
			if u.Err == nil {
				s.history.redriven(u.Ref, time.Now())
			}
		}
	}
}

// publish publishes everything within the first half of the faulty time.
func (s *simulation) publish() {
	behaviours := []struct {
		name  string
		times int
		share float64
	}{
		{"poison", 0, 0.001}, {"permanent", 0, 0.01}, {"fail", 100, 0.01}, {"deaf", 1, 0.005}, {"hang", 1, 0.01}, {"goexit", 2, 0.02},
		{"panic", 2, 0.02}, {"slow", 0, 0.02}, {"release", 0, 0.05}, {"repeat", 2, 0.05}, {"emit", 1, 0.1}, {"fail", 2, 0.1}, {"ok", 0, 1},
	}
	const batch = 25
	for n := 0; n < simMessages; n += batch {
		msgs := make([]redrive.Message, batch)
		s.mu.Lock()
		for i := range msgs {
			m := &msgs[i]
			*m = redrive.Message{Queue: queuePlain, ID: "m" + strconv.Itoa(n+i), Kind: "k" + strconv.Itoa(i%3)}
			pick := behaviours[0]
			for _, pick = range behaviours {
				if s.rnd.Float64() < pick.share {
					break
				}
			}
			m.Body = []byte(pick.name + " " + strconv.Itoa(pick.times))
			switch s.rnd.IntN(10) {
			case 0:
				m.Delay = time.Duration(s.rnd.Int64N(int64(20 * time.Second)))
			case 1, 2:
				m.Queue, m.Key = queueOrdered, "key"+strconv.Itoa(s.rnd.IntN(30))
			case 3:
				m.ExpiresAt = time.Now().Add(time.Duration(s.rnd.Int64N(int64(time.Minute))))
			case 4:
				m.ReplyTo = queueResults
			}
			s.history.requested(m, pick.name, time.Now())
		}
		s.mu.Unlock()
		for !s.published(msgs) {
			<-time.After(100 * time.Millisecond)
		}
		<-time.After(s.someTime(2 * simFaulty / 2 * batch / simMessages))
	}
}

// published tries to publish a batch, and reports whether the answer arrived.
func (s *simulation) published(msgs []redrive.Message) bool {
	lost := s.faulty.Load() && s.roll(0.05)
	if lost && s.roll(0.5) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := s.store.Publish(context.Background(), msgs)
	for i := range msgs {
		if errs != nil && errs[i] != nil && !errors.Is(errs[i], redrive.ErrDuplicate) {
			s.t.Errorf("publish: %v", errs[i])
		}
		s.history.accepted(msgs[i].Ref())
	}
	return !lost
}

func (s *simulation) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.history.open
}

// end shuts all processes down.
func (s *simulation) end() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	for {
		s.mu.Lock()
		if len(s.processes) == 0 {
			s.mu.Unlock()
			break
		}
		p := s.processes[0]
		s.mu.Unlock()
		p.stop(true)
	}
}

// check compares the history with what the store holds.
func (s *simulation) check() {
	for _, w := range s.history.wrong {
		s.t.Error(w)
	}
	ctx := context.Background()
	shown := 0
	for ref, l := range s.history.messages {
		got, err := s.store.Get(ctx, []redrive.Ref{ref})
		if err != nil {
			s.t.Fatal(err)
		}
		e := got[0]
		var wrong string
		switch {
		case !l.accepted:
			wrong = "was never accepted"
		case !l.ended:
			wrong = "has not ended"
		case l.dead == 0 && e != nil:
			wrong = "is done, and still there"
		case l.dead != 0 && e == nil:
			wrong = "is dead as " + l.dead.String() + ", and not there"
		case l.dead != 0 && (e.State != redrive.StateDead || e.Reason != l.dead || e.History.Latest() == nil):
			wrong = "should be dead as " + l.dead.String()
		case l.behaviour == "poison" && l.dead != redrive.ReasonCrashed && l.dead != redrive.ReasonExpired:
			wrong = "kills its process, and did not end as crashed"
		case l.behaviour == "ok" && l.dead != 0 && l.dead != redrive.ReasonExpired:
			wrong = "is harmless, and dead as " + l.dead.String()
		}
		if wrong != "" && shown < 10 {
			shown++
			s.t.Errorf("%s (%s) %s: %+v", ref, l.behaviour, wrong, e)
		}
	}
	audits, err := s.store.Verify(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, a := range audits {
		if a.Imbalance() != 0 || len(a.Problems) > 0 {
			s.t.Errorf("ledger of %s: imbalance %d, %v", a.Queue, a.Imbalance(), a.Problems)
		}
	}
}
