package backlog_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive/backlog"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/deadtest"
)

// Who is refused learns when to try again: before 20 deliveries were seen by the configured
// rate, or after 5 s at most; then by the rate that was seen, within twice the true time either
// way.
func TestRetryAfterIsTrue(t *testing.T) {
	const depth = 1000
	for _, rate := range []float64{0.5, 2, 7, 20, 30} { // messages that leave a second
		for _, c := range []struct {
			name       string
			configured float64
			obeys      bool // the publisher asks again when it may, not every 200 ms
		}{{"obeyed", 0, true}, {"not obeyed", 0, false}, {"a rate is configured", rate, true}} {
			t.Run(fmt.Sprintf("%g a second, %s", rate, c.name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					k := newTank(t, backlog.Limits{Depth: depth, Soft: 1 - 30*rate/depth, Rate: c.configured}, backlog.Options{}) // 30 s of messages between the limits
					began, gone := time.Now(), 0
					pass := func(d time.Duration) {
						for end := time.Now().Add(d); time.Now().Before(end); {
							deadtest.Pass(min(100*time.Millisecond, time.Until(end)))
							for want := int(rate * time.Since(began).Seconds()); gone < want; gone++ {
								k.handle("q", 1)
							}
						}
					}
					k.publish("q", depth+1)
					for range 20 {
						level, after := k.limiter.Level("q")
						if level != driver.LevelRefused { // as much as there is room for, at once
							k.publish("q", depth)
							level, after = k.limiter.Level("q")
						}
						if level != driver.LevelRefused {
							t.Fatalf("level %s", level)
						}
						truth := func(messages float64) time.Duration {
							return min(max(time.Duration(messages/rate*float64(time.Second)), time.Second), time.Minute)
						}
						all := float64(k.waiting("q"))
						for said, truth := range map[time.Duration]time.Duration{after: truth(all - k.soft(depth, rate)), k.limiter.Wait("q"): truth(all)} {
							switch {
							case gone < 20 && c.configured == 0:
								if said > 5*time.Second {
									t.Errorf("after %d deliveries: in %s", gone, said)
								}
							case said < truth/2 || said > 2*truth:
								t.Errorf("after %d deliveries: in %s, it takes %s", gone, said, truth)
							}
						}
						if !c.obeys {
							after = 200 * time.Millisecond
						}
						pass(after)
					}
				})
			})
		}
	}
}

// A queue that comes to a stop is not said to be open again soon.
func TestRetryAfterAStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTank(t, backlog.Limits{Depth: 1000}, backlog.Options{})
		k.publish("q", 1001)
		for range 18 { // 10 a second; 820 wait then, the soft limit is at 800
			deadtest.Pass(time.Second)
			k.handle("q", 10)
			k.level("q", driver.LevelRefused)
		}
		if after := k.level("q", driver.LevelRefused); after > 4*time.Second {
			t.Errorf("with 20 too many at 10 a second: again in %s", after)
		}
		for range 30 {
			k.refresh()
			k.level("q", driver.LevelRefused)
		}
		if after := k.level("q", driver.LevelRefused); after < 30*time.Second {
			t.Errorf("after half a minute without deliveries: again in %s", after)
		}
	})
}

func (k *tank) waiting(queue string) int64 {
	k.t.Helper()
	counts, err := k.store.Store.Counts(k.t.Context(), queue)
	if err != nil {
		k.t.Fatal(err)
	}
	return counts[0].AllWaiting()
}

// soft is how many messages a queue has at its soft limit.
func (*tank) soft(depth, rate float64) float64 { return depth - 30*rate }
