package guard_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/guard"
)

// flaky is a provider with a script of outages, that remembers what it has carried out.
type flaky struct {
	mu      sync.Mutex
	rng     *rand.Rand
	mode    int
	carried map[string]int
}

func (f *flaky) call(ctx context.Context, o order) (receipt, error) {
	f.mu.Lock()
	mode, chance := f.mode, f.rng.Float64()
	f.mu.Unlock()
	done := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.carried[o.ID]++
	}
	switch mode {
	case 1:
		return receipt{}, errBroken
	case 2: // hang, after it was carried out in half of the cases
		if chance < 0.5 {
			done()
		}
		<-ctx.Done()
		return receipt{}, ctx.Err()
	case 3:
		return receipt{}, io.ErrUnexpectedEOF
	case 4:
		if chance < 0.5 {
			return receipt{}, &guard.RateLimitError{After: time.Second}
		}
	case 5:
		if chance < 0.3 {
			return receipt{}, errBroken
		}
	case 6:
		if chance < 0.05 {
			panic("a bug in the call")
		}
	}
	done()
	return receipt{By: "it"}, nil
}

// TestNothingIsLost plays random outages against the whole: live calls, queue, engine
// and store. Each request must be answered, delivered, dead, waiting or refused to the
// caller's face, and none that must not be repeated is carried out twice.
func TestNothingIsLost(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("REDRIVE_SEED"), 10, 64); err == nil {
		seed = s
	}
	n, err := strconv.Atoi(os.Getenv("REDRIVE_PROOF_ROUNDS"))
	if err != nil {
		n = 6
	}
	t.Logf("REDRIVE_SEED=%d", seed)
	for i := range n {
		synctest.Test(t, func(t *testing.T) { playWhole(t, seed+uint64(i)) })
	}
}

func playWhole(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	store := memory.New()
	f := &flaky{rng: rand.New(rand.NewPCG(seed, 2)), carried: make(map[string]int)}
	g, err := guard.New(guard.Config[order, receipt]{Name: "orders", Store: store, Deferral: deferral, Retries: 1, Health: guard.Health{SlowAfter: 500 * time.Millisecond},
		Providers: []guard.Provider[order, receipt]{{Name: "a", Call: f.call, Timeout: 3 * time.Second}}})
	if err != nil {
		t.Fatal(err)
	}
	stopConsumer, stopRun := consume(t, store, g), run(t, g)
	var calls sync.WaitGroup
	var mu sync.Mutex
	fate := make(map[string]string)
	sent := 0
	for range 8 {
		f.mu.Lock()
		f.mode = rng.IntN(7)
		f.mu.Unlock()
		for end := time.Now().Add(time.Duration(1+rng.IntN(15)) * time.Second); time.Now().Before(end); pass(time.Duration(rng.ExpFloat64()*50) * time.Millisecond) {
			o := order{ID: "r" + strconv.Itoa(sent), Repeat: guard.Repeat(rng.IntN(3))}
			sent++
			calls.Go(func() {
				what := "lost"
				defer func() {
					if r := recover(); r != nil {
						what = "reported"
					}
					mu.Lock()
					defer mu.Unlock()
					fate[o.ID] = what
				}()
				res, err := g.Do(t.Context(), o)
				var uncertain *guard.UncertainError
				switch {
				case errors.As(err, &uncertain):
					what = "uncertain"
				case err != nil:
					what = "reported"
				case res.Deferred():
					what = "deferred"
				default:
					what = "answered"
				}
				if o.Repeat == guard.RepeatNever {
					what += " once"
				}
			})
		}
	}
	calls.Wait()
	f.mu.Lock()
	f.mode = 0
	f.mu.Unlock()
	pass(2 * time.Hour) // virtual, for the backlog
	stopConsumer()
	stopRun()
	counts := map[string]int{}
	for id, what := range fate {
		counts[what]++
		entries, err := store.Get(t.Context(), []redrive.Ref{{Queue: "orders", ID: id}})
		if err != nil {
			t.Fatal(err)
		}
		dead := entries[0] != nil && entries[0].State == redrive.StateDead
		once := len(what) > 5 && what[len(what)-5:] == " once"
		switch {
		case what == "lost":
			t.Errorf("seed %d: %s got no answer", seed, id)
		case (what == "answered" || what == "answered once") && f.carried[id] == 0:
			t.Errorf("seed %d: %s was answered and never carried out", seed, id)
		case (what == "deferred" || what == "deferred once") && f.carried[id] == 0 && !dead:
			t.Errorf("seed %d: %s was put off and is gone: %+v", seed, id, entries[0])
		case what == "uncertain once" && (!dead || entries[0].Reason != redrive.ReasonUncertain):
			t.Errorf("seed %d: %s is uncertain and was not kept", seed, id)
		}
		if once && f.carried[id] > 1 {
			t.Errorf("seed %d: %s must not be repeated and was carried out %d times", seed, id, f.carried[id])
		}
	}
	if len(fate) != sent || state(g, "a") != "healthy" {
		t.Errorf("seed %d: %d fates of %d requests; the provider is %s", seed, len(fate), sent, state(g, "a"))
	}
	t.Logf("seed %d: %d requests: %v", seed, sent, counts)
}
