package daemon

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/internal/daemon/config"
)

func rateOf(t *testing.T, text string) (r config.Rate) {
	t.Helper()
	if text == "" {
		return r
	}
	if err := r.UnmarshalText([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return r
}

// Several daemons, some of which die and are started again, grant the quota together,
// within one percent.
func TestAQuotaHoldsOverDaemonsAndRestarts(t *testing.T) {
	const limit, daemons = 20_000, 4
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		defer store.Close()
		who := &caller{id: "billing", quota: rateOf(t, "20000/day")}
		var mu sync.Mutex
		granted := 0
		var all sync.WaitGroup
		for d := range daemons {
			random := rand.New(rand.NewPCG(seed, uint64(d)))
			all.Go(func() {
				for restarts := range 3 {
					m := newMeters(store, slog.New(slog.DiscardHandler), func() int { return daemons }).of(who)
					for n := 0; restarts == 2 || n < limit/daemons/4; {
						got, why, err := m.take(t.Context(), 1+random.IntN(30))
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						granted += got
						mu.Unlock()
						if n += got; why != nil && got == 0 {
							if why.Status != http.StatusTooManyRequests || why.RetryAfter < 1 || why.ViolatedPolicies[0] != policyQuota {
								t.Errorf("%+v", why)
							}
							break
						}
					}
				}
			})
		}
		all.Wait()
		if granted > limit+limit/100 || granted < limit*99/100 {
			t.Errorf("%d of %d were granted", granted, limit)
		}
		m := newMeters(store, slog.New(slog.DiscardHandler), func() int { return 1 }).of(who)
		if got, _, _ := m.take(t.Context(), 100); got > limit/100 {
			t.Errorf("a restart brought %d more", got)
		}
		h := make(http.Header)
		m.headers(h)
		if h.Get("RateLimit-Policy") != `"quota";q=20000;w=86400` {
			t.Errorf("%v", h)
		}
		time.Sleep(24 * time.Hour) // of the bubble's clock
		if got, _, err := m.take(t.Context(), 100); got != 100 || err != nil {
			t.Errorf("the next day: %d, %v", got, err)
		}
		// An orderly end counts what was given back.
		m.giveBack(100)
		m.mu.Lock()
		if _, err := m.quota.add(t.Context(), 0); err != nil {
			t.Error(err)
		}
		m.mu.Unlock()
		again := newMeters(store, slog.New(slog.DiscardHandler), func() int { return 1 }).of(who)
		if got, _, _ := again.take(context.Background(), limit); got != limit {
			t.Errorf("%d are left of %d", got, limit)
		}
	})
}

func TestARateIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		defer store.Close()
		daemons := 2
		m := newMeters(store, slog.New(slog.DiscardHandler), func() int { return daemons }).of(&caller{id: "x", rate: rateOf(t, "100/s")})
		take := func() (n int) {
			for range 1000 {
				got, why, err := m.take(t.Context(), 1)
				if err != nil {
					t.Fatal(err)
				}
				if got == 0 {
					if why.ViolatedPolicies[0] != policyRate || why.RetryAfter != 1 {
						t.Errorf("%+v", why)
					}
					break
				}
				n++
			}
			return n
		}
		if n := take(); n != 50 {
			t.Errorf("%d at once", n)
		}
		time.Sleep(100 * time.Millisecond) // of the bubble's clock
		if n := take(); n != 5 {
			t.Errorf("%d after a tenth of a second", n)
		}
		daemons = 1
		time.Sleep(time.Minute) // of the bubble's clock
		if n := take(); n != 100 {
			t.Errorf("%d by itself", n)
		}
	})
}
