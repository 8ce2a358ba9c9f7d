//go:build !noui

package daemon_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/servertest"
)

// browser is who looks at the pages of a test's daemon.
type browser struct {
	t      *testing.T
	client *http.Client
	base   string
	form   string // of the last page
	header http.Header
}

// newBrowser returns one without a session. Without an address it reaches what listens on pipes.
func newBrowser(t *testing.T, base string, l *servertest.Pipes) *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	if l != nil {
		base = "http://localhost"
		tr.DialContext = func(context.Context, string, string) (net.Conn, error) { return l.Dial(), nil }
	}
	t.Cleanup(tr.CloseIdleConnections)
	b := &browser{t: t, base: base, header: http.Header{"Accept": {"text/html"}}}
	b.client = &http.Client{Jar: jar, Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return b
}

var formToken = regexp.MustCompile(`name="form" value="([^"]+)"`)

// open looks at a page, or sends a form.
func (b *browser) open(method, path string, form url.Values) (*http.Response, string) {
	b.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.base+path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	maps.Copy(r.Header, b.header)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if found := formToken.FindSubmatch(page); found != nil {
		b.form = string(found[1])
	}
	return resp, string(page)
}

// page looks at a page that must be there.
func (b *browser) page(path string) string {
	b.t.Helper()
	resp, page := b.open(http.MethodGet, path, nil)
	if resp.StatusCode != http.StatusOK {
		b.t.Fatalf("%s: %d\n%s", path, resp.StatusCode, page)
	}
	return page
}

// press sends a form of the last page.
func (b *browser) press(path string, pairs ...string) (*http.Response, string) {
	b.t.Helper()
	form := url.Values{"form": {b.form}}
	for i := 0; i < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	return b.open(http.MethodPost, path, form)
}

// logIn logs in with a token.
func (b *browser) logIn(token string) {
	b.t.Helper()
	resp, page := b.open(http.MethodPost, "/ui/login", url.Values{"token": {token}})
	if resp.StatusCode != http.StatusSeeOther {
		b.t.Fatalf("login: %d\n%s", resp.StatusCode, page)
	}
	b.page("/ui/ledger")
}

