package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/wire"
)

// demoCmd shows the whole life of messages.
type demoCmd struct {
	Messages int    `default:"600" placeholder:"N" help:"How many messages (default 600)."`
	Keep     bool   `help:"Keep the folder with the data."`
	Store    string `placeholder:"URL" help:"On a database server: in a schema or under a prefix of its own (redrive_demo), which stays."`
}

func (*demoCmd) Help() string {
	return examples(
		"redrive demo", "limits, failures, retries, dead letters, causes, redrive and the ledger, in half a minute; nothing is left behind",
		"redrive demo --store postgres://localhost/app", "the same on a store that several daemons can share",
	)
}

// What the demo is made of.
const (
	demoQueue    = "orders"
	demoSpace    = "redrive_demo" // schema or prefix on a database server
	demoMost     = 5000
	demoPatience = 50 * time.Second
	demoLonger   = 5 * time.Minute // on a server that others use
)

// demoTarget refuses orders of one country until it is mended, and is busy for some at
// their first attempt.
type demoTarget struct {
	mended atomic.Bool
	mu     sync.Mutex
	orders map[int]bool // that arrived
}

// ServeHTTP receives an order.
func (g *demoTarget) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var order struct {
		Order   int
		Country string
	}
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch {
	case order.Country == "PT" && !g.mended.Load():
		http.Error(w, "no rates for country PT", http.StatusUnprocessableEntity)
		return
	case order.Order%9 == 0 && r.Header.Get(headername.Attempt) == "1":
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.orders[order.Order] = true
}

// arrived returns how many orders arrived.
func (g *demoTarget) arrived() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.orders)
}

// demo is a daemon and a target in this process.
type demo struct {
	t      *terminal
	queue  string
	target *demoTarget
	client *client
	step   int
}

// Run plays the demo.
func (c *demoCmd) Run(ctx context.Context, t *terminal) (err error) {
	if c.Messages < 20 || c.Messages > demoMost {
		return usagef("--messages is from 20 to %d", demoMost)
	}
	if c.Store != "" && c.Keep {
		return usagef("--keep is for a folder: on a server everything stays")
	}
	d, patience := &demo{t: t, queue: demoQueue}, demoPatience
	var store config.Address
	if c.Store == "" {
		dir, err := os.MkdirTemp("", "redrive-demo-*")
		if err != nil {
			return err
		}
		store = config.Address("sqlite:" + filepath.Join(dir, "data"))
		if c.Keep {
			defer t.note("the data is in %s", filepath.Join(dir, "data"))
		} else {
			defer os.RemoveAll(dir) //nolint:errcheck // it is in the temporary folder
		}
	} else {
		if store, err = demoStore(c.Store); err != nil {
			return err
		}
		// A demo before this one may have left its queue, and its ids are remembered.
		d.queue += "-" + strconv.FormatInt(time.Now().UnixMilli(), 36)
		patience = demoLonger
		defer t.note("what the demo made stays in %s, apart from what else is there", clean(store.String()))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the demo took too long; is the machine very busy?"))
	defer cancel()
	stop, err := d.start(ctx, store, c.Messages)
	if err != nil {
		return err
	}
	err = d.tell(ctx, c.Messages)
	return errors.Join(err, stop())
}

// demoStore gives the demo a schema or prefix of its own on a server, unless the address
// names one: a daemon that works there must not see the demo's plans and configuration.
func demoStore(address string) (config.Address, error) {
	text, err := config.Address(address).Resolve()
	if err != nil {
		return "", err
	}
	var name string
	value := demoSpace
	switch scheme, _, _ := strings.Cut(text, ":"); {
	case strings.HasPrefix(scheme, "postgres"):
		name = "redrive_schema"
	case scheme == "mysql" || scheme == "mariadb":
		name, value = "redrive_prefix", demoSpace+"_"
	case strings.HasPrefix(scheme, "redis"):
		name = "prefix"
	default:
		return "", usagef("--store is a postgres://, mysql:// or redis:// URL; without it the demo has a folder of its own")
	}
	switch _, query, some := strings.Cut(text, "?"); { // a URL with several hosts is none to net/url
	case !some:
		text += "?" + name + "=" + value
	case !strings.Contains("&"+query, "&"+name+"="):
		text += "&" + name + "=" + value
	}
	return config.Address(text), nil
}

// start starts the target and the daemon, and returns how to stop both.
func (d *demo) start(ctx context.Context, store config.Address, messages int) (stop func() error, err error) {
	d.target = &demoTarget{orders: make(map[int]bool)}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	site := &http.Server{Handler: d.target, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = site.Serve(listener) }() // it ends with Close
	cfg, err := config.Parse("demo.yaml", fmt.Appendf(nil, `
listen: 127.0.0.1:0
store: %q
environment: demo
queues:
  %s:
    deliver: {url: "http://%s/hook", rate: 300/s, allow_private: true}
    policy: {max_attempts: 5, backoff: {type: exponential, base: 300ms, max: 1s}}
    limits: {depth: %d}
`, string(store), d.queue, listener.Addr(), messages))
	if err != nil {
		return nil, errors.Join(err, site.Close())
	}
	up := make(chan net.Addr, 1)
	ended := make(chan error, 1)
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		ended <- daemon.Run(run, cfg, daemon.Options{Logger: slog.New(slog.DiscardHandler), Version: version(), Started: func(a net.Addr) { up <- a }})
	}()
	stop = func() error {
		cancel()
		return errors.Join(<-ended, site.Close())
	}
	select {
	case address := <-up:
		d.client, err = (&remote{Server: "http://" + address.String()}).connect(ctx)
		return stop, err
	case err := <-ended:
		cancel()
		return nil, errors.Join(err, site.Close())
	}
}

