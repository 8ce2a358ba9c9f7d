package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/pgtest"
	"github.com/redrive/redrive/internal/wire"
)

// provider is a third party that goes down and returns.
type provider struct {
	t       *testing.T
	address string
	breaks  atomic.Bool // it takes a request and hangs up

	mu      sync.Mutex
	server  *http.Server
	effects map[string]int // by webhook-id
	calls   []time.Time    // answered or not, while it is up
	status  int
}

func newProvider(t *testing.T) *provider {
	p := &provider{t: t, address: freePort(t), effects: make(map[string]int), status: http.StatusCreated}
	p.up()
	t.Cleanup(p.down)
	return p
}

func (p *provider) url() string { return "http://" + p.address }

// up listens, where it listened before.
func (p *provider) up() {
	p.t.Helper()
	var listener net.Listener
	until(p.t, "the provider listens again", 10*time.Second, func() (ok bool) {
		l, err := net.Listen("tcp", p.address)
		listener = l
		return err == nil
	})
	s := &http.Server{Handler: http.HandlerFunc(p.serve), ReadHeaderTimeout: 5 * time.Second}
	p.mu.Lock()
	p.server = s
	p.mu.Unlock()
	go func() {
		if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			p.t.Error(err)
		}
	}()
}

// down refuses connections, and breaks those there are.
func (p *provider) down() {
	p.mu.Lock()
	s := p.server
	p.mu.Unlock()
	_ = s.Close() // its connections are meant to break
}

func (p *provider) answers(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = status
}

func (p *provider) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	p.mu.Lock()
	status := p.status
	p.calls = append(p.calls, time.Now())
	if status < 300 {
		p.effects[r.Header.Get("Webhook-Id")]++
	}
	p.mu.Unlock()
	if p.breaks.Load() {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(status)
	fmt.Fprintf(w, "sent %s", body)
}

func (p *provider) effect(id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.effects[id]
}

// callsSince counts the calls since a time.
func (p *provider) callsSince(from time.Time) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.calls {
		if at.After(from) {
			n++
		}
	}
	return n
}

// answer is what became of a call.
type answer struct {
	status   int
	provider string // empty: it is the daemon's own answer
	location string
	body     string
}

// ask sends a request to a daemon.
func (d *daemon) ask(method, path, body string, headers ...string) (answer, error) {
	req, err := http.NewRequest(method, d.url+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header.Get("Redrive-Provider"), resp.Header.Get("Location"), string(b)}, err
}

func (d *daemon) must(method, path, body string, headers ...string) answer {
	d.t.Helper()
	a, err := d.ask(method, path, body, headers...)
	if err != nil {
		d.t.Fatal(err)
	}
	return a
}

// result waits for the later result of a call.
func (d *daemon) result(location, body string) {
	d.t.Helper()
	until(d.t, "the result of "+location, 60*time.Second, func() bool {
		a, err := d.ask(http.MethodGet, location, "")
		if err != nil || a.status == http.StatusAccepted {
			return false
		}
		if a.status != http.StatusCreated || a.provider == "" || a.body != "sent "+body {
			d.t.Fatalf("%s: %+v", location, a)
		}
		return true
	})
}

func (d *daemon) guardState() string {
	d.t.Helper()
	return get[wire.Guard](d.t, d.url+"/v1/guards/sms").Providers[0].State
}

func guardConfig(p *provider, more string) string {
	return fmt.Sprintf(`queues:
  sms:
    deliver: {timeout: 5s, allow_private: true, endpoints: [{name: north, url: "%s/send"%s}]}
    guard: {preset: sms}
    limits: {depth: 2000}
`, p.url(), more)
}

