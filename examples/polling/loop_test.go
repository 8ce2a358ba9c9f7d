package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/redistest"
	"github.com/redrive/redrive/internal/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m.Run)) }

// bank is what is polled. It notices an account that is polled twice at once.
type bank struct {
	t      *testing.T
	mu     sync.Mutex
	open   map[string]bool
	polls  map[string]int
	locked map[string]bool
}

func (b *bank) poll(_ context.Context, account string) error {
	b.mu.Lock()
	if b.open[account] {
		b.t.Errorf("%s is polled twice at once", account)
	}
	b.open[account] = true
	b.polls[account]++
	locked := b.locked[account]
	b.mu.Unlock()
	<-time.After(time.Millisecond)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[account] = false
	if locked {
		return errLocked
	}
	return nil
}

func (b *bank) lock(account string, locked bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.locked[account] = locked
}

// all returns the polls of all accounts.
func (b *bank) all() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	polls := make(map[string]int, len(b.polls))
	maps.Copy(polls, b.polls)
	return polls
}

// turns waits until each account had n more turns.
func (b *bank) turns(n int, accounts ...string) {
	b.t.Helper()
	before := b.all()
	servertest.Until(b.t, fmt.Sprintf("%d turns of %v", n, accounts), func() bool {
		now := b.all()
		for _, a := range accounts {
			if now[a] < before[a]+n {
				return false
			}
		}
		return true
	})
}

func TestLoop(t *testing.T) {
	const accounts = 40
	url := redistest.Shared(t).URL()
	prefix := redistest.Prefix()
	b := &bank{t: t, open: map[string]bool{}, polls: map[string]int{}, locked: map[string]bool{}}
	ctx := t.Context()
	policy := redrive.Policy{MaxAttempts: 2, Backoff: redrive.Fixed{Interval: 2 * time.Millisecond}}
	var loops []*Loop
	var stops []func()
	for range 3 {
		l, err := NewLoop(ctx, url, prefix, 5*time.Millisecond, b.poll)
		if err != nil {
			t.Fatal(err)
		}
		work, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- l.Work(work, policy) }()
		stop := sync.OnceFunc(func() {
			cancel()
			if err := errors.Join(<-done, l.Close()); err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(stop)
		loops, stops = append(loops, l), append(stops, stop)
	}
	l := loops[0]
	names := make([]string, accounts)
	for i := range names {
		names[i] = fmt.Sprintf("account-%d", i)
		noErr(t, l.Add(ctx, names[i]))
		noErr(t, loops[1].Add(ctx, names[i])) // again: it stays there once
	}
	b.turns(5, names...)
	stops[2]() // a worker leaves, and its accounts stay
	b.turns(5, names...)

	// One is stopped, and added again.
	noErr(t, l.Stop(ctx, "account-3"))
	servertest.Until(t, "account-3 to leave", func() bool { return l.redis.SIsMember(ctx, l.leaving, "account-3").Val() })
	left := b.all()["account-3"]
	b.turns(5, "account-4")
	if n := b.all()["account-3"]; n != left {
		t.Errorf("account-3 was polled %d times after it left", n-left)
	}
	noErr(t, l.Add(ctx, "account-3"))
	b.turns(5, names...)

	// Stopped and added in any order, it is in the loop in the end.
	for range 20 {
		noErr(t, l.Stop(ctx, "account-5"))
		noErr(t, loops[1].Add(ctx, "account-5"))
	}
	b.turns(3, "account-5")

	// One fails until it is exhausted: it leaves the loop visibly.
	b.lock("account-7", true)
	var failed []redrive.Entry
	servertest.Until(t, "account-7 to leave", func() bool {
		var err error
		failed, err = l.Failed(ctx)
		noErr(t, err)
		return len(failed) == 1
	})
	if f := failed[0]; f.ID != "account-7" || f.Reason != redrive.ReasonExhausted || f.History.Count != 2 || f.History.Latest().Message != errLocked.Error() {
		t.Errorf("what failed: %+v", f)
	}
	b.lock("account-7", false)
	noErr(t, l.PutBack(ctx, "account-7"))
	b.turns(5, names...)
	if failed, err := l.Failed(ctx); err != nil || len(failed) != 0 {
		t.Errorf("still failed: %v, %v", failed, err)
	}
	c, err := l.list.Counts(ctx, queue)
	noErr(t, err)
	if n := c.Waiting + c.Delayed + c.Retries + c.Redriven + c.Processing; n != accounts {
		t.Errorf("%d messages in the loop of %d accounts: %+v", n, accounts, c)
	}
}

func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
