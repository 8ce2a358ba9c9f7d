package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/daemon/attach"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/wire"
)

// foreign is a message as it stands at a broker.
type foreign struct {
	key, body string
	headers   map[string]string
}

// foreignBroker is a real server with dead letters that others put there. Each run of a test has
// places of its own, by their names.
type foreignBroker struct {
	address string // of only the broker
	dead    func(name string) string
	options []string // of attach, beside
	// make makes the place that messages belong to and the one of their dead letters.
	make func(t *testing.T, name string)
	// die puts dead letters there, number from to before to, as whoever failed does.
	die func(t *testing.T, name string, from, to int)
	// back returns what stands where the messages belong.
	back func(t *testing.T, name string) []foreign
	// left counts what a move would still take.
	left func(t *testing.T, name string) int
	keys bool // the broker's messages have keys
	bare bool // they have no headers
}

// deadBody is the body of the i-th dead letter.
func deadBody(i int) string { return fmt.Sprintf(`{"order":%d,"amount":"12,50"}`, i) }

// testAttach runs everything that is promised of attaching to a broker.
func testAttach(t *testing.T, b *foreignBroker) {
	t.Helper()
	t.Run("redrive to the origin", func(t *testing.T) { attachAndRedrive(t, b) })
	t.Run("kill while moving", func(t *testing.T) { killWhileMoving(t, b) })
	t.Run("follow", func(t *testing.T) { followDead(t, b) })
}

func publishingDaemon(t *testing.T, b *foreignBroker, allow string) *daemon {
	t.Helper()
	return newDaemon(t, publishYAML(b, allow))
}

func publishYAML(b *foreignBroker, allow string) string {
	return fmt.Sprintf("queues: {orders: {deliver: {publish: %q, to: origin, allow: [%q]}}}\n", b.address, allow)
}

// attachAndRedrive copies dead letters in, groups, repairs and redrives them, and finds them
// where they belong in the form that they had.
func attachAndRedrive(t *testing.T, b *foreignBroker) {
	const name, n = "shop1", 8 // fewer than a breaker needs to open
	b.make(t, name)
	b.die(t, name, 0, n)
	d := publishingDaemon(t, b, "elsewhere")
	before := b.left(t, name)
	args := append([]string{"attach", b.dead(name), "--queue", "orders", "--json"}, originOf(b, name)...)
	first := decode[attach.Summary](t, d.redrive(args...).ok(t))
	if first.Read != n || first.Imported != n || first.Failed != 0 || len(first.Places) != 1 {
		t.Fatalf("%+v", first)
	}
	if again := decode[attach.Summary](t, d.redrive(args...).ok(t)); again.Imported != 0 || again.Duplicates != n {
		t.Errorf("a second copy: %+v", again)
	}
	if left := b.left(t, name); left != before {
		t.Errorf("a copy left %d of %d at the broker", left, before)
	}
	groups := decode[wire.List[wire.Cause]](t, d.redrive("dead", "causes", "--queue", "orders", "--json").ok(t))
	if len(groups.Items) != 1 || groups.Items[0].Count != n {
		t.Fatalf("groups: %+v", groups.Items)
	}
	dead := decode[wire.List[wire.Message]](t, d.redrive("dead", "list", "--queue", "orders", "--json").ok(t))
	odd := "orders/" + dead.Items[0].ID
	d.redrive("dead", "edit", odd, "--body", `{"repaired":true}`).ok(t)

	// What is not allowed is dead again, and says why.
	d.redrive("dead", "redrive", "--queue", "orders", "--yes", "--wait")
	until(t, "they are unroutable", time.Minute, func() bool { return d.queue("orders").Dead == n })
	one := decode[wire.Message](t, d.redrive("dead", "show", odd, "--json").ok(t))
	if one.Reason == nil || one.Reason.String() != "unroutable" || !strings.Contains(one.Error, "allow does not permit") {
		t.Fatalf("reason %v: %s", one.Reason, one.Error)
	}
	if got := b.back(t, name); len(got) != 0 {
		t.Fatalf("%d were published to a place that is not allowed", len(got))
	}

	// A new configuration counts without a restart.
	hash := func() string { return get[wire.ConfigStatus](t, d.url+"/v1/config").Hash }
	old := hash()
	d.writeConfig(publishYAML(b, name+"*"))
	until(t, "the new configuration is in force", time.Minute, func() bool { return hash() != old })
	d.redrive("dead", "redrive", "--queue", "orders", "--yes", "--wait").ok(t)
	until(t, "all are published", time.Minute, func() bool { return d.queue("orders").Ledger.Done == n })
	got := b.back(t, name)
	if len(got) != n {
		t.Fatalf("%d of %d came back", len(got), n)
	}
	checkBack(t, b, got)
	if v := decode[wire.Verified](t, d.redrive("verify", "--scan", "--json").ok(t)); !v.Balanced {
		t.Errorf("the ledger does not balance: %+v", v)
	}
}

func originOf(b *foreignBroker, name string) []string {
	var args []string
	for _, a := range b.options {
		args = append(args, strings.ReplaceAll(a, "NAME", name))
	}
	return args
}

