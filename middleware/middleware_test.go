package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/middleware"
)

func TestChainCallsTheFirstFirst(t *testing.T) {
	var calls []string
	note := func(name string) middleware.Middleware {
		return func(h redrive.Handler) redrive.Handler {
			return redrive.HandlerFunc(func(ctx context.Context, d *redrive.Delivery) error {
				calls = append(calls, name)
				return h.ServeDelivery(ctx, d)
			})
		}
	}
	h := middleware.Chain(redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error {
		calls = append(calls, "handler")
		return nil
	}), note("first"), note("second"))
	if err := h.ServeDelivery(context.Background(), new(redrive.Delivery)); err != nil {
		t.Fatal(err)
	}
	if want := []string{"first", "second", "handler"}; !slices.Equal(calls, want) {
		t.Errorf("%v, want %v", calls, want)
	}
}

// Each middleware shows the kinds of a mux and their options, in a chain or by itself.
func TestKindsOfAMuxAreShown(t *testing.T) {
	store := memory.New()
	defer store.Close()
	for name, wrap := range map[string]middleware.Middleware{
		"chain": func(h redrive.Handler) redrive.Handler { return middleware.Chain(h, middleware.Timeout(time.Second)) },
		"chain of one that hides them": func(h redrive.Handler) redrive.Handler {
			return middleware.Chain(h, func(h redrive.Handler) redrive.Handler { return redrive.HandlerFunc(h.ServeDelivery) })
		},
		"timeout": middleware.Timeout(time.Second),
		"recover": middleware.Recover(),
		"metrics": middleware.Metrics(func(*redrive.Delivery, time.Duration, middleware.Ending, error) {}),
		"tracing": middleware.Tracing(nil),
		"logging": middleware.Logging(slog.Default()),
		"dedupe":  middleware.Dedupe(store, middleware.DedupeOptions{}),
	} {
		mux := redrive.NewMux()
		mux.Handle("sms", redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error { return nil }), redrive.WithConcurrency(3))
		r, ok := wrap(mux).(driver.Registry)
		if !ok {
			t.Errorf("%s: the kinds are hidden", name)
			continue
		}
		if kinds, all := r.Kinds(); !slices.Equal(kinds, []string{"sms"}) || all || r.Lookup("sms").Concurrency != 3 {
			t.Errorf("%s: %v, %v", name, kinds, all)
		}
	}
}

func TestTimeoutEndsTheHandlersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wait := redrive.HandlerFunc(func(ctx context.Context, _ *redrive.Delivery) error {
			<-ctx.Done()
			return ctx.Err()
		})
		began := time.Now()
		err := middleware.Chain(wait, middleware.Timeout(3*time.Second)).ServeDelivery(context.Background(), new(redrive.Delivery))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
	for _, d := range []time.Duration{0, -1} {
		h := middleware.Chain(redrive.HandlerFunc(func(ctx context.Context, _ *redrive.Delivery) error { return ctx.Err() }), middleware.Timeout(d))
		if err := h.ServeDelivery(context.Background(), new(redrive.Delivery)); err != nil {
			t.Errorf("a timeout of %s: %v", d, err)
		}
	}
}

