package alerts

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

// inbox is a receiver's end, of all daemons together.
type inbox struct {
	mu   sync.Mutex
	got  []string // "r: title"
	fail error
}

func (i *inbox) take() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	got := i.got
	i.got = nil
	return got
}

func (i *inbox) refuse(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fail = err
}

// errPanic has a receiver panic.
var errPanic = errors.New("on purpose")

// end is the inbox as one watcher's receiver has it.
type end struct {
	name string
	*inbox
}

func (e end) to() string { return e.name }

func (e end) send(_ context.Context, m *message) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fail != nil && e.name == "r" {
		if errors.Is(e.fail, errPanic) {
			panic(e.fail)
		}
		return e.fail
	}
	e.got = append(e.got, e.name+": "+strings.TrimPrefix(m.title(), "redrive test: "))
	return nil
}

// shared is a store that several processes have open.
type shared struct{ driver.Store }

func (s shared) Caps() driver.Caps {
	c := s.Store.Caps()
	c.Exclusive = false
	return c
}

// site is daemons on one store, in the clock of the test.
type site struct {
	store driver.Store
	inbox
	mu    sync.Mutex
	facts Facts
	here  Here
	names []string // of receivers
	heart bool     // it has a heartbeat
	beats int
}

func (s *site) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// run starts a daemon's watcher. Its end gives the lease back, but for one that is killed.
func (s *site) run(t *testing.T, instance string, log *strings.Builder) (w *Watcher, stop func()) {
	w = New(Options{
		Store: s.store, Instance: instance, Version: "test", Logger: slog.New(slog.NewTextHandler(log, nil)),
		Settings: func() Settings {
			c := Settings{Environment: "test"}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.heart {
				c.Heartbeat = config.NewSecret("https://example.com")
			}
			for _, name := range s.names {
				c.Receivers = append(c.Receivers, config.Receiver{Name: name, Slack: config.NewSecret("https://example.com")})
			}
			return c
		},
		Look: func(context.Context, bool) (*Facts, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			f := s.facts
			f.Now = time.Now()
			return &f, nil
		},
		Here: func() Here {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.here
		},
	})
	w.build = func(r *config.Receiver, _ string) (sender, error) { return end{r.Name, &s.inbox}, nil }
	w.pulse = func(*config.Alerts, string, string) (func(context.Context, string) error, error) {
		return func(context.Context, string) error { s.change(func() { s.beats++ }); return nil }, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	return w, func() { cancel(); <-done }
}

func pass(d time.Duration) {
	time.Sleep(d) // of the bubble's clock
	synctest.Wait()
}

func stopped(id string) wire.Plan { return wire.Plan{ID: id, State: wire.PlanStopped} }

// Of two daemons one sends; when it ends the other goes on where it was, and says nothing twice.
func TestOneDaemonSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{store: shared{memory.New()}, names: []string{"r"}}
		var logs [2]strings.Builder
		_, stopA := s.run(t, "a", &logs[0])
		pass(time.Second)
		_, stopB := s.run(t, "b", &logs[1])
		defer stopB()
		pass(time.Minute)
		s.change(func() { s.facts.Plans = []wire.Plan{stopped("p")} })
		pass(10 * time.Minute)
		if got := s.take(); !slices.Equal(got, []string{"r: firing: plan stopped, plan/p"}) {
			t.Fatalf("%q", got)
		}
		list, err := List(t.Context(), s.store, nil, "")
		if err != nil || len(list.Items) != 1 || list.Items[0].SentAt == nil || list.Sender != "a" || len(list.Receivers) != 1 || list.Receivers[0].SentAt == nil {
			t.Errorf("%+v %v", list, err)
		}
		stopA()
		pass(10 * time.Minute)
		if got := s.take(); len(got) > 0 {
			t.Errorf("the next daemon says again: %q", got)
		}
		s.change(func() { s.facts.Plans = []wire.Plan{stopped("q")} })
		pass(10 * time.Minute)
		if got := s.take(); !slices.Equal(got, []string{"r: firing: plan stopped, plan/q", "r: over: plan stopped, plan/p"}) {
			t.Errorf("%q", got)
		}
		if list, err := List(t.Context(), s.store, nil, ""); err != nil || list.Sender != "b" || len(list.Items) != 1 {
			t.Errorf("%+v %v", list, err)
		}
		if logs[0].Len()+logs[1].Len() > 0 {
			t.Error(logs[0].String(), logs[1].String())
		}
	})
}

