package alerts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

// Of very many causes the first have an alert each, and the rest one together, until there is room.
func TestTooManyCausesForAnAlertEach(t *testing.T) {
	d := newDesk(t)
	var causes []wire.Cause
	for i := range mostCauses + 200 {
		causes = append(causes, cause("orders", fmt.Sprintf("2-%05d", i), began))
	}
	facts := func() Facts { return Facts{Causes: some(causes...)} }
	d.during(facts, time.Minute)
	if n := d.board.firingCauses(); n != mostCauses {
		t.Errorf("%d alerts", n)
	}
	more := d.board[ofCauses]
	if more == nil || more.Numbers["causes"] != 200 || !strings.HasPrefix(more.Summary, "200 more causes") {
		t.Fatalf("%+v", more)
	}
	causes = causes[100:] // the first are gone
	d.during(facts, 5*time.Minute)
	if n := d.board.firingCauses(); n != mostCauses || more.State != wire.AlertFiring || more.Numbers["causes"] != 100 {
		t.Errorf("%d alerts and %+v", n, more)
	}
	causes = causes[100:]
	d.during(facts, 10*time.Minute)
	if n := d.board.firingCauses(); n != mostCauses || more.State != wire.AlertOver {
		t.Errorf("%d alerts and %+v", n, more)
	}
}

// A cause that ends is over however many there are: all are looked at.
func TestACauseAmongManyEnds(t *testing.T) {
	d := newDesk(t)
	dying := true
	facts := func() Facts {
		var all []wire.Cause
		for i := range 3000 {
			quiet := cause("orders", fmt.Sprintf("1-%05d", i), began.Add(-time.Hour))
			quiet.Quiet = true
			all = append(all, quiet)
		}
		if dying {
			all = append(all, cause("orders", "2-z", began))
		}
		return Facts{Causes: some(all...)}
	}
	d.during(facts, 5*time.Minute)
	dying = false
	d.during(facts, 10*time.Minute)
	d.wants("firing cause/orders/2-z/permanent cause_new", "over cause/orders/2-z/permanent cause_new")
}

// Causes that cannot be read to their end are no look.
func TestNoLookAtTheCauses(t *testing.T) {
	away := errors.New("away")
	w := &Watcher{flow: make(flow)}
	_, err := w.about(&Facts{Causes: func(yield func(*wire.Cause, error) bool) {
		c := cause("orders", "2-a", began)
		_ = yield(&c, nil) && yield(nil, away)
	}}, time.Hour)
	if !errors.Is(err, away) {
		t.Error(err)
	}
}

// What is remembered of alerts and queues does not grow for ever.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	b := make(board)
	a := (*alert)(nil)
	for i := range 50 {
		c := condition{subject: "cause/q/s/permanent", rule: wire.AlertCauseRegressed, once: fmt.Sprint(i), begins: true}
		if a.was(&c) {
			t.Fatal("it did not begin for", i)
		}
		a = a.begin(&c, began)
		if !a.was(&c) || len(a.Once) != 1 {
			t.Fatalf("%q", a.Once)
		}
	}
	ended := began
	for i := range mostOver + 10 {
		at := ended.Add(time.Duration(i) * time.Millisecond)
		s := fmt.Sprintf("plan/%d", i)
		b[s] = &alert{Alert: wire.Alert{Subject: s, State: wire.AlertOver, EndedAt: &at, Rules: []string{wire.AlertPlanStopped}}}
	}
	b.look(nil, began.Add(time.Minute), func(string) bool { return true })
	if len(b) != mostOver || b["plan/0"] != nil || b["plan/10"] == nil {
		t.Errorf("%d", len(b))
	}
	f := flow{"gone": {}, "there": {}}
	if f.only([]wire.Queue{{Queue: "there"}}); len(f) != 1 {
		t.Error(f)
	}
}

// A disk that is nearly full is an alert before the store takes nothing, and over with some room more.
func TestADiskThatIsNearlyFull(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		free, total  int64
		low, lingers bool
	}{
		{0, 0, false, false}, {50 * gib, 100 * gib, false, false}, {9 * gib, 100 * gib, true, true}, {11 * gib, 100 * gib, false, true}, {13 * gib, 100 * gib, false, false},
		{gib / 4, 2 * gib, true, true}, {gib * 9 / 16, 2 * gib, false, true}, {gib, 2 * gib, false, false}, {16 << 20, 64 << 20, false, true}, {15 << 20, 64 << 20, true, true},
	} {
		h := Here{Free: c.free, Total: c.total}
		got := withoutStore(&h, began)
		if low := len(got) == 1 && got[0].begins; low != c.low || (len(got) == 1) != c.lingers {
			t.Errorf("%d of %d: %+v", c.free, c.total, got)
		}
	}
	got := withoutStore(&Here{Free: gib, Total: 100 * gib, DiskFull: errors.New("no room")}, began)
	if len(got) != 2 || got[0].rule != wire.AlertDiskFull || got[1].rule != wire.AlertDiskLow || !strings.Contains(got[1].summary, "1024 of 102400 MiB") {
		t.Errorf("%+v", got)
	}
}