func TestLogging(t *testing.T) {
	var out bytes.Buffer
	l := slog.New(slog.NewTextHandler(&out, nil))
	var fails error
	h := middleware.Chain(redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error { return fails }), middleware.Logging(l))
	d := &redrive.Delivery{Message: redrive.Message{ID: "m1", Queue: "q", Kind: "k"}, Attempt: 2}
	if err := h.ServeDelivery(context.Background(), d); err != nil || out.Len() != 0 {
		t.Errorf("a success at level info: %v, %s", err, &out)
	}
	fails = errors.New("no luck")
	if err := h.ServeDelivery(context.Background(), d); !errors.Is(err, fails) {
		t.Errorf("the error became %v", err)
	}
	for _, want := range []string{"queue=q", "id=m1", "kind=k", "attempt=2", `error="no luck"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in %s", want, &out)
		}
	}
}

// What is no failure is not counted, logged or traced as one, and the engine gets it as
// it is.
func TestEndings(t *testing.T) {
	failed := errors.New("no luck")
	for name, c := range map[string]struct {
		err   error
		want  middleware.Ending
		log   string
		fails bool
	}{
		"done":           {nil, middleware.Done, "attempt succeeded", false},
		"settled":        {fmt.Errorf("here: %w", redrive.ErrSettled), middleware.Settled, "settled by the handler", false},
		"runs again":     {redrive.RepeatAfter(time.Minute), middleware.Again, "attempt succeeded, runs again", false},
		"failed":         {failed, middleware.Failed, "attempt failed", true},
		"for good":       {redrive.Permanent(failed), middleware.Failed, "attempt failed", true},
		"with a release": {redrive.Uncounted(failed, time.Minute), middleware.Failed, "attempt failed", true},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			var counted middleware.Ending
			var observed, ended error
			h := middleware.Chain(redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error { return c.err }),
				middleware.Logging(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))),
				middleware.Metrics(func(_ *redrive.Delivery, _ time.Duration, how middleware.Ending, err error) {
					counted, observed = how, err
				}),
				middleware.Tracing(func(ctx context.Context, _ *redrive.Delivery) (context.Context, func(error)) {
					return ctx, func(err error) { ended = err }
				}))
			if err := h.ServeDelivery(context.Background(), new(redrive.Delivery)); err != c.err { //nolint:errorlint // it is passed on as it is
				t.Errorf("the engine gets %v", err)
			}
			if counted != c.want || (observed != nil) != c.fails || (ended != nil) != c.fails {
				t.Errorf("counted as %s with %v, traced with %v", counted, observed, ended)
			}
			level := map[bool]string{false: "DEBUG", true: "INFO"}[c.fails]
			if !strings.Contains(out.String(), "level="+level) || !strings.Contains(out.String(), c.log) || strings.Contains(out.String(), "error=") != c.fails {
				t.Errorf("logged %s", &out)
			}
		})
	}
}

// What a handler settled itself was handled: it is not handled again. What runs again
// was handled, too, but its next generation has the same id.
func TestDedupeOfWhatIsNoFailure(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		calls int
	}{"settled": {redrive.ErrSettled, 1}, "runs again": {redrive.RepeatAfter(time.Minute), 2}} {
		t.Run(name, func(t *testing.T) {
			store := memory.New()
			defer store.Close()
			calls := 0
			h := middleware.Chain(redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error {
				calls++
				return c.err
			}), middleware.Dedupe(store, middleware.DedupeOptions{}))
			d := &redrive.Delivery{Message: redrive.Message{Queue: "q", ID: "i"}}
			if err := h.ServeDelivery(t.Context(), d); !errors.Is(err, c.err) {
				t.Errorf("the engine gets %v", err)
			}
			_ = h.ServeDelivery(t.Context(), d)
			if calls != c.calls {
				t.Errorf("%d calls, want %d", calls, c.calls)
			}
		})
	}
	t.Run("settled, and not remembered", func(t *testing.T) {
		store := memory.New()
		h := middleware.Chain(redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error {
			_ = store.Close()
			return redrive.ErrSettled
		}), middleware.Dedupe(store, middleware.DedupeOptions{}))
		err := h.ServeDelivery(t.Context(), &redrive.Delivery{Message: redrive.Message{Queue: "q", ID: "i"}})
		if !errors.Is(err, redrive.ErrSettled) || !errors.Is(err, redrive.ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}

func TestDedupeRemembersOnlySuccess(t *testing.T) {
	store := memory.New()
	defer store.Close()
	calls, fail := 0, true
	h := middleware.Chain(redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error {
		calls++
		if fail {
			return errors.New("not yet")
		}
		return nil
	}), middleware.Dedupe(store, middleware.DedupeOptions{Key: func(d *redrive.Delivery) string { return d.Key }, Keep: time.Hour}))
	run := func(queue, key string) error {
		return h.ServeDelivery(context.Background(), &redrive.Delivery{Message: redrive.Message{Queue: queue, ID: redrive.NewID(), Key: key}})
	}
	for range 2 {
		if err := run("q", "k"); err == nil {
			t.Error("a failure was swallowed")
		}
	}
	if calls != 2 {
		t.Errorf("a failure was remembered: %d calls", calls)
	}
	fail = false
	for range 3 {
		if err := run("q", "k"); err != nil {
			t.Error(err)
		}
	}
	if calls != 3 {
		t.Errorf("after the success %d calls", calls)
	}
	if err := errors.Join(run("q", ""), run("q", ""), run("other", "k")); err != nil || calls != 6 {
		t.Errorf("without a key, and in another queue: %d calls", calls)
	}
}

func TestTracingEndsASpanOfAPanic(t *testing.T) {
	var ended error
	h := middleware.Chain(redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error { panic("oh") }),
		middleware.Recover(), middleware.Tracing(func(ctx context.Context, _ *redrive.Delivery) (context.Context, func(error)) {
			return ctx, func(err error) { ended = err }
		}))
	err := h.ServeDelivery(context.Background(), &redrive.Delivery{})
	var p *redrive.PanicError
	if !errors.As(err, &p) || p.Stack == "" || ended == nil {
		t.Errorf("%v; the span ended with %v", err, ended)
	}
}
