package watch

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	_ "modernc.org/sqlite" // as another program opens the store's file

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/natstest"
	"github.com/redrive/redrive/internal/pgtest"
	"github.com/redrive/redrive/internal/servertest"
	"github.com/redrive/redrive/telemetry"
)

// notFired are the alerts that no fault of this test makes fire, and why.
var notFired = map[string]string{
	"RedriveRestarts": "no fault from outside makes a goroutine of ours fail",
}

// sooner are the rules with shorter durations and windows, and ages that a test can wait for.
func sooner(t *testing.T) string {
	t.Helper()
	all, text := alerts(t)
	for _, change := range []struct{ from, to string }{
		{`(?m)^(\s+for:) \w+$`, "$1 2s"}, {`\[\w+\]`, "[20s]"}, {`(state="due"}\)) > \d+`, "$1 > 4"},
	} {
		re := regexp.MustCompile(change.from)
		if !re.MatchString(text) {
			t.Fatalf("no rule has %s", change.from)
		}
		text = re.ReplaceAllString(text, change.to)
	}
	if len(all) == 0 {
		t.Fatal("there are no rules")
	}
	return text
}

// faulty is a daemon with a queue for each fault.
const faulty = `
queues:
  well: {deliver: {url: "%[1]s/well", allow_private: true}}
  down: {deliver: {url: "http://%[2]s/", allow_private: true}}
  burst: {deliver: {url: "%[1]s/burst", allow_private: true}}
  refused: {deliver: {url: "%[1]s/refused", allow_private: true}}
  paused: {deliver: {url: "%[1]s/paused", allow_private: true}}
  stuck:
  full: {limits: {depth: 3}}
  handlers:
  kinds:
  sms:
    deliver: {allow_private: true, endpoints: [{name: north, url: "http://%[2]s/"}]}
    guard: {preset: sms}
`

// fault is what makes an alert fire, and where.
type fault struct {
	alert  string
	labels map[string]string
	d      *daemon // its command is typed against it; nil: it is none of redrive, or the daemon is gone
}

// TestEachAlertFires makes every fault, and waits for its alert at a real Prometheus.
func TestEachAlertFires(t *testing.T) {
	t.Parallel()
	debian(t, "prometheus")
	w := newTarget(t)
	closed, err := servertest.FreePort() // nobody listens there
	if err != nil {
		t.Fatal(err)
	}
	many := newDaemon(t, "sqlite:"+filepath.Join(t.TempDir(), "data"), fmt.Sprintf(faulty, w.URL, closed.Addr()))
	nats, db := natstest.Start(t, natstest.Options{}), pgtest.Start(t, nil)
	natstest.Stream(t, natstest.Client(t, nats.Addr()), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}})
	source := newDaemon(t, "sqlite:"+filepath.Join(t.TempDir(), "data"), fmt.Sprintf("queues: {orders: {source: \"nats://%s/ORDERS?consumer=shop\", deliver: {url: %q, allow_private: true}}}\n", nats.Addr(), w.URL))
	stored := newDaemon(t, db.URL(), "queues: {mails: }\n")
	killed := newDaemon(t, "sqlite:"+filepath.Join(t.TempDir(), "data"), "queues: {mails: }\n")
	off := offBalance(t)
	library := inProcess(t)
	scrapes := []scrape{{"redrive", many.addr, "1s"}, {"redrive-source", source.addr, "4s"}, {"redrive-stored", stored.addr, "8s"},
		{"redrive-killed", killed.addr, "1s"}, {"redrive-off", off.addr, "1s"}, {"redrive-library", library, "1s"}}
	nearly, full := smallDisk(t, 90), smallDisk(t, 100)
	faults := []fault{
		{"RedriveTargetDown", of("queue", "down"), many}, {"RedriveDeadLetters", of("queue", "burst"), many}, {"RedriveRedrivenDieAgain", of("queue", "burst"), many},
		{"RedriveAllRefused", of("queue", "refused"), many}, {"RedriveQueuePaused", of("queue", "paused"), many}, {"RedriveQueueStuck", of("queue", "stuck"), many},
		{"RedriveQueueOld", of("queue", "stuck"), many}, {"RedriveRefuses", of("reason", "backlogged"), many}, {"RedriveProviderDown", of("provider", "north"), many},
		{"RedriveSourceAway", of("queue", "orders"), source}, {"RedriveStoreAway", of("job", "redrive-stored"), stored}, {"RedriveDown", of("job", "redrive-killed"), nil},
		{"RedriveLedgerOff", of("job", "redrive-off"), off}, {"RedriveHandlersStuck", of("queue", "handlers"), many}, {"RedriveUnhandled", of("queue", "kinds"), many},
	}
	for _, disk := range []struct {
		d     *daemon
		alert string
	}{{nearly, "RedriveDiskNearlyFull"}, {full, "RedriveDiskFull"}} {
		if disk.d == nil {
			t.Logf("%s is not shown: the test may not mount", disk.alert)
			continue
		}
		job := "redrive-" + strings.ToLower(disk.alert)
		scrapes = append(scrapes, scrape{job, disk.d.addr, "1s"})
		faults = append(faults, fault{disk.alert, of("job", job), disk.d})
	}
	p := startPrometheus(t, sooner(t), scrapes...)
	servertest.UntilNil(t, "every daemon is scraped", func() error {
		up, err := p.query("sum(up)")
		if err == nil && int(up[0].value()) != len(scrapes) {
			err = fmt.Errorf("%g of %d are up", up[0].value(), len(scrapes))
		}
		return err
	})
	many.breaks(t)
	nats.Stop()
	db.Kill()
	killed.Kill()
	p.fire(t, many, faults)
	if _, out := many.types(t, "doctor"); !strings.Contains(out, "every delivery has been refused since") {
		t.Errorf("doctor does not say that every delivery is refused:\n%s", out)
	}
}

