package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive/internal/natstest"
	"github.com/redrive/redrive/internal/pgtest"
	"github.com/redrive/redrive/internal/servertest"
)

// notHere are the panels that stay empty in this world, and why.
var notHere = map[string]string{
	"Oldest unacked": "only Kafka tells it, whose series package telemetry tests",
}

// loaded are the configuration of a daemon with everything that is shown but a store on a server.
const loaded = `
queues:
  hooks: {deliver: {url: "%[1]s/hooks", allow_private: true}, policy: {backoff: {type: fixed, interval: 100ms}}}
  full: {limits: {depth: 5}}
  orders: {source: "nats://%[2]s/ORDERS?consumer=shop", deliver: {url: "%[1]s/orders", allow_private: true}, policy: {backoff: {type: fixed, interval: 100ms}}}
  jobs: {source: "nats://%[2]s/JOBS?consumer=shop", dead_letters: native, deliver: {url: "%[1]s/jobs", allow_private: true}}
  sms:
    deliver: {allow_private: true, endpoints: [{name: north, url: "%[1]s/limited/north"}, {name: south, url: "%[1]s/south"}]}
    guard: {preset: sms}
  pay:
    deliver: {allow_private: true, endpoints: [{name: west, url: "%[1]s/limited/west"}]}
    guard: {preset: sms}
`

// window is how far back rates look here, where a scrape is a second.
const window = "15s"

// TestEveryPanelShowsSomething runs every query of every dashboard, with its variables filled in as
// Grafana does: none is empty, and none is NaN.
func TestEveryPanelShowsSomething(t *testing.T) {
	t.Parallel()
	debian(t, "prometheus")
	w, nats, db := newTarget(t), natstest.Start(t, natstest.Options{}), pgtest.Start(t, nil)
	js := natstest.Client(t, nats.Addr())
	for _, name := range []string{"ORDERS", "JOBS", "JOBS_DLQ"} {
		natstest.Stream(t, js, jetstream.StreamConfig{Name: name, Subjects: []string{strings.ToLower(name)}})
	}
	one := newDaemon(t, "sqlite:"+filepath.Join(t.TempDir(), "data"), tokens+fmt.Sprintf(loaded, w.URL, nats.Addr()))
	two := newDaemon(t, db.URL(), fmt.Sprintf("spool: {dir: %q}\nqueues: {mails: {deliver: {url: %q, allow_private: true}}}\n", filepath.Join(t.TempDir(), "spool"), w.URL+"/mails"))
	p := startPrometheus(t, "", scrape{"redrive", one.addr, "1s"}, scrape{"redrive-eu", two.addr, "1s"})
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	t.Cleanup(load.Wait)
	t.Cleanup(stop)
	load.Go(func() { publishAll(ctx, t, one, two) })
	load.Go(func() { redriveAll(ctx, t, one) })
	asked := 0
	left := maps.Clone(notHere)
	servertest.UntilNil(t, "every query has an answer", func() error {
		asked = 0
		var missing []error
		for _, d := range read(t) {
			fill, err := p.filled(&d)
			if err != nil {
				return err
			}
			for i := range d.Panels {
				for _, q := range d.Panels[i].Targets {
					if notHere[d.Panels[i].Title] != "" {
						delete(left, d.Panels[i].Title)
						continue
					}
					asked++
					if _, err := p.query(fill.Replace(q.Expr)); err != nil {
						missing = append(missing, fmt.Errorf("%s: %s: %w", d.UID, d.Panels[i].Title, err))
					}
				}
			}
		}
		return errors.Join(missing...)
	})
	t.Logf("%d queries", asked)
	if len(left) > 0 {
		t.Errorf("no dashboard has %v", left)
	}
	p.shows(t, "overview", "Daemons", 2, 2)
	p.shows(t, "overview", "Ledger off by", 0, 0)
	p.shows(t, "overview", "Attempts a message", 1.01, 1.9) // one in five takes two
	p.shows(t, "queue", "At the first attempt", 0.5, 0.99)
}

// publishAll publishes, and calls, some 100 times a second.
func publishAll(ctx context.Context, t *testing.T, one, two *daemon) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	calls := make(chan struct{}, 10) // under way
	for i := 0; ctx.Err() == nil; i++ {
		body := fmt.Sprintf(`{"n":%d}`, i)
		switch i % 10 {
		case 3, 7:
			body = failsOne
		case 5:
			body = poison
		}
		for queue, d := range map[string]*daemon{"hooks": one, "orders": one, "jobs": one, "full": one, "mails": two} {
			if i%5 == 0 || queue == "hooks" {
				if _, err := d.send(ctx, "/v1/queues/"+queue+"/messages", body); err != nil && ctx.Err() == nil {
					t.Errorf("publish to %s: %v", queue, err)
				}
			}
		}
		select {
		case calls <- struct{}{}:
			go func() {
				defer func() { <-calls }()
				for _, guard := range []string{"sms", "pay"} {
					_, _ = one.send(ctx, "/v1/call/"+guard, `{"to":"+491"}`) // it may end in the middle
				}
			}()
		default:
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// redriveAll redrives what died, which dies again, now and then.
func redriveAll(ctx context.Context, t *testing.T, d *daemon) {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		status, err := d.send(ctx, "/v1/plans", `{"action":"redrive","filter":{"queue":"hooks"}}`, "Content-Type", "application/json")
		if err == nil && status != http.StatusCreated && status != http.StatusAccepted && status != http.StatusOK {
			t.Errorf("a redrive is answered %d", status)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

var labelValues = regexp.MustCompile(`^label_values\((\w+(?:\{.*\})?), (\w+)\)$`)

// filled returns what fills a dashboard's variables in: all values of each, and the window.
func (s *server) filled(d *dashboard) (*strings.Replacer, error) {
	fill := []string{"$__rate_interval", window}
	for _, v := range d.Templating.List {
		of := labelValues.FindStringSubmatch(v.Definition)
		if v.Type == "datasource" {
			continue
		}
		if of == nil {
			return nil, fmt.Errorf("%s: %q asks for no values", d.UID, v.Definition)
		}
		var values []string
		match := strings.NewReplacer(fill...).Replace(of[1])
		if err := s.ask("/api/v1/label/"+of[2]+"/values", url.Values{"match[]": {match}}, &values); err != nil {
			return nil, err
		}
		if len(values) == 0 {
			return nil, fmt.Errorf("%s: %s has no values", d.UID, v.Name)
		}
		fill = append(fill, "$"+v.Name, strings.Join(values, "|"))
	}
	return strings.NewReplacer(fill...), nil
}

// shows fails the test if the first number of a panel is not within bounds.
func (s *server) shows(t *testing.T, board, title string, least, most float64) {
	t.Helper()
	for _, d := range read(t) {
		if d.UID != "redrive-"+board {
			continue
		}
		fill, err := s.filled(&d)
		if err != nil {
			t.Fatal(err)
		}
		for i := range d.Panels {
			if d.Panels[i].Title != title {
				continue
			}
			got, err := s.query(fill.Replace(d.Panels[i].Targets[0].Expr))
			if err != nil {
				t.Fatal(err)
			}
			if v := got[0].value(); v < least || v > most {
				t.Errorf("%s: %s shows %g, want %g to %g", board, title, v, least, most)
			}
			return
		}
	}
	t.Errorf("%s has no panel %s", board, title)
}