// A receiver that takes nothing is an alert to the others, and gets what it missed when it is back.
func TestAReceiverThatFails(t *testing.T) {
	t.Run("it refuses", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { failingReceiver(t, errors.New("410 gone"), "410 gone") })
	})
	t.Run("it panics", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { failingReceiver(t, errPanic, "panic: the log says more") })
	})
}

func failingReceiver(t *testing.T, fail error, said string) {
	s := &site{store: memory.New(), names: []string{"r", "other"}}
	var log strings.Builder
	_, stop := s.run(t, "a", &log)
	defer stop()
	s.refuse(fail)
	s.change(func() { s.facts.Plans = []wire.Plan{stopped("p")} })
	pass(20 * time.Minute)
	if got := s.take(); !slices.Equal(got, []string{"other: firing: plan stopped, plan/p", "other: firing: unsent, receiver/r"}) {
		t.Fatalf("%q", got)
	}
	list, err := List(t.Context(), s.store, nil, "")
	if err != nil || len(list.Items) != 2 || list.Receivers[0].FailingSince == nil || list.Receivers[0].Error != said {
		t.Errorf("%+v %v", list, err)
	}
	s.refuse(nil)
	pass(20 * time.Minute)
	if got := s.take(); !slices.Equal(got, []string{"r: firing: plan stopped, plan/p", "other: over: unsent, receiver/r"}) {
		t.Errorf("%q", got)
	}
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(log.String()), "\n"), func(l string) bool { return strings.Contains(l, "panicked") })
	if text := log.String(); len(lines) != 2 || strings.Contains(text, "panicked") != errors.Is(fail, errPanic) || !strings.Contains(text, "could not be sent") || !strings.Contains(text, "sent again") {
		t.Error(text)
	}
}

// A store that is away is reported from memory, by each daemon that sees it.
func TestTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{store: memory.New(), names: []string{"r"}}
		var log strings.Builder
		w, stop := s.run(t, "a", &log)
		defer stop()
		pass(time.Minute)
		s.change(func() { s.here.StoreAway, s.facts.Plans = time.Now(), []wire.Plan{stopped("p")} })
		pass(20 * time.Minute)
		if got := s.take(); !slices.Equal(got, []string{"r: firing: store away, store"}) {
			t.Fatalf("%q", got)
		}
		if list, err := List(t.Context(), s.store, w, ""); err != nil || len(list.Items) != 1 || list.Items[0].Subject != "store" {
			t.Errorf("%+v %v", list, err)
		}
		s.change(func() { s.here.StoreAway = time.Time{} })
		pass(20 * time.Minute)
		got := s.take()
		slices.Sort(got)
		if !slices.Equal(got, []string{"r: firing: plan stopped, plan/p", "r: over: store away, store"}) {
			t.Errorf("%q", got)
		}
	})
}

// Without a receiver nothing is watched, and no lease is held.
func TestWithoutReceivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{store: memory.New()}
		s.facts.Plans = []wire.Plan{stopped("p")}
		var log strings.Builder
		w, stop := s.run(t, "a", &log)
		defer stop()
		pass(10 * time.Minute)
		if _, err := s.store.GetRecord(t.Context(), "leases", "alerts"); err == nil {
			t.Error("it holds a lease")
		}
		if got := w.Test(t.Context()); len(got) > 0 {
			t.Errorf("%+v", got)
		}
	})
}
