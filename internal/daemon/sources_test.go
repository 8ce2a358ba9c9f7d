package daemon_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive/internal/natstest"
	"github.com/redrive/redrive/internal/redistest"
	"github.com/redrive/redrive/internal/wire"
)

// stopped is a server in this process: it cannot be killed.
type stopped struct{ *natstest.Server }

func (s stopped) Kill() { s.Stop() }

// TestASourceWhoseServerIsAwayAtTheStart keeps only its own queue waiting, and is consumed when the
// server is there; when it goes away again the daemon says so once, refuses what is published there,
// and goes on by itself.
func TestASourceWhoseServerIsAwayAtTheStart(t *testing.T) {
	for name, begin := range map[string]func(t *testing.T) (broker server, source string){
		"Redis list": func(t *testing.T) (server, string) {
			s := redistest.Start(t, redistest.Options{AppendOnly: true})
			return s, strings.Replace(s.URL(), "redis:", "redislist:", 1)
		},
		"NATS": func(t *testing.T) (server, string) {
			s := natstest.Start(t, natstest.Options{})
			natstest.Stream(t, natstest.Client(t, s.Addr()), jetstream.StreamConfig{Name: "WORK", Subjects: []string{"work"}})
			return stopped{s}, "nats://" + s.Addr() + "/WORK"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broker, source := begin(t)
			broker.Kill()
			target := newReceiver(t, nil)
			d := start(t, parse(t, fmt.Sprintf("queues: {work: {source: %q, deliver: {url: %q, allow_private: true}}, other: {deliver: {url: %[2]q, allow_private: true}}}", source, target.URL)), newStore(t))
			away := func(n int) bool {
				h := get[struct {
					Status string
					Away   int `json:"sources_away"`
				}](d, 200, http.MethodGet, "/readyz", "")
				return h.Away == n
			}
			if !away(1) {
				t.Error("readyz does not say it")
			}
			if _, page := d.send(http.MethodGet, "/metrics", ""); !strings.Contains(string(page), `redrive_source_up{queue="work"} 0`) {
				t.Error("the metrics do not say it")
			}
			if h := d.held("work", wire.HoldSource); len(h) != 1 || h[0].Since == nil {
				t.Errorf("%+v", h)
			}
			get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/other/messages", "x")
			d.eventually("another queue is delivered", func() bool { return target.received() == 1 })
			p := d.refused(503, "store-unavailable", http.MethodPost, "/v1/queues/work/messages", "x")
			if p.RetryAfter == 0 {
				t.Errorf("%+v", p)
			}
			if err := broker.Resume(); err != nil {
				t.Fatal(err)
			}
			d.eventually("it is opened", func() bool { return away(0) })
			get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/work/messages", "y")
			d.eventually("it is delivered", func() bool { return target.received() == 2 })
			if h := d.held("work", wire.HoldSource); len(h) != 0 {
				t.Errorf("%+v", h)
			}
			if log := d.log.String(); strings.Count(log, "source unavailable") != 1 || strings.Count(log, "source is back") != 1 {
				t.Error("the log does not say once that it was away, and once that it is back")
			}

			broker.Kill()
			d.eventually("the daemon says so", func() bool {
				if name == "Redis list" { // an idle consumer waits for it without a word
					d.send(http.MethodPost, "/v1/queues/work/messages", "refused")
				}
				return len(d.held("work", wire.HoldSource)) == 1
			})
			d.refused(503, "store-unavailable", http.MethodPost, "/v1/queues/work/messages", "refused")
			if err := broker.Resume(); err != nil {
				t.Fatal(err)
			}
			d.eventually("messages are taken", func() bool {
				resp, _ := d.send(http.MethodPost, "/v1/queues/work/messages", "z")
				return resp.StatusCode == 202
			})
			d.eventually("it is delivered again", func() bool { return target.received() >= 3 })
			if n := strings.Count(d.log.String(), "source unavailable"); n != 2 {
				t.Errorf("%d lines say that it is away, want one for each time", n)
			}
		})
	}
}

// TestNoSourceIsThere: no kind of broker that is away keeps the daemon from its start.
func TestNoSourceIsThere(t *testing.T) {
	d := start(t, parse(t, `{grace: 100ms, queues: {
  kafka: {source: "kafka://127.0.0.1:1/topic?group=g", deliver: {url: "https://example.com/x"}}, nats: {source: "nats://127.0.0.1:1/STREAM", deliver: {url: "https://example.com/x"}},
  rabbitmq: {source: "rabbitmq://127.0.0.1:1/?queue=q", deliver: {url: "https://example.com/x"}}, list: {source: "redislist://127.0.0.1:1/0", deliver: {url: "https://example.com/x"}}}}`), newStore(t))
	for _, queue := range []string{"kafka", "nats", "rabbitmq", "list"} {
		if h := d.held(queue, wire.HoldSource); len(h) != 1 {
			t.Errorf("%s: %+v", queue, h)
		}
	}
}