func of(name, value string) map[string]string { return map[string]string{name: value} }

// breaks makes the faults of queues.
func (d *daemon) breaks(t *testing.T) {
	t.Helper()
	if status, err := d.send(t.Context(), "/v1/queues/paused/pause", "{}", "Content-Type", "application/json"); err != nil || status/100 != 2 {
		t.Fatalf("pause: %d, %v", status, err)
	}
	for i := range 30 {
		for _, queue := range []string{"well", "down", "burst", "burst", "paused"} {
			body := "fine"
			if queue == "burst" {
				body = poison
			}
			d.publish(t, queue, body, "redrive-id", fmt.Sprintf("%s-%d", queue, i))
		}
	}
	d.publish(t, "stuck", "nobody takes it")
}

// goesOn makes what must go on to be a fault, once.
func (d *daemon) goesOn(ctx context.Context, t *testing.T) {
	for queue, body := range map[string]string{"well": "fine", "refused": poison, "full": "x"} {
		if _, err := d.send(ctx, "/v1/queues/"+queue+"/messages", body); err != nil && ctx.Err() == nil {
			t.Errorf("publish to %s: %v", queue, err)
		}
	}
	_, _ = d.send(ctx, "/v1/call/sms", "x")
	_, _ = d.send(ctx, "/v1/plans", `{"action":"redrive","filter":{"queue":"burst"}}`, "Content-Type", "application/json") // while one runs, another may be refused
}

// fire waits until each alert has fired, and types the command that it names.
func (s *server) fire(t *testing.T, many *daemon, faults []fault) {
	t.Helper()
	known := make(map[string]bool)
	for _, f := range faults {
		known[f.alert] = true
	}
	all, _ := alerts(t)
	left := maps.Clone(notFired)
	for _, r := range all {
		delete(left, r.Alert)
		if !known[r.Alert] && notFired[r.Alert] == "" && !strings.HasPrefix(r.Alert, "RedriveDisk") {
			t.Errorf("no fault makes %s fire", r.Alert)
		}
	}
	if len(left) > 0 {
		t.Errorf("there is no %v", left)
	}
	began, waits := time.Now(), faults
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	servertest.UntilNil(t, "every alert has fired", func() error {
		<-tick.C
		many.goesOn(t.Context(), t)
		var data struct{ Alerts []fired }
		if err := s.ask("/api/v1/alerts", nil, &data); err != nil {
			return err
		}
		var still []fault
		for _, f := range waits {
			a := f.among(data.Alerts)
			if a == nil {
				still = append(still, f)
				continue
			}
			t.Logf("%s after %s: %s\n  %s\n  $ %s", f.alert, time.Since(began).Round(time.Second), a.Annotations["summary"], a.Annotations["description"], a.Annotations["command"])
			f.follow(t, a)
		}
		waits = still
		for _, a := range data.Alerts {
			if q := a.Labels["queue"]; q == "well" || strings.Contains(fmt.Sprint(a.Annotations), "<no value>") {
				t.Errorf("%+v fires", a)
			}
		}
		if len(waits) > 0 {
			return fmt.Errorf("not yet: %v", waits)
		}
		return nil
	})
}

