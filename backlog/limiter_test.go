package backlog_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/backlog"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/deadtest"
)

// tank is a store with backlog limits in front of it, in a bubble of virtual time.
type tank struct {
	t       *testing.T
	store   *countingStore
	limiter *backlog.Limiter
	next    int
}

// countingStore counts how often it is asked for counts, and can be made to fail.
type countingStore struct {
	*memory.Store
	asked  atomic.Int64
	fault  atomic.Pointer[error]
	before func() // called once, within Counts
}

func (s *countingStore) Counts(ctx context.Context, queues ...string) ([]driver.Counts, error) {
	s.asked.Add(1)
	if f := s.before; f != nil {
		s.before = nil
		f()
	}
	if err := s.fault.Load(); err != nil {
		return nil, *err
	}
	return s.Store.Counts(ctx, queues...)
}

func newTank(t *testing.T, limits backlog.Limits, o backlog.Options) *tank {
	k := &tank{t: t, store: &countingStore{Store: memory.New()}}
	k.limiter = backlog.New(k.store, func(string) backlog.Limits { return limits }, o)
	t.Cleanup(func() { _ = k.store.Close() })
	return k
}

// publish publishes n messages of ten bytes and more one by one, and returns how many
// were accepted.
func (k *tank) publish(queue string, n int) (accepted int) {
	k.t.Helper()
	for range n {
		k.next++
		err := redrive.Publish(context.Background(), k.limiter, queue, "0123456789", redrive.WithID(fmt.Sprint("m", k.next)))
		switch {
		case err == nil:
			accepted++
		case !errors.Is(err, redrive.ErrBacklogged):
			k.t.Fatal(err)
		}
	}
	return accepted
}

// handle ends up to n messages of a queue.
func (k *tank) handle(queue string, n int) {
	k.t.Helper()
	ds, err := k.store.Claim(context.Background(), driver.ClaimRequest{Queue: queue, Max: n, Lease: time.Minute, Instance: "i"})
	if err != nil {
		k.t.Fatal(err)
	}
	var s []driver.Settlement
	for _, d := range ds {
		s = append(s, driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeDone})
	}
	if err := driver.FirstError(k.store.Settle(context.Background(), s)); err != nil {
		k.t.Fatal(err)
	}
}

// refresh lets the counts grow old.
func (k *tank) refresh() { deadtest.Pass(time.Second) }

func (k *tank) level(queue string, want driver.Level) time.Duration {
	k.t.Helper()
	got, after := k.limiter.Level(queue)
	if got != want {
		k.t.Errorf("level %s, want %s", got, want)
	}
	if (got == driver.LevelRefused) != (after > 0) {
		k.t.Errorf("level %s with retry after %s", got, after)
	}
	return after
}

func TestLimiterRefusesWithHysteresis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTank(t, backlog.Limits{Depth: 10}, backlog.Options{})
		k.level("q", driver.LevelOK)
		if got := k.publish("q", 8); got != 8 {
			t.Errorf("%d of the first 8 were accepted", got)
		}
		k.level("q", driver.LevelWarn)
		if got := k.publish("q", 7); got != 2 {
			t.Errorf("%d of the next 7 were accepted, 2 have room", got)
		}
		k.level("q", driver.LevelRefused)
		k.handle("q", 2)
		k.refresh()
		if got := k.publish("q", 1); got != 0 {
			t.Error("at the soft limit one was accepted")
		}
		k.handle("q", 1)
		k.refresh()
		k.level("q", driver.LevelOK)
		if got := k.publish("q", 5); got != 3 {
			t.Errorf("below the soft limit %d were accepted, 3 have room", got)
		}
		if got := k.publish("other", 1); got != 1 {
			t.Error("another queue was refused")
		}
	})
}

func TestLimiterRoom(t *testing.T) {
	for _, c := range []struct {
		name        string
		own, total  backlog.Limits
		publish     int
		pass        time.Duration
		left, limit int64
	}{
		{"below the soft limit", backlog.Limits{Depth: 10}, backlog.Limits{}, 7, 0, 0, 0},
		{"at the soft limit", backlog.Limits{Depth: 10}, backlog.Limits{}, 8, 0, 2, 10},
		{"full", backlog.Limits{Depth: 10}, backlog.Limits{}, 11, 0, 0, 10},
		{"the store has less", backlog.Limits{Depth: 10}, backlog.Limits{Depth: 9}, 8, 0, 1, 9},
		{"only the store", backlog.Limits{}, backlog.Limits{Depth: 10}, 9, 0, 1, 10},
		{"bytes", backlog.Limits{Bytes: 120}, backlog.Limits{}, 9, 0, 1, 10}, // 12 each
		{"an age on its way", backlog.Limits{Age: time.Minute, Soft: 0.5}, backlog.Limits{}, 5, 45 * time.Second, 2, 8},
		{"an age that is over", backlog.Limits{Age: time.Minute, Depth: 100}, backlog.Limits{}, 4, time.Minute, 0, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newTank(t, c.own, backlog.Options{Total: c.total})
				k.publish("q", c.publish)
				if c.pass > 0 {
					deadtest.Pass(c.pass)
					k.publish("q", 1)
				}
				left, limit, reset := k.limiter.Room("q")
				if left != c.left || limit != c.limit || (limit > 0) != (reset >= time.Second) {
					t.Errorf("%d of %d for %s, want %d of %d", left, limit, reset, c.left, c.limit)
				}
			})
		})
	}
}