// TestAProviderGoesDownAndReturns calls from several clients all the while: every call
// is answered or gets a ticket, every ticket a result, and in the end all is as before.
func TestAProviderGoesDownAndReturns(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	d := newDaemon(t, guardConfig(p, ""))
	var mu sync.Mutex
	tickets := make(map[string]string) // location and body
	answered := make(map[string]bool)
	var n atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			tick := time.NewTicker(40 * time.Millisecond) // 100 calls a second in all
			defer tick.Stop()
			for ctx.Err() == nil {
				id := fmt.Sprintf("call-%d", n.Add(1))
				a, err := d.ask(http.MethodPost, "/v1/call/sms", id, "redrive-id", id)
				mu.Lock()
				switch {
				case err != nil:
					t.Errorf("%s: %v", id, err)
				case a.status == http.StatusCreated && a.provider == "north":
					answered[id] = true
				case a.status == http.StatusAccepted && a.location != "":
					tickets[a.location] = id
				default:
					t.Errorf("%s: %+v", id, a)
				}
				mu.Unlock()
				<-tick.C
			}
		})
	}
	defer callers.Wait()
	defer stop()
	count := func() (a, p int) {
		mu.Lock()
		defer mu.Unlock()
		return len(answered), len(tickets)
	}
	until(t, "calls are answered", 10*time.Second, func() bool { a, _ := count(); return a > 50 })
	p.down()
	until(t, "calls are put off", 20*time.Second, func() bool { _, put := count(); return put > 100 })
	if s := d.guardState(); s != "down" {
		t.Errorf("the guard says %s", s)
	}
	p.up()
	until(t, "all calls are answered again", 60*time.Second, func() bool { return d.guardState() == "healthy" })
	_, before := count()
	now, _ := count()
	until(t, "more calls are answered", 20*time.Second, func() bool { a, _ := count(); return a > now+50 })
	if _, after := count(); after > before+5 {
		t.Errorf("%d calls were put off by a provider that is healthy", after-before)
	}
	stop()
	callers.Wait()
	for location, id := range tickets {
		d.result(location, id)
	}
	for id := range answered {
		if p.effect(id) != 1 {
			t.Errorf("%s was answered, and has had its effect %d times", id, p.effect(id))
		}
	}
	d.redrive("verify", "--scan").ok(t)
	if metrics := d.must(http.MethodGet, "/metrics", "").body; !strings.Contains(metrics, `redrive_guard_transitions_total{from="healthy",guard="sms",provider="north",to="down"} 1`) {
		t.Error("the metrics do not count the outage once")
	}
	if !strings.Contains(d.log.String(), `msg="provider down"`) || !strings.Contains(d.log.String(), "reason=") {
		t.Error("the log does not say why")
	}
	t.Logf("%d answered at once, %d put off", len(answered), len(tickets))
}

// TestKillNineAfterATicket kills the daemon as soon as it has handed a ticket out.
func TestKillNineAfterATicket(t *testing.T) {
	p := newProvider(t)
	d := newDaemon(t, guardConfig(p, ""))
	n := rounds(t, 5)
	for i := range n {
		p.answers(http.StatusInternalServerError)
		id := fmt.Sprintf("ticket-%d", i)
		var a answer
		until(t, "a ticket", 20*time.Second, func() bool { // what the round before opened may still be closing
			a = d.must(http.MethodPost, "/v1/call/sms", id, "redrive-id", id)
			return a.status == http.StatusAccepted
		})
		d.kill()
		p.answers(http.StatusCreated)
		d.start()
		d.result(a.location, id)
		if p.effect(id) == 0 {
			t.Errorf("%s has a result and no effect", id)
		}
	}
	d.redrive("verify", "--scan").ok(t)
	t.Logf("%d times kill -9", n)
}

