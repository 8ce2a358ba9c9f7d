package delivery_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/delivery"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// eventually polls until the engine, which works in other goroutines and over real
// connections, has done what is expected.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(20 * time.Second); ; {
		select {
		case <-tick.C:
			if done() {
				return
			}
		case <-deadline:
			t.Fatalf("it did not happen that %s", what)
		}
	}
}

// run delivers the queue "hooks" of a store until the test ends.
func run(t *testing.T, h *delivery.Handler) (*memory.Store, *engine.Engine) {
	t.Helper()
	store := memory.New()
	e := engine.New(store, engine.Options{})
	if err := e.Handle("hooks", h, engine.QueueOptions{Target: h.Target(), Gates: h.Gates()}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = store.Close()
		h.Close()
	})
	return store, e
}

func publish(t *testing.T, s *memory.Store, msgs ...redrive.Message) {
	t.Helper()
	if err := driver.FirstError(s.Publish(t.Context(), msgs)); err != nil {
		t.Fatal(err)
	}
}

func TestAnswerBecomesTheResult(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":17,"more":"than fits"}`)
	}))
	defer server.Close()
	h, err := delivery.New(delivery.Target{URL: server.URL, AllowPrivate: true, MaxResponse: 9}, delivery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store, _ := run(t, h)
	publish(t, store, redrive.Message{ID: "a", Queue: "hooks", ReplyTo: "results"})
	var page driver.Page
	eventually(t, "a result is there", func() bool {
		page, err = store.Find(t.Context(), redrive.Query{Queue: "results", Bodies: true})
		return err != nil || len(page.Entries) == 1
	})
	if err != nil {
		t.Fatal(err)
	}
	m := page.Entries[0].Message
	if string(m.Body) != `{"id":17,` {
		t.Errorf("body %q", m.Body)
	}
	for name, want := range map[string]string{"content-type": "application/json", delivery.HeaderStatus: "201",
		delivery.HeaderTruncated: "true", redrive.HeaderOutcome: "done", redrive.HeaderReplyFor: "hooks/a"} {
		if got, _ := m.Headers.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestGoneDisablesTheTarget(t *testing.T) {
	var requests atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusGone)
		_, _ = io.WriteString(w, "unsubscribed")
	}))
	defer server.Close()
	h, err := delivery.New(delivery.Target{URL: server.URL, AllowPrivate: true, Concurrency: 1, Timeout: 7 * time.Second}, delivery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store, e := run(t, h)
	publish(t, store, redrive.Message{ID: "a", Queue: "hooks"}, redrive.Message{ID: "b", Queue: "hooks"}, redrive.Message{ID: "c", Queue: "hooks"})
	eventually(t, "the target is paused", func() bool { return len(e.Status()[0].Paused) == 1 })
	eventually(t, "one message is dead and two wait", func() bool {
		c, err := store.Counts(t.Context(), "hooks")
		return err == nil && c[0].AllDead() == 1 && c[0].AllWaiting() == 2 && c[0].Leased == 0
	})
	page, err := store.Find(t.Context(), redrive.Query{Queue: "hooks", State: redrive.StateDead, Bodies: true})
	if err != nil || len(page.Entries) != 1 {
		t.Fatal(page, err)
	}
	dead := page.Entries[0]
	f := dead.History.Latest()
	if dead.Reason != redrive.ReasonDisabled || f.Details["http.status"] != "410" || f.Details["http.response"] != "unsubscribed" ||
		f.Config.Target != h.Target() || f.Types[0] != "delivery.ResponseError" || f.Config.Timeout != 7*time.Second {
		t.Errorf("%v %+v", dead.Reason, f)
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestRefusalNeverMakesADeadLetter(t *testing.T) {
	h, err := delivery.New(delivery.Target{URL: "http://127.0.0.1:9/"}, delivery.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store, e := run(t, h)
	publish(t, store, redrive.Message{ID: "a", Queue: "hooks"})
	eventually(t, "the target is paused", func() bool { return len(e.Status()[0].Paused) == 1 })
	p := e.Status()[0].Paused[0]
	if p.Target != h.Target() || !strings.Contains(p.Reason, "set allow_private: true") || p.Until.IsZero() {
		t.Errorf("%+v", p)
	}
	var a *redrive.Entry
	eventually(t, "the message waits, uncounted", func() bool {
		got, err := store.Get(t.Context(), []redrive.Ref{{Queue: "hooks", ID: "a"}})
		if err != nil || got[0] == nil {
			return false
		}
		a = got[0]
		return a.State == redrive.StateWaiting && a.Attempts == 0
	})
	if a.History.Count != 0 {
		t.Errorf("%d failures counted", a.History.Count)
	}
}