// say begins a chapter.
func (d *demo) say(format string, args ...any) {
	d.step++
	d.t.printf("\n%s %s\n", d.t.paint(strong, fmt.Sprintf("%d.", d.step)), fmt.Sprintf(format, args...))
}

// show prints the command that shows the same of a daemon of one's own.
func (d *demo) show(command string) { d.t.printf("   %s\n", d.t.paint(faint, "$ "+command)) }

func (d *demo) tell(ctx context.Context, n int) error {
	t := d.t
	d.say("A daemon and a target were started. The target refuses one order in four, as something is wrong with it, and is busy now and then; the queue takes %d at most.", n)
	accepted, refused, err := d.publish(ctx, n+n/5)
	if err != nil {
		return err
	}
	d.say("%s messages were published: %s accepted, on the disk; %s refused, as the queue was full.", grouped(int64(accepted+refused)), grouped(int64(accepted)), grouped(int64(refused)))
	d.show("redrive publish " + d.queue + " --ndjson orders.ndjson")
	d.say("They are delivered at 300/s. An order that finds the target busy is tried again; one that it refuses is a dead letter.")
	if err := d.follow(ctx, func(q *wire.Queue) bool { return q.Waiting.All == 0 }); err != nil {
		return err
	}
	d.say("Why did they die? One cause:")
	d.show("redrive dead causes")
	var causes wire.List[wire.Cause]
	if err := d.client.do(ctx, http.MethodGet, "/v1/causes", nil, nil, &causes); err != nil {
		return err
	}
	printCauses(t, causes.Items)
	d.say("Too early: a redrive with a canary of 5, while the target still fails.")
	d.show("redrive dead redrive --queue " + d.queue + " --canary 5 --wait")
	if _, err := d.redrive(ctx, 5); err != nil {
		return err
	}
	d.say("The target is mended, and all are redriven: five first, then the rest, faster and faster.")
	d.target.mended.Store(true)
	d.show("redrive dead redrive --queue " + d.queue + " --canary 5 --wait")
	p, err := d.redrive(ctx, 5)
	if err != nil {
		return err
	}
	if err := d.follow(ctx, func(q *wire.Queue) bool { return q.Waiting.All == 0 }); err != nil {
		return err
	}
	d.say("Is one missing?")
	d.show("redrive verify")
	var v wire.Verified
	if err := d.client.do(ctx, http.MethodGet, "/v1/verify", nil, nil, &v); err != nil {
		return err
	}
	printVerified(t, &v)
	if n := d.target.arrived(); p.State != wire.PlanDone || !v.Balanced || n != accepted {
		return fmt.Errorf("the plan is %s, and of %d accepted messages %d were delivered", p.State, accepted, n)
	}
	t.printf("\n%s of %s accepted messages were delivered; none is lost. To begin: redrive serve --deliver hooks=https://example.com/hook\n", grouped(int64(accepted)), grouped(int64(accepted)))
	return nil
}