// checkBack checks that messages came back as they were, but for the one that was repaired.
func checkBack(t *testing.T, b *foreignBroker, got []foreign) {
	t.Helper()
	repaired := 0
	seen := make(map[string]bool)
	for _, m := range got {
		seen[m.body] = true
		switch {
		case m.body == `{"repaired":true}`:
			repaired++
		case !strings.HasPrefix(m.body, `{"order":`):
			t.Errorf("body %q", m.body)
		case b.keys && m.key == "":
			t.Errorf("a key is lost: %+v", m)
		}
		if !b.bare && m.headers["tenant"] != "gold" {
			t.Errorf("a header is lost: %+v", m)
		}
		for name := range m.headers {
			if strings.HasPrefix(name, "kafka_dlt-") || strings.HasPrefix(name, "x-death") || strings.HasPrefix(name, "x-exception") || strings.HasPrefix(name, "redrive-") && name != headername.Redrives && name != headername.Plan {
				t.Errorf("header %s of a dead letter came back", name)
			}
		}
	}
	if repaired != 1 || len(seen) != len(got) {
		t.Errorf("%d repaired, %d bodies in %d messages", repaired, len(seen), len(got))
	}
}

// writeConfig puts another configuration in the place of the daemon's, with its address and
// store, and tells the daemon.
func (d *daemon) writeConfig(yaml string) {
	d.t.Helper()
	text, err := os.ReadFile(d.config)
	if err != nil {
		d.t.Fatal(err)
	}
	head := strings.SplitAfterN(string(text), "\n", 3)
	if err := os.WriteFile(d.config, []byte(head[0]+head[1]+yaml), 0o600); err != nil {
		d.t.Fatal(err)
	}
	if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		d.t.Fatal(err)
	}
}

// killer is before the daemon and kills a process in the middle of an import: before the
// daemon has it, or after the store has it and before anybody knows.
type killer struct {
	*httptest.Server
	target  chan *process
	imports atomic.Int64
	at      int64
	after   bool
}

func newKiller(t *testing.T, d *daemon, at int64, after bool) *killer {
	t.Helper()
	to, err := url.Parse(d.url)
	if err != nil {
		t.Fatal(err)
	}
	k := &killer{target: make(chan *process, 1), at: at, after: after}
	proxy := httputil.NewSingleHostReverseProxy(to)
	k.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || k.imports.Add(1) != k.at {
			proxy.ServeHTTP(w, r)
			return
		}
		if k.after {
			answer := httptest.NewRecorder()
			proxy.ServeHTTP(answer, r)
			if answer.Code != http.StatusOK {
				t.Errorf("the import answered %d", answer.Code)
			}
		} else {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		(<-k.target).kill()
	}))
	t.Cleanup(k.Close)
	return k
}

// killWhileMoving kills attach in the middle of moving, twice, and counts.
func killWhileMoving(t *testing.T, b *foreignBroker) {
	const name, n = "shop2", 350
	b.make(t, name)
	b.die(t, name, 0, n)
	d := newDaemon(t, "queues: {orders: {}}\n")
	args := append([]string{"attach", b.dead(name), "--queue", "orders", "--move"}, originOf(b, name)...)
	for _, after := range []bool{true, false} {
		k := newKiller(t, d, 2, after)
		p := start(t, "attach", nil, append(args, "--server", k.URL)...)
		k.target <- p
		if code := p.wait(time.Minute); code != -1 {
			t.Fatalf("attach was not killed, but ended with %d:\n%s", code, p.log.String())
		}
	}
	var sum attach.Summary
	until(t, "what the killed had in flight is given back", time.Minute, func() bool {
		s := decode[attach.Summary](t, d.redrive(append(args, "--json")...).ok(t))
		sum.Imported += s.Imported
		sum.Duplicates += s.Duplicates
		return d.queue("orders").Dead >= n && b.left(t, name) == 0
	})
	q := d.queue("orders")
	if q.Dead != n || q.Ledger.Imported != n {
		t.Errorf("%d dead letters, %d imported, want %d (last runs: %+v)", q.Dead, q.Ledger.Imported, n, sum)
	}
	bodies := make(map[string]bool)
	lines := strings.SplitSeq(strings.TrimSpace(d.redrive("dead", "export", "--queue", "orders").ok(t).out), "\n")
	for line := range lines {
		var m wire.Message
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		bodies[string(m.Bytes())] = true
	}
	if len(bodies) != n {
		t.Errorf("%d different bodies, want %d", len(bodies), n)
	}
}

// followDead takes what arrives until it is stopped.
func followDead(t *testing.T, b *foreignBroker) {
	const name = "shop3"
	b.make(t, name)
	b.die(t, name, 0, 3)
	d := newDaemon(t, "queues: {orders: {}}\n")
	p := start(t, "attach", nil, append([]string{"attach", b.dead(name), "--queue", "orders", "--move", "--follow", "--json", "--server", d.url}, originOf(b, name)...)...)
	until(t, "what was there is imported", time.Minute, func() bool { return d.queue("orders").Dead == 3 })
	b.die(t, name, 3, 8)
	until(t, "what came is imported", time.Minute, func() bool { return d.queue("orders").Dead == 8 && b.left(t, name) == 0 })
	if code := p.terminate(time.Minute); code != 0 {
		t.Errorf("it ended with %d:\n%s", code, p.log.String())
	}
	var sum attach.Summary
	if err := json.Unmarshal([]byte(p.log.String()), &sum); err != nil || sum.Imported != 8 {
		t.Errorf("%v: %s", err, p.log.String())
	}
}