// Without receivers nothing fires any more: not here, and not in the store.
func TestTheLastReceiverIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{store: memory.New(), names: []string{"r", "gone"}}
		var log strings.Builder
		w, stop := s.run(t, "a", &log)
		defer stop()
		s.change(func() { s.facts.Plans = []wire.Plan{stopped("p")} })
		pass(time.Minute)
		s.change(func() { s.names = []string{"r"} })
		pass(time.Minute)
		w.mu.Lock()
		if sent := slices.Collect(maps.Keys(w.shared["plan/p"].Sent)); !slices.Equal(sent, []string{"r"}) {
			t.Errorf("%q", sent)
		}
		w.mu.Unlock()
		s.change(func() { s.names, s.here.DiskFull = nil, errors.New("no room") })
		pass(time.Minute)
		list, err := List(t.Context(), s.store, w, "")
		records, _ := s.store.ListRecords(t.Context(), space, "", 10)
		if err != nil || len(list.Items)+len(list.Receivers)+len(records) != 0 {
			t.Errorf("%+v %v %v", list, records, err)
		}
		s.take()
		s.change(func() { s.names, s.here.DiskFull = []string{"r"}, nil })
		pass(time.Minute)
		if got := s.take(); !slices.Equal(got, []string{"r: firing: plan stopped, plan/p"}) {
			t.Errorf("%q", got)
		}
	})
}

// An address that is kept in a file is read when something is sent.
func TestAddressesAreReadAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "url")
		write := func(s string) {
			if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("https://old.example.com")
		w := New(Options{Store: memory.New()})
		var log []string
		conf := config.Receiver{Slack: config.NewSecret("file:" + file)}
		w.build = func(r *config.Receiver, _ string) (sender, error) {
			at, err := r.URL().Resolve()
			log = append(log, at)
			return end{at, new(inbox)}, err
		}
		r := newReceiver(&conf, func() (sender, error) { return w.build(&conf, "") })
		p := pulse{address: conf.Slack, new: func(at string) (func(context.Context, string) error, error) {
			return func(context.Context, string) error { log = append(log, "beat "+at); return nil }, nil
		}}
		for range 2 {
			if _, err := r.ready(); err != nil {
				t.Fatal(err)
			}
		}
		beat := func() {
			if err := p.post(t.Context(), "x"); err != nil {
				t.Fatal(err)
			}
		}
		beat()
		write("https://new.example.com")
		if s, err := r.ready(); err != nil || s.to() != "https://new.example.com" || r.dest != s.to() {
			t.Error(err)
		}
		beat()
		if want := []string{"https://old.example.com", "beat https://old.example.com", "https://new.example.com", "beat https://new.example.com"}; !slices.Equal(log, want) {
			t.Errorf("%q", log)
		}
		write("")
		if _, err := r.ready(); err == nil || p.post(t.Context(), "x") == nil {
			t.Error("an address that is gone is used")
		}
	})
}

// The heartbeat goes on while alerts are watched and can be sent, and stops when no receiver takes any or the
// store is away.
func TestTheHeartbeatStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{store: memory.New(), names: []string{"r"}, heart: true}
		var log strings.Builder
		_, stop := s.run(t, "a", &log)
		defer stop()
		beats := func(in time.Duration) int {
			s.change(func() { s.beats = 0 })
			pass(in)
			var n int
			s.change(func() { n = s.beats })
			return n
		}
		pass(30 * time.Second)
		if n := beats(10 * time.Minute); n != 10 {
			t.Errorf("%d beats in ten minutes", n)
		}
		s.refuse(errors.New("410 gone"))
		s.change(func() { s.facts.Plans = []wire.Plan{stopped("p")} })
		pass(2 * time.Minute)
		if n := beats(10 * time.Minute); n != 0 {
			t.Errorf("%d beats while nothing can be sent", n)
		}
		s.refuse(nil)
		pass(10*time.Minute + 30*time.Second)
		if n := beats(10 * time.Minute); n != 10 {
			t.Errorf("%d beats when it can", n)
		}
		s.change(func() { s.facts.Causes = func(yield func(*wire.Cause, error) bool) { yield(nil, errors.New("away")) } })
		pass(time.Minute)
		if n := beats(10 * time.Minute); n != 0 {
			t.Errorf("%d beats while nobody can look", n)
		}
	})
}

// A test of a receiver that does not answer keeps no alert from being sent.
func TestATestHoldsNoAlert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &site{store: memory.New(), names: []string{"r"}}
		var log strings.Builder
		w, stop := s.run(t, "a", &log)
		defer stop()
		pass(time.Second)
		hang := make(chan struct{})
		w.set(func() { w.receivers[0].new = func() (sender, error) { return hanging{hang}, nil } })
		tested := make(chan []wire.AlertTested)
		go func() { tested <- w.Test(t.Context()) }()
		s.change(func() { s.facts.Plans = []wire.Plan{stopped("p")} })
		pass(time.Minute)
		if got := s.take(); !slices.Equal(got, []string{"r: firing: plan stopped, plan/p"}) {
			t.Errorf("%q", got)
		}
		close(hang)
		if got := <-tested; len(got) != 1 || got[0].Error != "" {
			t.Errorf("%+v", got)
		}
	})
}

// hanging is a sender whose receiver does not answer until the channel is closed.
type hanging struct{ until chan struct{} }

func (hanging) to() string { return "hanging" }

func (h hanging) send(context.Context, *message) error {
	<-h.until
	return nil
}
