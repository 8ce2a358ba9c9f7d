//go:build !noui

package daemon_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/servertest"
)

// The page of a plan in each state that it stands in, and the report of such a night.
func TestPagesOfPlans(t *testing.T) {
	conf := func(t *testing.T) *config.Config {
		c := parse(t, pagesConfig)
		c.Archive = t.TempDir()
		return c
	}
	inBubble(t, conf, func(t *testing.T, store driver.Store, l *servertest.Pipes, s *daemon.Server) {
		scene(t, store, time.Now())
		defer runPlans(t, s)()
		b := newBrowser(t, "", l)
		show := func(name, path, want string) {
			t.Helper()
			page := b.page(path)
			if !strings.Contains(page, want) {
				t.Errorf("%s lacks %q", name, want)
			}
			golden(t, name, page)
		}
		stopped := planOf(t, b, "orders", causeOf(t, b, "orders", "422"))
		<-time.After(2 * time.Second)
		if n := dieAgain(t, store, "orders"); n != 10 {
			t.Fatalf("%d of the canary were claimed", n)
		}
		<-time.After(5 * time.Second)
		show("plan-stopped", stopped, "died again of the same cause")

		held := planOf(t, b, "payments", causeOf(t, b, "payments", "401"))
		<-time.After(time.Second) // the audit log has no order of what is done at one moment
		if resp, page := b.press("/ui/queues/payments/pause"); resp.StatusCode != http.StatusSeeOther {
			t.Fatalf("%d\n%s", resp.StatusCode, page)
		}
		<-time.After(5 * time.Second)
		show("plan-held", held, "paused")

		b.page("/ui/redrive?queue=orders")
		running, _ := b.follow(b.press("/ui/redrive", "queue", "orders", "signature", causeOf(t, b, "orders", "500"), "rate", "1/s", "act", "start"))
		<-time.After(5*time.Second + 500*time.Millisecond) // between two steps
		show("plan-running", running, "running")

		b.page("/ui/archive?queue=hooks")
		done, _ := b.follow(b.press("/ui/archive", "queue", "hooks", "why", "kept"))
		<-time.After(30 * time.Second)
		show("plan-done", done, "<dd>40</dd>")
		show("report", "/ui/report?since=2h", "died again of the same cause")
	})
}

// dieAgain claims what a plan redrove in a queue, and lets it die of what its target said before.
func dieAgain(t *testing.T, store driver.Store, queue string) int {
	t.Helper()
	all, err := store.Claim(t.Context(), driver.ClaimRequest{Queue: queue, Lane: redrive.LaneRedrive, Max: 100, Lease: time.Minute, Instance: "i"})
	if err != nil {
		t.Fatal(err)
	}
	settlements := make([]driver.Settlement, len(all))
	for i, d := range all {
		f := &redrive.Failure{At: time.Now(), Attempt: 6, Types: []string{"delivery.ResponseError"}, Message: "the target answered 422 Unprocessable Entity",
			Details: map[string]string{driver.DetailStatus: "422", driver.DetailAnswer: `{"error":"validation failed","field":"schema_version","message":"is required"}`}}
		f.Signature = driver.Signature(f)
		settlements[i] = driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeDead, Reason: redrive.ReasonExhausted, Failure: f}
	}
	if err := driver.FirstError(store.Settle(t.Context(), settlements)); err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// What died without a failure, as of its age, has no cause's page: its row leads to its messages.
func TestACauseWithoutASignatureLeadsToItsMessages(t *testing.T) {
	conf := func(t *testing.T) *config.Config { return parse(t, pagesConfig) }
	inBubble(t, conf, func(t *testing.T, store driver.Store, l *servertest.Pipes, _ *daemon.Server) {
		e := redrive.Entry{Message: redrive.Message{Queue: "orders", ID: "old", Body: []byte("{}"), PublishedAt: time.Now()}, State: redrive.StateDead, Reason: redrive.ReasonExpired, DiedAt: time.Now()}
		if errs, err := store.Apply(t.Context(), driver.Batch{Put: []redrive.Entry{e}}); err != nil || driver.FirstError(errs) != nil {
			t.Fatal(err, errs)
		}
		b := newBrowser(t, "", l)
		row := regexp.MustCompile(`<a class="row" href="([^"]+)"`)
		for _, list := range []string{"/ui/causes", "/ui/queues/orders"} {
			for _, found := range row.FindAllStringSubmatch(b.page(list), -1) {
				path := strings.ReplaceAll(found[1], "&amp;", "&")
				if page := b.page(path); !strings.Contains(page, "/ui/m/orders/old") {
					t.Errorf("%s leads to %s, which has not what died:\n%s", list, path, page)
				}
			}
		}
	})
}