// TestACallOfUnknownEffect is neither repeated nor lost.
func TestACallOfUnknownEffect(t *testing.T) {
	p := newProvider(t)
	d := newDaemon(t, guardConfig(p, ""))
	p.breaks.Store(true)
	a := d.must(http.MethodPost, "/v1/call/sms?repeat=never", "pay", "redrive-id", "pay-1")
	if a.status != http.StatusBadGateway || !strings.Contains(a.body, "urn:redrive:problem:uncertain") || !strings.Contains(a.body, "--confirm-uncertain") {
		t.Fatalf("%+v", a)
	}
	p.breaks.Store(false)
	if out := d.redrive("dead", "show", "sms/pay-1").ok(t).out; !strings.Contains(out, redrive.ReasonUncertain.String()) {
		t.Errorf("it is shown as\n%s", out)
	}
	d.redrive("dead", "redrive", "sms/pay-1", "--yes", "--wait")
	if n := p.effect("pay-1"); n != 1 {
		t.Errorf("sent %d times, and nobody has confirmed", n)
	}
	d.redrive("dead", "redrive", "sms/pay-1", "--confirm-uncertain", "--yes", "--wait").ok(t)
	d.result("/v1/call/sms/pay-1", "pay")
	if n := p.effect("pay-1"); n != 2 {
		t.Errorf("sent %d times", n)
	}
}

// TestAQueueThatRefusesIsReported fills the queue behind the guard.
func TestAQueueThatRefusesIsReported(t *testing.T) {
	p := newProvider(t)
	d := newDaemon(t, strings.Replace(guardConfig(p, ""), "depth: 2000", "depth: 5", 1))
	d.redrive("guards", "force", "isolated", "--for", "1h").ok(t)
	taken := 0
	until(t, "the queue is full", 20*time.Second, func() bool {
		a := d.must(http.MethodPost, "/v1/call/sms", "x")
		if a.status == http.StatusServiceUnavailable {
			if !strings.Contains(a.body, "urn:redrive:problem:not-queued") || !strings.Contains(a.body, "above its limit") {
				t.Errorf("it says %s", a.body)
			}
			return true
		}
		taken++
		return false
	})
	if waiting := d.queue("sms").Waiting.All; waiting != int64(taken) {
		t.Errorf("%d calls were taken, %d wait", taken, waiting)
	}
	d.redrive("guards", "force", "healthy").ok(t)
	until(t, "what was taken is sent", 30*time.Second, func() bool { return d.queue("sms").Ledger.Done == int64(taken) })
}

// TestTwoDaemonsShareAProvider runs two daemons on one PostgreSQL server.
func TestTwoDaemonsShareAProvider(t *testing.T) {
	t.Parallel()
	store := pgtest.Start(t, nil).URL()
	p := newProvider(t)
	one, two := newDaemonOn(t, store, guardConfig(p, ", rate: 200/s")), newDaemonOn(t, store, guardConfig(p, ", rate: 200/s"))
	until(t, "both call the provider", 30*time.Second, func() bool {
		return one.must(http.MethodPost, "/v1/call/sms", "x").provider == "north" && two.must(http.MethodPost, "/v1/call/sms", "x").provider == "north"
	})
	p.answers(http.StatusInternalServerError)
	until(t, "one finds it down", 20*time.Second, func() bool {
		one.must(http.MethodPost, "/v1/call/sms", "x")
		return one.guardState() == "down"
	})
	until(t, "the other learns it", 20*time.Second, func() bool { return two.guardState() == "down" })
	from := time.Now()
	until(t, "three seconds of probes", 10*time.Second, func() bool { return time.Since(from) > 3*time.Second })
	if n := p.callsSince(from); n > 35 { // holds of 100 to 300 ms, for both together
		t.Errorf("%d calls to a provider that is down", n)
	}
	a := one.must(http.MethodPost, "/v1/call/sms", "shared", "redrive-id", "shared-1")
	if a.status != http.StatusAccepted {
		t.Fatalf("%+v", a)
	}
	one.kill()
	p.answers(http.StatusCreated)
	two.result(a.location, "shared")
	until(t, "the other answers at once again", 60*time.Second, func() bool {
		return two.must(http.MethodPost, "/v1/call/sms", "y").provider == "north" && two.guardState() == "healthy"
	})
}