func TestLimiterLimits(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits backlog.Limits
		total  backlog.Limits
		run    func(k *tank) int
		want   int
	}{
		{"bytes", backlog.Limits{Bytes: 100}, backlog.Limits{}, func(k *tank) int { return k.publish("q", 20) }, 8}, // 12 each
		{"the soft limit is a share", backlog.Limits{Depth: 10, Soft: 0.5}, backlog.Limits{}, func(k *tank) int {
			k.publish("q", 11)
			k.handle("q", 4)
			k.refresh()
			return k.publish("q", 1)
		}, 0},
		{"age", backlog.Limits{Age: time.Minute}, backlog.Limits{}, func(k *tank) int {
			k.publish("q", 1)
			deadtest.Pass(2 * time.Minute)
			return k.publish("q", 1)
		}, 0},
		{"age, when the old one is gone", backlog.Limits{Age: time.Minute}, backlog.Limits{}, func(k *tank) int {
			k.publish("q", 1)
			deadtest.Pass(2 * time.Minute)
			k.publish("q", 1)
			k.handle("q", 1)
			k.refresh()
			return k.publish("q", 1)
		}, 1},
		{"all queues together", backlog.Limits{}, backlog.Limits{Depth: 5}, func(k *tank) int { return k.publish("a", 3) + k.publish("b", 4) }, 5},
		{"none", backlog.Limits{}, backlog.Limits{}, func(k *tank) int { return k.publish("q", 100) }, 100},
		{"one message fits always", backlog.Limits{Bytes: 5}, backlog.Limits{}, func(k *tank) int { return k.publish("q", 3) }, 1},
		{"what waits since before", backlog.Limits{Depth: 5}, backlog.Limits{}, func(k *tank) int {
			for i := range 4 {
				if err := redrive.Publish(context.Background(), k.store, "q", "x", redrive.WithID(fmt.Sprint("old", i))); err != nil {
					k.t.Fatal(err)
				}
			}
			return k.publish("q", 3)
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newTank(t, c.limits, backlog.Options{Total: c.total})
				if got := c.run(k); got != c.want {
					t.Errorf("%d were accepted, want %d", got, c.want)
				}
			})
		})
	}
}

func TestLimiterAnswersItemByItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTank(t, backlog.Limits{Depth: 2}, backlog.Options{})
		k.publish("full", 2)
		msgs := []redrive.Message{{Queue: "a"}, {Queue: "full"}, {Queue: "b", ID: "b1"}, {Queue: "b", ID: "b1"}, {Queue: "b", ID: "b1", Body: []byte("x")}}
		errs := k.limiter.Publish(context.Background(), msgs)
		for i, want := range []error{nil, redrive.ErrBacklogged, nil, redrive.ErrDuplicate, redrive.ErrBacklogged} {
			if !errors.Is(errs[i], want) {
				t.Errorf("item %d: %v, want %v", i, errs[i], want)
			}
		}
		if msgs[0].ID == "" {
			t.Error("no id was filled in")
		}
		var e *redrive.Error
		if !errors.As(errs[1], &e) || e.Queue != "full" {
			t.Errorf("the refusal does not name its queue: %v", errs[1])
		}
		if got := k.publish("b", 1); got != 1 {
			t.Error("a duplicate, which was not stored, was counted")
		}
	})
}

func TestLimiterRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTank(t, backlog.Limits{Depth: 1000}, backlog.Options{})
		k.publish("q", 1001)
		if after := k.level("q", driver.LevelRefused); after != 5*time.Second {
			t.Errorf("while nothing was seen to drain: %s", after)
		}
		for range 18 { // 10 a second
			deadtest.Pass(time.Second)
			k.handle("q", 10)
			k.publish("q", 1)
		}
		// 820 wait, the soft limit is at 800: two seconds.
		if after := k.level("q", driver.LevelRefused); after < 1500*time.Millisecond || after > 3*time.Second {
			t.Errorf("with 20 too many at 10/s: %s", after)
		}
	})
}

func TestLimiterReadsCountsRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTank(t, backlog.Limits{Depth: 1_000_000}, backlog.Options{Refresh: 100 * time.Millisecond})
		for range 1000 {
			k.publish("q", 3)
			k.limiter.Level("q")
			deadtest.Pass(time.Millisecond)
		}
		if n := k.store.asked.Load(); n > 11 {
			t.Errorf("the store was asked %d times in a second", n)
		}
		asked := k.store.asked.Load()
		for i := range 10_000 {
			k.limiter.Level(fmt.Sprint("queue", i))
		}
		if n := k.store.asked.Load() - asked; n > 10_000 {
			t.Errorf("the store was asked %d times for 10,000 new queues", n)
		}
	})
}

func TestLimiterOutlivesAFaultOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTank(t, backlog.Limits{Depth: 3}, backlog.Options{})
		broken := errors.New("broken")
		k.store.fault.Store(&broken)
		if got := k.publish("q", 1); got != 1 {
			t.Error("refused because the counts could not be read")
		}
		k.store.fault.Store(nil)
		k.publish("q", 1)
		k.refresh()
		k.store.fault.Store(&broken)
		if got := k.publish("q", 5); got != 1 {
			t.Errorf("%d were accepted on old counts, 1 has room", got)
		}
	})
}

// TestWhatIsCountedTwiceIsRefusedEarly publishes while the counts are read, which have it
// too: until they are read again it may be refused early, and then no longer.
func TestWhatIsCountedTwiceIsRefusedEarly(t *testing.T) {
	for name, limits := range map[string][2]backlog.Limits{"queue": {{Depth: 100}}, "total": {{}, {Depth: 100}}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newTank(t, limits[0], backlog.Options{Total: limits[1]})
				k.publish("q", 50)
				k.refresh()
				k.store.before = func() { k.publish("q", 3) }
				if got := k.publish("q", 40); got != 40 {
					t.Errorf("%d of 40 were accepted, 47 have room", got)
				}
				k.refresh()
				if got := k.publish("q", 20); got != 7 {
					t.Errorf("%d of the next 20 were accepted, 7 have room", got)
				}
				k.level("q", driver.LevelRefused)
			})
		})
	}
}

// TestARefusalByWhatIsCountedTwiceIsShort refuses by counts that may hold messages twice:
// there is room again as soon as they are read again, and not only below the soft limit.
func TestARefusalByWhatIsCountedTwiceIsShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTank(t, backlog.Limits{Depth: 100}, backlog.Options{})
		k.publish("q", 90)
		k.refresh()
		k.store.before = func() { k.publish("q", 3) }
		if got := k.publish("q", 20); got != 4 {
			t.Errorf("%d of 20 were accepted, 4 have room where 3 count twice", got)
		}
		k.level("q", driver.LevelRefused)
		k.refresh()
		k.level("q", driver.LevelWarn)
		if got := k.publish("q", 20); got != 3 {
			t.Errorf("%d of the next 20 were accepted, 3 have room", got)
		}
		k.refresh()
		k.handle("q", 10)
		if got := k.publish("q", 1); got != 0 {
			t.Error("accepted above the soft limit, after a refusal by counts that are sure")
		}
	})
}

// TestLimiterHoldsAgainstConcurrentPublishers reads the counts all the time: the limit is
// exceeded at most by what was in flight.
func TestLimiterHoldsAgainstConcurrentPublishers(t *testing.T) {
	const depth, publishers, each = 200, 16, 5000
	store := memory.New()
	defer store.Close()
	w := backlog.New(store, func(string) backlog.Limits { return backlog.Limits{Depth: depth} }, backlog.Options{Refresh: time.Microsecond})
	var wg sync.WaitGroup
	var accepted atomic.Int64
	for range publishers {
		wg.Go(func() {
			for range each {
				if redrive.Publish(context.Background(), w, "q", "x") == nil {
					accepted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	counts, err := store.Counts(context.Background(), "q")
	if err != nil {
		t.Fatal(err)
	}
	if n := counts[0].AllWaiting(); n > depth+publishers || n != accepted.Load() || n < depth*9/10 {
		t.Errorf("%d wait and %d were accepted, the limit is %d and what was in flight", n, accepted.Load(), depth)
	}
}

func BenchmarkLimiterLevel(b *testing.B) {
	store := memory.New()
	defer store.Close()
	w := backlog.New(store, func(string) backlog.Limits { return backlog.Limits{Depth: 1 << 40} }, backlog.Options{})
	b.ReportAllocs()
	for range b.N {
		w.Level("q")
	}
}

func TestLimiterAppliesAllOrNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newTank(t, backlog.Limits{Depth: 10}, backlog.Options{})
		apply := func(n int) error {
			b := driver.Batch{Records: []driver.RecordWrite{{Space: "s", Key: "k", Value: []byte{1}, Version: driver.AnyVersion}}}
			for range n {
				b.Publish = append(b.Publish, redrive.Message{Queue: "q", Body: []byte("0123456789")})
			}
			_, err := k.limiter.Apply(t.Context(), b)
			return err
		}
		if err := apply(8); err != nil {
			t.Fatal(err)
		}
		if err := apply(3); !errors.Is(err, redrive.ErrBacklogged) {
			t.Errorf("3 above 8 of 10: %v", err)
		}
		if n := k.publish("q", 1); n != 0 {
			t.Errorf("what was refused stays refused until it is below the soft limit: %d accepted", n)
		}
		k.handle("q", 2)
		<-time.After(time.Second)
		if err := apply(4); err != nil {
			t.Errorf("4 above 6 of 10: %v", err)
		}
		if err := apply(0); err != nil {
			t.Errorf("records pass always: %v", err)
		}
	})
}