// scene puts dead letters of several causes into a store, as a bad night leaves them.
func scene(t *testing.T, store driver.Store, now time.Time) {
	t.Helper()
	put := func(queue, name string, n int, from, to time.Duration, fill func(i int, m *redrive.Message, f *redrive.Failure)) {
		var batch driver.Batch
		for i := range n {
			died := now.Add(-from + (from-to)*time.Duration(i)/time.Duration(max(n-1, 1)))
			e := redrive.Entry{
				Message: redrive.Message{Queue: queue, ID: fmt.Sprintf("%s-%04d", name, i), PublishedAt: died.Add(-time.Minute)},
				State:   redrive.StateDead, Reason: redrive.ReasonExhausted, Attempts: 5, DiedAt: died,
			}
			f := &redrive.Failure{At: died, Attempt: 5, Duration: 41 * time.Millisecond, Host: fmt.Sprintf("vm-%d", 1+i%2), Service: "redrive", Version: "1.4", Types: []string{"delivery.ResponseError"},
				Config: redrive.FailureConfig{Target: "http://" + queue + ".internal", Policy: "default", Timeout: time.Second, MaxAttempts: 5}}
			fill(i, &e.Message, f)
			f.Signature = driver.Signature(f)
			e.History.Record(f, true)
			batch.Put = append(batch.Put, e)
		}
		if _, err := store.Apply(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	answered := func(f *redrive.Failure, status int, answer string) {
		f.Message = fmt.Sprintf("the target answered %d %s", status, http.StatusText(status))
		f.Details = map[string]string{driver.DetailStatus: fmt.Sprint(status), driver.DetailAnswer: answer}
	}
	put("orders", "a", 180, 31*time.Minute, 0, func(i int, m *redrive.Message, f *redrive.Failure) {
		m.Kind = []string{"github.push", "github.pull_request", "github.check_run"}[i%3]
		m.Headers = redrive.Headers{{Name: "x-tenant", Value: []byte("t-" + fmt.Sprint(i%4))}}
		m.Body = fmt.Appendf(nil, `{"action":"created","number":%d,"repository":{"id":%d,"name":"shop"},"sender":{"login":"ada"}}`, i, 1000000000000000000+i)
		answered(f, 422, `{"error":"validation failed","field":"schema_version","message":"is required"}`)
	})
	put("orders", "b", 110, 31*time.Minute, 15*time.Minute, func(i int, m *redrive.Message, f *redrive.Failure) {
		m.Kind, m.Body = "order.placed", fmt.Appendf(nil, `{"order":%d,"items":[{"sku":"k-1","n":2}]}`, i)
		answered(f, 500, `{"error":"NullPointerException","trace":"OrderService.java:212"}`)
	})
	put("payments", "c", 70, 31*time.Minute, 22*time.Minute, func(i int, m *redrive.Message, f *redrive.Failure) {
		m.Kind, m.Body = "charge", fmt.Appendf(nil, `{"amount":%d,"currency":"EUR"}`, i*100)
		answered(f, 401, `{"error":"token expired"}`)
	})
	put("payments", "d", 50, 10*time.Minute, 0, func(i int, m *redrive.Message, f *redrive.Failure) {
		m.Kind, m.Body, f.Types = "refund", fmt.Appendf(nil, `{"amount":%d}`, i), []string{"delivery.TransportError", "context.deadlineExceededError"}
		f.Message = "Post \"http://payments.internal\": context deadline exceeded"
	})
	put("hooks", "e", 40, 30*time.Hour, 26*time.Hour, func(_ int, m *redrive.Message, f *redrive.Failure) {
		m.Kind, m.Body, f.Types = "hook", []byte{0xff, 0, 1, 2}, []string{"redrive.PanicError"}
		f.Message, f.Stack = "panic: index out of range [3] with length 3", "goroutine 71 [running]:\nmain.render(0x0)\n\t/src/shop/render.go:41 +0x1d\nmain.handle()\n\t/src/shop/main.go:12 +0x2f\ncreated by engine\n"
	})
	waiting := driver.Batch{}
	for i := range 12 {
		waiting.Put = append(waiting.Put, redrive.Entry{Message: redrive.Message{Queue: "hooks", ID: fmt.Sprintf("w-%d", i), Kind: "hook", Body: []byte("{}"), PublishedAt: now.Add(-time.Minute)}, State: redrive.StateWaiting, Due: now.Add(time.Hour)})
	}
	if _, err := store.Apply(t.Context(), waiting); err != nil {
		t.Fatal(err)
	}
}

const pagesConfig = "{queues: {orders: {}, payments: {}, hooks: {}, idle: {}}, grace: 100ms}"

// inBubble serves the pages of a daemon in simulated time, which begins at the same moment always.
func inBubble(t *testing.T, cfg func(t *testing.T) *config.Config, test func(t *testing.T, store driver.Store, l *servertest.Pipes, s *daemon.Server)) {
	synctest.Test(t, func(t *testing.T) {
		<-time.After(12*time.Hour + 3*time.Minute + 12*time.Second)
		store := memory.New()
		s, err := daemon.New(cfg(t), daemon.Options{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		l := servertest.NewPipes()
		defer s.ServeOn(l)()
		test(t, store, l, s)
	})
}

var (
	planIDs  = regexp.MustCompile(`0[0-9a-f]{7}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)
	formKeys = regexp.MustCompile(`(name="form" value=")[^"]+`)
	hashes   = regexp.MustCompile(`(assets/[a-z]+\.)[0-9a-f]{12}`)
)

// golden compares a page with the one that was looked at; REDRIVE_UPDATE=1 writes it.
func golden(t *testing.T, name, page string) {
	t.Helper()
	page = hashes.ReplaceAllString(formKeys.ReplaceAllString(planIDs.ReplaceAllString(page, "PLAN"), "${1}FORM"), "${1}HASH")
	file := filepath.Join("testdata", "ui", name+".html")
	if os.Getenv("REDRIVE_UPDATE") != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != page {
		got, was := strings.Split(page, "\n"), strings.Split(string(want), "\n")
		for i := range min(len(got), len(was)) {
			if got[i] != was[i] {
				t.Errorf("%s, line %d: \n%s\nwant\n%s", file, i+1, got[i], was[i])
				return
			}
		}
		t.Errorf("%s has %d lines, want %d", file, len(got), len(was))
	}
}

// The pages, each in its states, as a browser without JavaScript gets them.
func TestPages(t *testing.T) {
	inBubble(t, func(t *testing.T) *config.Config { return parse(t, pagesConfig) }, func(t *testing.T, store driver.Store, l *servertest.Pipes, _ *daemon.Server) {
		b := newBrowser(t, "", l)
		for name, path := range map[string]string{"now-empty": "/ui/", "causes-empty": "/ui/causes", "dead-empty": "/ui/dead", "plans-empty": "/ui/plans", "audit-empty": "/ui/audit", "guards-empty": "/ui/guards", "sessions-empty": "/ui/sessions", "config": "/ui/config"} {
			golden(t, name, b.page(path))
		}
		scene(t, store, time.Now())
		<-time.After(61 * time.Second) // the ledger is looked at anew
		b.page("/ui/ledger")
		synctest.Wait()
		signature := causeOf(t, b, "orders", "422")
		for name, path := range map[string]string{
			"now": "/ui/", "causes": "/ui/causes", "causes-filtered": "/ui/causes?queue=payments&sort=count", "causes-none": "/ui/causes?queue=idle",
			"cause": "/ui/causes/" + signature + "?queue=orders", "dead": "/ui/dead?queue=payments&kind=charge", "dead-none": "/ui/dead?queue=payments&kind=none",
			"message": "/ui/m/orders/a-0007", "message-binary": "/ui/m/hooks/e-0001", "message-waiting": "/ui/m/hooks/w-1", "edit": "/ui/m/orders/a-0007/edit", "edit-binary": "/ui/m/hooks/e-0001/edit",
			"queues": "/ui/queues", "queue": "/ui/queues/orders", "waiting": "/ui/queues/hooks/waiting", "processing": "/ui/queues/hooks/processing",
			"redrive": "/ui/redrive?queue=orders&signature=" + signature, "drop": "/ui/drop?queue=hooks", "ledger": "/ui/ledger",
		} {
			page := b.page(path)
			golden(t, name, page)
			if len(page) > 100<<10 {
				t.Errorf("%s has %d bytes, at most 100 kB are allowed", name, len(page))
			}
		}
		for name, path := range map[string]string{
			"error-parameter": "/ui/causes?quueue=orders&x=1", "error-message": "/ui/m/orders/nothing", "error-queue": "/ui/queues/nothing", "error-page": "/ui/nothing",
			"error-cause": "/ui/causes/nothing?queue=orders", "error-plan": "/ui/plans/nothing",
		} {
			resp, page := b.open(http.MethodGet, path, nil)
			if resp.StatusCode < 400 || resp.StatusCode >= 500 {
				t.Errorf("%s: %d", path, resp.StatusCode)
			}
			golden(t, name, page)
		}
	})
}

// causeOf finds the signature of a queue's cause by the status in its row.
func causeOf(t *testing.T, b *browser, queue, status string) string {
	t.Helper()
	page := b.page("/ui/causes?queue=" + queue)
	found := regexp.MustCompile(`causes/([^?"]+)\?queue=` + queue + `"><span class="line"><b>` + status).FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("no cause with %s in\n%s", status, page)
	}
	return found[1]
}
