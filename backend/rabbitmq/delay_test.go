package rabbitmq

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/rabbittest"
	"github.com/redrive/redrive/internal/servertest"
)

func TestDelayKey(t *testing.T) {
	for _, c := range []struct {
		seconds int64
		queue   string
		key     string
		level   int
	}{
		{0, "sms", "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.sms", -1},
		{1, "sms", "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1.sms", 0},
		{6, "sms", "0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1.1.0.sms", 2},
		{int64(MaxDelay / time.Second), "a.b", "1.1.1.1.0.0.0.0.1.0.0.1.1.0.0.1.1.1.0.0.0.0.0.0.0." + driver.DeriveID("amqp", "a.b"), 24},
	} {
		if key, level := delayKey(c.seconds, c.queue); key != c.key || level != c.level {
			t.Errorf("%d s: %s at %d", c.seconds, key, level)
		}
	}
	if MaxDelay/time.Second >= 1<<delayLevels {
		t.Error("the levels do not make the longest delay")
	}
}

// TestMixedDelays has messages wait for different times: none comes early, and all come.
// How late they are is reported; `make proof PROOF=MixedDelays` has 10,000 of them, none of
// which may be more than two seconds late.
func TestMixedDelays(t *testing.T) {
	n, longest, proof := 300, 3, os.Getenv("REDRIVE_PROOF_ROUNDS") != ""
	if proof {
		n, longest = 10_000, 60
	}
	node := rabbittest.Shared(t)
	name := rabbittest.Name()
	s := connect(t, at(node.Addr(), "queue="+name, "declare=true", "prefetch=1000"), Options{Queue: "sms", Native: true})
	other := connect(t, at(node.Addr(), "queue=other."+name, "declare=true"), Options{Native: true, Queue: "other"})
	from := make([]atomic.Int64, n) // since began
	delays := make([]time.Duration, n)
	for i := range delays {
		delays[i] = time.Duration(1+rand.IntN(longest*1000)) * time.Millisecond
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	began := time.Now()
	for w := range 4 {
		wg.Go(func() {
			for i := w; i < n; i += 4 {
				from[i].Store(int64(time.Since(began)))
				if err := driver.FirstError(s.Publish(t.Context(), []redrive.Message{{ID: strconv.Itoa(i), Queue: "sms", Delay: delays[i]}})); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var latest, sum time.Duration
	seen := make(map[string]bool)
	took := func(d *redrive.Delivery) {
		i, _ := strconv.Atoi(d.ID)
		late := time.Since(began) - time.Duration(from[i].Load()) - delays[i]
		if late < 0 {
			t.Errorf("a delay of %v ended %v early", delays[i], -late)
		}
		if seen[d.ID] {
			return
		}
		seen[d.ID] = true
		latest, sum = max(latest, late), sum+late
	}
	servertest.Until(t, fmt.Sprintf("all %d are there", n), func() bool {
		ds, err := s.Claim(context.Background(), driver.ClaimRequest{Queue: "sms", Max: 1000, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		done := make([]driver.Settlement, len(ds))
		for i := range ds {
			took(&ds[i])
			done[i] = settled(&ds[i], redrive.OutcomeDone)
		}
		if err := settle(s, done...); err != nil {
			t.Fatal(err)
		}
		return len(seen) == n
	})
	if proof && latest > 2*time.Second {
		t.Errorf("one was %v late", latest)
	}
	t.Logf("%d delays up to %d s: %v late on average, %v at most, in whole seconds rounded up", n, longest, sum/time.Duration(n), latest)
	if ds, err := other.Claim(t.Context(), driver.ClaimRequest{Queue: "other", Max: 1, Lease: time.Minute}); len(ds) > 0 {
		t.Error("a message came to a queue whose name ends the same:", ds, err)
	}
}
