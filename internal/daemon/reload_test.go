package daemon_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

// shownConfig is what the test reads of the configuration in force.
type shownConfig struct {
	Hash, Refused string
	RefusedSince  *time.Time `json:"refused_since"`
	Differs       bool
	Instances     []wire.Instance
	Queues        map[string]any
}

// fromFile starts a daemon that watches its configuration. write replaces the file as
// an editor does: beside it, then renamed.
func fromFile(t *testing.T, yaml string, store driver.Store) (d *rig, write func(yaml string)) {
	t.Helper()
	return fromFolder(t, t.TempDir(), yaml, store)
}

// fromFolder is fromFile with the configuration in a given folder.
func fromFolder(t *testing.T, folder, yaml string, store driver.Store) (d *rig, write func(yaml string)) {
	t.Helper()
	path := filepath.Join(folder, "redrive.yaml")
	write = func(yaml string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte("listen: 127.0.0.1:0\n"+yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write(yaml)
	load := func() (*config.Config, error) { return config.Load(path) }
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	return startWith(t, cfg, store, func(o *daemon.Options) { o.Reload, o.Watch = load, path }), write
}

func (d *rig) config() (c shownConfig) {
	d.t.Helper()
	resp, b := d.send(http.MethodGet, "/v1/config", "")
	if resp.StatusCode != http.StatusOK {
		d.t.Fatalf("%d %s", resp.StatusCode, b)
	}
	decode(d.t, b, &c)
	return c
}

func TestTheConfigurationIsLive(t *testing.T) {
	one, two := newReceiver(t, nil), newReceiver(t, func(string) int { return 500 })
	d, write := fromFile(t, fmt.Sprintf("queues: {hooks: {deliver: {url: %q, allow_private: true}}}", one.URL), newStore(t))
	before := d.config()
	if before.Hash == "" || len(before.Queues) != 1 {
		t.Errorf("%+v", before)
	}
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/hooks/messages", "x")
	d.refused(404, "queue-not-found", http.MethodPost, "/v1/queues/more/messages", "x")
	d.eventually("it is delivered", func() bool { return one.received() == 1 })
	get[wire.Queue](d, 200, http.MethodPost, "/v1/queues/hooks/pause", `{"reason":"a person's"}`)

	// Another address, a policy, another queue and a token, all at once.
	write(fmt.Sprintf(`
queues:
  hooks: {deliver: {url: "%s/other", allow_private: true}, policy: {max_attempts: 1}}
  more: {limits: {depth: 1}}
tokens: [{name: root, hash: %q}]
`, two.URL, hash("root")))
	d.eventually("a token is needed", func() bool {
		resp, _ := d.send(http.MethodGet, "/v1/config", "")
		return resp.StatusCode == http.StatusUnauthorized
	})
	d.token = "root"
	if after := d.config(); after.Hash == before.Hash || len(after.Queues) != 2 || after.Refused != "" {
		t.Errorf("%+v", after)
	}
	if q := get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/hooks", ""); q.Deliver != two.URL || q.Engine == nil || len(q.Engine.Paused) != 1 {
		t.Errorf("%+v %+v", q, q.Engine) // the pause of the whole queue stays
	}
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/more/messages", "x")
	d.refused(429, "backlogged", http.MethodPost, "/v1/queues/more/messages", "x")
	get[wire.Queue](d, 200, http.MethodPost, "/v1/queues/hooks/resume", "")
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/hooks/messages", "y", "redrive-id", "m")
	d.eventually("the new policy decides", func() bool {
		m := get[wire.Message](d, 200, http.MethodGet, "/v1/queues/hooks/messages/m", "")
		return m.State == "dead" && m.Reason.String() == "exhausted"
	})
	if _, b := d.send(http.MethodGet, "/metrics", ""); !strings.Contains(string(b), `redrive_queue_messages{queue="more",state="waiting"} 1`) {
		t.Error("the new queue has no series")
	}

	// Without its deliver: a queue is no longer consumed.
	write(fmt.Sprintf("queues: {hooks: {}}\ntokens: [{name: root, hash: %q}]", hash("root")))
	d.eventually("it is no longer delivered", func() bool {
		q := get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/hooks", "")
		return q.Engine == nil && q.Deliver == ""
	})
}

// What a target failed at is tried at once when a live change has mended it, however long its
// backoff is and though its breaker is open.
func TestAMendedTargetIsTriedAtOnce(t *testing.T) {
	var mended atomic.Bool
	target := newReceiver(t, func(string) int {
		if mended.Load() {
			return 200
		}
		return 500
	})
	d, write := fromFile(t, fmt.Sprintf(`queues: {hooks: {deliver: {url: %q, allow_private: true}, policy: {backoff: {type: fixed, interval: 1h}}}}`, target.URL), newStore(t))
	const messages = 40
	for range messages {
		get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/hooks/messages", "x")
	}
	d.eventually("the breaker is open", func() bool {
		q := get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/hooks", "")
		return len(q.Engine.Breakers) == 1 && q.Engine.Breakers[0].State == "open" && q.Engine.Busy+q.Engine.Settling == 0
	})
	mended.Store(true) // by what the header says
	write(fmt.Sprintf(`queues: {hooks: {deliver: {url: %q, allow_private: true, headers: {x-key: right}}, policy: {backoff: {type: fixed, interval: 1h}}}}`, target.URL))
	d.eventually("all are delivered", func() bool {
		q := get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/hooks", "")
		return q.Ledger.Done == messages
	})
}

// A folder that is never quiet, as one with a log in it, does not keep a change from
// taking effect.
func TestTheConfigurationIsLiveInABusyFolder(t *testing.T) {
	folder := t.TempDir()
	d, write := fromFolder(t, folder, "queues: {one: {}}", newStore(t))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		every := time.NewTicker(10 * time.Millisecond)
		defer every.Stop()
		for {
			select {
			case <-stop:
				return
			case <-every.C:
				_ = os.WriteFile(filepath.Join(folder, "busy.log"), []byte("x"), 0o600)
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	write("queues: {one: {}, two: {}}")
	d.eventually("the new queue is there", func() bool { return len(d.config().Queues) == 2 })
}

func TestAConfigurationIsRefusedWithItsReason(t *testing.T) {
	store := newStore(t)
	const yaml = "queues: {q: {}}"
	d, write := fromFile(t, yaml, store)
	hash := d.config().Hash
	for text, why := range map[string]string{
		"queues: {q: {polcy: {}}}":                           "did you mean policy?",
		"queues: {q: {}}\nstore: 'sqlite:/elsewhere'":        "a restart is needed for store",
		"queues: {q: {}}\nservice: other\ngrace: 1s":         "a restart is needed for grace, service",
		"queues: {q: {}}\npublic_url: https://r.example.com": "a restart is needed for public_url",
		"queues: {q: {deliver: {url: 'ftp://example.com'}}":  "redrive.yaml:",
		"{": "is not closed",
	} {
		write(text)
		d.eventually("the reason is shown: "+why, func() bool { return strings.Contains(d.config().Refused, why) })
		c := d.config()
		if c.Hash != hash || len(c.Queues) != 1 || c.RefusedSince == nil {
			t.Errorf("%s: %+v", text, c)
		}
		if f := refusedFile(d); f == nil || !strings.Contains(f.Promise, why) || f.Value != "refused since "+c.RefusedSince.Format(time.RFC3339) {
			t.Errorf("%s: doctor says %+v", text, f)
		}
	}
	other := start(t, parse(t, yaml), &keptOpen{store})
	other.eventually("the doctor of another daemon says so", func() bool { f := refusedFile(other); return f != nil && !strings.Contains(f.Promise, "closed") })
	write(yaml)
	d.eventually("the old one is good again", func() bool { return d.config().Refused == "" })
	if f := refusedFile(d); f != nil {
		t.Errorf("doctor says %+v", f)
	}
	other.shutdown()
	if log := d.log.String(); !strings.Contains(log, "previous configuration stays active") {
		t.Error("the log does not tell")
	}
}

// refusedFile returns what doctor says about a configuration file.
func refusedFile(d *rig) *wire.Finding {
	d.t.Helper()
	for _, f := range get[wire.List[wire.Finding]](d, 200, http.MethodGet, "/v1/probe", "").Items {
		if strings.Contains(f.Setting, "configuration file") {
			return &f
		}
	}
	return nil
}

// A token is revoked also by a configuration that is refused for something else.
func TestARevocationWaitsForNothing(t *testing.T) {
	yaml := func(more, tokens string) string {
		return fmt.Sprintf("queues: {q: {}}%s\ntokens: [{name: root, hash: %q}%s]", more, hash("root"), tokens)
	}
	d, write := fromFile(t, yaml("", fmt.Sprintf(", {name: holder, hash: %q}", hash("holder"))), newStore(t))
	d.token = "root"
	get[wire.List[wire.Queue]](d.as("holder"), 200, http.MethodGet, "/v1/queues", "")
	write(yaml("\nservice: other", ""))
	d.eventually("the change of the service is refused", func() bool { return strings.Contains(d.config().Refused, "service") })
	d.as("holder").refused(401, "token-unknown", http.MethodGet, "/v1/queues", "")
	get[wire.List[wire.Queue]](d, 200, http.MethodGet, "/v1/queues", "")
}

func TestHangupReloads(t *testing.T) {
	d, write := fromFile(t, "queues: {q: {}}", newStore(t))
	d.eventually("the daemon listens to signals", func() bool { return strings.Contains(d.log.String(), "listening") })
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/q/messages", "x")
	write("queues: {q: {}, r: {}}")
	d.eventually("it is reloaded", func() bool { return len(d.config().Queues) == 2 })
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	d.eventually("the log says that nothing changed", func() bool { return strings.Contains(d.log.String(), "configuration unchanged") })
}

func TestDaemonsWithDifferentConfigurationsWarn(t *testing.T) {
	store := newStore(t)
	one := start(t, parse(t, "queues: {q: {}}"), store)
	other := start(t, parse(t, "queues: {q: {limits: {depth: 5}}}"), &keptOpen{store})
	other.eventually("they differ", func() bool { c := other.config(); return c.Differs && len(c.Instances) == 2 })
	other.eventually("the log warns", func() bool {
		return strings.Contains(other.log.String(), "daemons on this store have different configurations")
	})
	other.shutdown()
	one.eventually("the other is gone", func() bool { c := one.config(); return !c.Differs && len(c.Instances) == 1 })
}

// keptOpen is a store that another daemon closes.
type keptOpen struct{ driver.Store }

func (*keptOpen) Close() error { return nil }