// fired is an alert, as Prometheus shows it.
type fired struct {
	Labels, Annotations map[string]string
	State               string
}

func (f fault) String() string { return fmt.Sprint(f.alert, f.labels) }

// among returns the alert of a fault if it fires.
func (f fault) among(all []fired) *fired {
	for i := range all {
		a := &all[i]
		fits := a.State == "firing" && a.Labels["alertname"] == f.alert
		for name, value := range f.labels {
			fits = fits && a.Labels[name] == value
		}
		if fits {
			return a
		}
	}
	return nil
}

// follow types the command that an alert names: it is one (else 2), and it finds what it names (else 3).
// What is wrong may end it otherwise.
func (f fault) follow(t *testing.T, a *fired) {
	t.Helper()
	words := strings.Fields(a.Annotations["command"])
	if f.d == nil || len(words) == 0 || words[0] != "redrive" {
		return
	}
	if code, out := f.d.types(t, words[1:]...); code == 2 || code == 3 {
		t.Errorf("%s: %q ends with %d:\n%s", f.alert, words, code, out)
	}
}

// offBalance is a daemon whose ledger was changed by somebody else.
func offBalance(t *testing.T) *daemon {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	d := newDaemon(t, "sqlite:"+dir, "queues: {mails: }\n")
	d.publish(t, "mails", "one")
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "redrive.db"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), "UPDATE queue SET published = published + 3 WHERE name = 'mails'")
	if errClose := db.Close(); err != nil || errClose != nil {
		t.Fatal(err, errClose)
	}
	d.begin(t)
	return d
}

// smallDisk is a daemon whose disk others have filled by so many percent; nil: the test may not mount.
func smallDisk(t *testing.T, percent int64) *daemon {
	t.Helper()
	mount := t.TempDir()
	const size = 24 << 20
	if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		return nil
	}
	t.Cleanup(func() { _ = syscall.Unmount(mount, syscall.MNT_DETACH) })
	d := newDaemon(t, "sqlite:"+filepath.Join(mount, "data"), "queues: {mails: }\n")
	var st syscall.Statfs_t
	if err := syscall.Statfs(mount, &st); err != nil {
		t.Fatal(err)
	}
	room := int64(st.Bavail)*st.Bsize - size*(100-percent)/100
	err := os.WriteFile(filepath.Join(mount, "ballast"), make([]byte, room), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if percent < 100 {
		return d
	}
	servertest.Until(t, "a publish is refused", func() bool {
		status, err := d.send(t.Context(), "/v1/queues/mails/messages", strings.Repeat("x", 100_000))
		return err == nil && status == http.StatusInsufficientStorage
	})
	return d
}

// inProcess is a program of somebody else with the library: a handler ignores its context, and there
// is a kind that nobody handles. It returns where its metrics are.
func inProcess(t *testing.T) (addr string) {
	t.Helper()
	store := memory.New()
	var e *engine.Engine
	m := telemetry.New(telemetry.Options{Queues: []string{"handlers", "kinds"}, Store: store, Status: func() []engine.QueueStatus { return e.Status() }})
	e = engine.New(store, engine.Options{Observer: m, Logger: slog.New(slog.DiscardHandler)})
	never := make(chan struct{})
	deaf := redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error {
		<-never
		return nil
	})
	mux := redrive.NewMux()
	mux.Handle("known", deaf)
	for queue, h := range map[string]redrive.Handler{"handlers": deaf, "kinds": mux} {
		if err := e.Handle(queue, h, engine.QueueOptions{Policies: engine.Policies{Default: redrive.Policy{Timeout: time.Second}}}); err != nil {
			t.Fatal(err)
		}
		if err := redrive.Publish(t.Context(), store, queue, "x", redrive.WithKind("unknown")); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = e.Run(ctx) // it ends with what is stuck
	}()
	t.Cleanup(func() {
		stop()
		close(never)
		<-done
	})
	page := httptest.NewServer(m.Handler())
	t.Cleanup(page.Close)
	return page.Listener.Addr().String()
}
