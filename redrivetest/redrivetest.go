// Package redrivetest lets a test run a message through a handler and a policy as the
// engine would, with a clock that does not take real time: hours of retries end at once.
package redrivetest

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/middleware"
)

// Options changes what [Run] does. Every field has a default.
type Options struct {
	// Queue has the options of the queue, such as its policies. A policy that stands
	// beside the handler ([redrive.WithPolicy]) counts without them. The breaker is off,
	// as one message is no outage.
	Queue engine.QueueOptions
	// Limit is how long the message may live, by the test's clock. Defaults to 30 days.
	Limit time.Duration
}

// Attempt is one call of the handler.
type Attempt struct {
	At  time.Duration // since the message was published
	Err error         // what the handler returned
}

// Result is what became of the message.
type Result struct {
	// Outcome is OutcomeDone (also when a policy dropped it; see Dropped) or
	// OutcomeDead, or 0 when it was not at its end within the limit.
	Outcome redrive.Outcome
	// Reason says why it is dead.
	Reason redrive.Reason
	// Dropped says that the policy dropped it.
	Dropped  bool
	Attempts []Attempt
	// Took is how long the message lived, by the test's clock.
	Took time.Duration
	// Entry is the dead letter with its history, nil if the message was delivered.
	Entry *redrive.Entry
	// Emitted are the messages that the handler emitted, and the result if ReplyTo was
	// set.
	Emitted []redrive.Message
}

const (
	defaultLimit = 30 * 24 * time.Hour
	defaultQueue = "test"
)

// Run publishes a message, lets the engine hand it to the handler as the policy says, and
// returns what became of it. An empty queue is "test". It runs in a bubble of
// testing/synctest: the handler must not wait for the network or for goroutines outside,
// and Run cannot be called in another bubble. What the engine could not do fails the test,
// and so does, at once, a message of a kind that the handler does not know.
func Run(t *testing.T, m redrive.Message, h redrive.Handler, o ...Options) Result {
	t.Helper()
	var opts Options
	switch len(o) {
	case 0:
	case 1:
		opts = o[0]
	default:
		t.Fatal("redrivetest.Run takes at most one Options")
	}
	if opts.Limit <= 0 {
		opts.Limit = defaultLimit
	}
	if m.Queue == "" {
		m.Queue = defaultQueue
	}
	requireKind(t, h, m.Kind)
	var r Result
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		r = run(t, m, h, &opts)
	})
	return r
}

// requireKind fails the test if the handler names its kinds, and this is none of them.
func requireKind(t testing.TB, h redrive.Handler, kind string) {
	t.Helper()
	if kinds, all := driver.KindsOf(h); !all && !slices.Contains(kinds, kind) {
		t.Fatalf("no handler for kind %q; there are handlers for %q", kind, kinds)
	}
}

// run is Run within the bubble.
func run(t *testing.T, m redrive.Message, h redrive.Handler, o *Options) (r Result) {
	t.Helper()
	store := memory.New()
	defer store.Close() //nolint:errcheck // a store in memory has nothing to lose
	began := time.Now()
	queue := o.Queue
	queue.Breaker.Off = true
	queue.Concurrency = 1
	engine := engine.New(store, engine.Options{Service: "redrivetest", Environment: "test", Logger: slog.New(slog.DiscardHandler)})
	watch := func(h redrive.Handler) redrive.Handler {
		return redrive.HandlerFunc(func(ctx context.Context, d *redrive.Delivery) error {
			at := time.Since(began)
			returned := false
			defer func() {
				if !returned { // it panics, which is the engine's to handle
					r.Attempts = append(r.Attempts, Attempt{At: at, Err: errPanic})
				}
			}()
			err := h.ServeDelivery(ctx, d)
			returned = true
			if errors.Is(err, redrive.ErrNoHandler) {
				t.Errorf("kind %q: %v", d.Kind, err)
			}
			r.Attempts = append(r.Attempts, Attempt{At: at, Err: err})
			return err
		})
	}
	if err := engine.Handle(m.Queue, middleware.Chain(h, watch), queue); err != nil {
		t.Fatal(err)
	}
	msgs := []redrive.Message{m}
	if err := driver.FirstError(store.Publish(t.Context(), msgs)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- engine.Run(ctx) }()
	await(t, store, msgs[0].Ref(), o.Limit, &r)
	r.Took = time.Since(began)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	r.Emitted = others(t, store, msgs[0].Ref())
	return r
}

// panicked stands for what a handler returned that panicked.
type panicked struct{}

func (panicked) Error() string { return "the handler panicked" }

func (panicked) ErrorName() string { return "redrivetest.Panic" }

var errPanic error = panicked{}

// await waits until the message is at its end.
func await(t *testing.T, store driver.Store, ref redrive.Ref, limit time.Duration, r *Result) {
	t.Helper()
	for until := time.Now().Add(limit); ; {
		synctest.Wait()
		entries, err := store.Get(t.Context(), []redrive.Ref{ref})
		if err != nil {
			t.Fatal(err)
		}
		e := entries[0]
		switch {
		case e == nil:
			r.Outcome = redrive.OutcomeDone
			counts, err := store.Counts(t.Context(), ref.Queue)
			if err != nil {
				t.Fatal(err)
			}
			r.Dropped = counts[0].Ledger.Dropped > 0
			return
		case e.State == redrive.StateDead:
			r.Outcome, r.Reason, r.Entry = redrive.OutcomeDead, e.Reason, e
			return
		case time.Now().After(until), t.Failed():
			return
		}
		pause := time.Until(e.Due)
		if e.State != redrive.StateWaiting || pause <= 0 {
			pause = time.Millisecond
		}
		time.Sleep(pause) // of the bubble's clock
	}
}

// others returns the messages beside the one under test.
func others(t *testing.T, store driver.Store, ref redrive.Ref) (list []redrive.Message) {
	t.Helper()
	for q := (redrive.Query{Bodies: true}); ; {
		page, err := store.Find(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Entries {
			if m := page.Entries[i].Message; m.Ref() != ref {
				list = append(list, m)
			}
		}
		if q.After = page.Next; q.After == "" {
			return list
		}
	}
}