// publish publishes messages in two requests: the second finds the queue full.
func (d *demo) publish(ctx context.Context, n int) (accepted, refused int, err error) {
	var q wire.Queue
	path := "/v1/queues/" + d.queue
	if err := d.client.do(ctx, http.MethodPost, path+"/pause", nil, wire.PauseRequest{Reason: "the demo publishes"}, nil); err != nil {
		return 0, 0, err
	}
	for i := range n {
		country := "DE"
		if i%4 == 0 {
			country = "PT"
		}
		body := fmt.Appendf(nil, `{"order":%d,"amount":%d,"country":%q}`, i, 100+i%900, country)
		resp, err := d.client.send(ctx, http.MethodPost, path+"/messages", nil, bytes.NewReader(body),
			http.Header{"Content-Type": {"application/json"}, http.CanonicalHeaderKey(headername.Kind): {"order.paid"}, http.CanonicalHeaderKey(headername.ID): {fmt.Sprintf("order-%d", i)}})
		if p := asProblem(err); p != nil && p.Status == http.StatusTooManyRequests {
			refused++
			continue
		}
		if err != nil {
			return accepted, refused, err
		}
		_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is used again
		if err := resp.Body.Close(); err != nil {
			return accepted, refused, err
		}
		accepted++
	}
	if err := d.client.do(ctx, http.MethodGet, path, nil, nil, &q); err != nil {
		return accepted, refused, err
	}
	return accepted, refused, d.client.do(ctx, http.MethodPost, path+"/resume", nil, wire.PauseRequest{}, nil)
}

// follow shows what the queue does until it has come to an end: on a terminal in one line
// that changes, else in a few lines.
func (d *demo) follow(ctx context.Context, done func(q *wire.Queue) bool) error {
	line := &progress{t: d.t}
	defer line.clear()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		var q wire.Queue
		if err := d.client.do(ctx, http.MethodGet, "/v1/queues/"+d.queue, nil, nil, &q); err != nil {
			return err
		}
		text := fmt.Sprintf("   %s delivered, %s wait (%s of them for another attempt), %s dead", grouped(q.Ledger.Done), grouped(q.Waiting.All), grouped(q.Waiting.Retry), grouped(q.Dead))
		end := done(&q)
		if end {
			line.clear()
		}
		if end || !d.t.errTTY && n%int(2*time.Second/pollEvery) == 0 {
			d.t.printf("%s\n", text)
		}
		if end {
			return nil
		}
		line.update("%s", text)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// redrive redrives all dead letters and tells how it went.
func (d *demo) redrive(ctx context.Context, canary int) (wire.Plan, error) {
	var p wire.Plan
	req := wire.PlanRequest{Action: "redrive", Filter: &wire.Filter{Queue: d.queue}, Canary: canary, Rate: "300/s"}
	if err := d.client.do(ctx, http.MethodPost, "/v1/plans", nil, req, &p); err != nil {
		return p, err
	}
	p, err := d.client.wait(ctx, d.t, p, "redriven")
	if err != nil {
		return p, err
	}
	word, colour := p.State, good
	if p.State != wire.PlanDone {
		colour = bad
	}
	d.t.printf("   %s: %s\n", d.t.paint(colour, clean(word)), planLine(&p, "redriven"))
	if p.Problem != "" {
		d.t.printf("   %s\n", clean(p.Problem))
	}
	if p.State == wire.PlanStopped {
		return p, d.client.do(ctx, http.MethodPost, "/v1/plans/"+segment(p.ID)+"/cancel", nil, nil, nil)
	}
	return p, nil
}
