//go:build !noui

package daemon_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/servertest"
)

// sendForm sends a form in which a name may stand more than once.
func (b *browser) sendForm(path string, fields ...string) (*http.Response, string) {
	b.t.Helper()
	form := url.Values{"form": {b.form}}
	for i := 0; i < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}
	return b.open(http.MethodPost, path, form)
}

// follow returns the page that a form leads to.
func (b *browser) follow(resp *http.Response, page string) (path, next string) {
	b.t.Helper()
	if resp.StatusCode != http.StatusSeeOther {
		b.t.Fatalf("%d\n%s", resp.StatusCode, page)
	}
	path = resp.Header.Get("Location")
	return path, b.page(path)
}

// later returns the page of a plan when it has done what it does.
func (b *browser) later(path string) string {
	<-time.After(30 * time.Second)
	return b.page(path)
}

var ruleNames = regexp.MustCompile(`name="rule" value="([^"]+)"`)

// A repair shows what it would do before it can be applied, is applied as it was shown, leads to a
// redrive of exactly what it changed, and is taken back.
func TestRepairOnThePages(t *testing.T) {
	inBubble(t, func(t *testing.T) *config.Config { return parse(t, pagesConfig) }, func(t *testing.T, store driver.Store, l *servertest.Pipes, s *daemon.Server) {
		scene(t, store, time.Now())
		defer runPlans(t, s)()
		b := newBrowser(t, "", l)
		signature := causeOf(t, b, "orders", "422")
		of := []string{"queue", "orders", "signature", signature}
		page := b.page("/ui/repairs/new?queue=orders&signature=" + signature)
		golden(t, "repair", page)
		if !strings.Contains(page, "Repair 180") || strings.Contains(page, `value="apply"`) {
			t.Errorf("the form can be applied before it was looked at, or counts wrongly:\n%s", page)
		}
		set := append([]string{"op", "set", "where", "$.schema_version", "value", "2", "with", ""}, of...)
		if resp, page := b.sendForm("/ui/repairs/new", append(set, "act", "add")...); resp.StatusCode != 200 || strings.Count(page, `name="op"`) != 2 || !strings.Contains(page, `value="$.schema_version"`) {
			t.Errorf("one more operation: %d\n%s", resp.StatusCode, page)
		}
		resp, preview := b.sendForm("/ui/repairs/new", append(set, "act", "preview")...)
		golden(t, "repair-preview", preview)
		if resp.StatusCode != 200 || !strings.Contains(preview, "would change 180 of 180 looked at, by &#43;19 bytes each") || strings.Count(preview, `<span class="add">`) != 8 || !strings.Contains(preview, "Apply to 180") {
			t.Fatalf("preview: %d\n%s", resp.StatusCode, preview)
		}
		rule := ruleNames.FindStringSubmatch(preview)[1]
		other := append([]string{"op", "set", "where", "$.schema_version", "value", "3", "with", "", "rule", rule, "act", "apply"}, of...)
		if resp, page := b.sendForm("/ui/repairs/new", other...); resp.StatusCode != http.StatusConflict || !strings.Contains(page, "not looked at") || !strings.Contains(page, "schema_version&#34;: 3") {
			t.Errorf("a rule that nobody looked at: %d\n%s", resp.StatusCode, page)
		}
		for _, wrong := range [][]string{{"op", "set", "where", "schema", "value", "2"}, {"op", "grow", "where", "$.a", "value", "2"}, {"op", "replace", "where", "$.a", "value", "("}, {"op", "set"}} {
			if resp, page := b.sendForm("/ui/repairs/new", append(append(wrong, "act", "preview"), of...)...); resp.StatusCode != 400 && resp.StatusCode != 422 || !strings.Contains(page, `role="alert"`) {
				t.Errorf("%q: %d\n%s", wrong, resp.StatusCode, page)
			}
		}
		path, _ := b.follow(b.sendForm("/ui/repairs/new", append(set, "rule", rule, "rate", "2000/s", "why", "INC-812", "act", "apply")...))
		done := b.later(path)
		if !strings.Contains(done, "Redrive exactly these…") || !strings.Contains(done, "Restore the originals") || !strings.Contains(done, "<dd>180</dd>") {
			t.Fatalf("the plan:\n%s", done)
		}
		body := func() string {
			entries, err := store.Get(t.Context(), []redrive.Ref{{Queue: "orders", ID: "a-0007"}})
			if err != nil {
				t.Fatal(err)
			}
			return string(entries[0].Body)
		}
		if !strings.Contains(body(), `"schema_version":2`) {
			t.Errorf("not repaired: %s", body())
		}
		these := regexp.MustCompile(`href="(/ui/redrive\?[^"]+)"`).FindStringSubmatch(done)
		if page := b.page(strings.ReplaceAll(these[1], "&amp;", "&")); !strings.Contains(page, "Redrive 180") || !strings.Contains(page, "edited: true") {
			t.Errorf("not exactly these:\n%s", page)
		}
		b.page(path)
		path, _ = b.follow(b.press(path + "/restore"))
		if b.later(path); strings.Contains(body(), "schema_version") {
			t.Errorf("not restored: %s", body())
		}
		try := append([]string{"op", "remove", "where", "$.sender", "value", "", "act", "preview"}, of...)
		_, preview = b.sendForm("/ui/repairs/new", try...)
		path, _ = b.follow(b.sendForm("/ui/repairs/new", append([]string{"op", "remove", "where", "$.sender", "value", "", "rule", ruleNames.FindStringSubmatch(preview)[1], "act", "try"}, of...)...))
		if page := b.later(path); !strings.Contains(page, "10 named messages") || !strings.Contains(page, "<dd>10</dd>") {
			t.Errorf("try:\n%s", page)
		}
	})
}

// What is ignored, archived, purged, tried again at once and reported by the pages; who did it by a page
// is in the audit log.
func TestFurtherActionsOfThePages(t *testing.T) {
	conf := func(t *testing.T) *config.Config {
		c := parse(t, pagesConfig)
		c.Archive = t.TempDir()
		return c
	}
	inBubble(t, conf, func(t *testing.T, store driver.Store, l *servertest.Pipes, s *daemon.Server) {
		scene(t, store, time.Now())
		defer runPlans(t, s)()
		b := newBrowser(t, "", l)
		signature := causeOf(t, b, "orders", "422")
		if resp, page := b.press("/ui/causes/"+signature, "queue", "orders", "state", "ignored", "more", "many"); resp.StatusCode != 400 {
			t.Errorf("ignored until many: %d\n%s", resp.StatusCode, page)
		}
		if _, page := b.follow(b.press("/ui/causes/"+signature, "queue", "orders", "state", "ignored", "more", "100", "until", "2h", "note", "see INC-812", "link", "https://incidents.example.com/812")); !strings.Contains(page, "ignored by local") || !strings.Contains(page, "see INC-812") {
			t.Errorf("not ignored:\n%s", page)
		}
		golden(t, "archive", b.page("/ui/archive?queue=hooks"))
		path, _ := b.follow(b.press("/ui/archive", "queue", "hooks", "why", "kept"))
		if page := b.later(path); !strings.Contains(page, "archive queue hooks") || !strings.Contains(page, "<dd>40</dd>") {
			t.Errorf("archive:\n%s", page)
		}
		golden(t, "purge", b.page("/ui/queues/hooks/purge"))
		if resp, page := b.press("/ui/queues/hooks/purge", "number", "11"); resp.StatusCode != http.StatusConflict || !strings.Contains(page, "it is 12 now") {
			t.Errorf("another number: %d\n%s", resp.StatusCode, page)
		}
		path, _ = b.follow(b.press("/ui/queues/hooks/purge", "number", "12"))
		if page := b.later(path); !strings.Contains(page, "<dd>12</dd>") {
			t.Errorf("purge:\n%s", page)
		}
		retries := redrive.Entry{Message: redrive.Message{Queue: "orders", ID: "r-1", Body: []byte("{}"), PublishedAt: time.Now()}, State: redrive.StateWaiting, Attempts: 1, Due: time.Now().Add(time.Hour), Lane: redrive.LaneRetry}
		if _, err := store.Apply(t.Context(), driver.Batch{Put: []redrive.Entry{retries}}); err != nil {
			t.Fatal(err)
		}
		if page := b.page("/ui/queues/orders"); !strings.Contains(page, "Retry now") {
			t.Errorf("no retry:\n%s", page)
		}
		path, _ = b.follow(b.press("/ui/queues/orders/retry"))
		if page := b.later(path); !strings.Contains(page, "retry queue orders") || !strings.Contains(page, "<dd>1</dd>") {
			t.Errorf("retry:\n%s", page)
		}
		audit := b.page("/ui/audit")
		for _, action := range []string{"cause ignored", "plan archive", "plan drop", "plan retry"} {
			if !regexp.MustCompile(`by a page</span></td><td>` + action + `<`).MatchString(audit) {
				t.Errorf("the audit log lacks %q by a page:\n%s", action, audit)
			}
		}
		report := b.page("/ui/report?since=2h")
		for _, want := range []string{"410 died", "see INC-812", "archive queue hooks", "plan archive", "The ledger of all"} {
			if !strings.Contains(report, want) {
				t.Errorf("the report lacks %q:\n%s", want, report)
			}
		}
		if resp, text := b.open(http.MethodGet, "/ui/report.md?since=2h", nil); resp.StatusCode != 200 || !strings.Contains(text, "# Report") || !strings.HasPrefix(resp.Header.Get("Content-Disposition"), "attachment") {
			t.Errorf("Markdown: %d\n%s", resp.StatusCode, text)
		}
	})
}

// runPlans carries out the plans of a daemon that only serves.
func runPlans(t *testing.T, s *daemon.Server) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { s.RunPlans(ctx); close(ended) }()
	return func() { cancel(); <-ended }
}

// A plan that one proposed is released by another.
func TestReleaseOnThePages(t *testing.T) {
	conf := func(t *testing.T) *config.Config {
		c := pagesTokens(t)
		c.Tokens = append(c.Tokens, config.Token{Name: "proposer", Hash: hash("secret-proposer"), Scopes: []config.Scope{config.ScopePropose}})
		return c
	}
	inBubble(t, conf, func(t *testing.T, store driver.Store, l *servertest.Pipes, s *daemon.Server) {
		scene(t, store, time.Now())
		plan := proposed(t, l, "secret-proposer")
		for _, c := range []struct {
			token string
			may   bool
		}{{"read", false}, {"redrive", true}} {
			b := newBrowser(t, "", l)
			b.logIn("secret-" + c.token)
			page := b.page(plan)
			golden(t, "plan-proposed-"+c.token, page)
			if !strings.Contains(page, "proposed") || strings.Contains(page, "Release</button></form>") != c.may {
				t.Errorf("%s may release: %t\n%s", c.token, !c.may, page)
			}
			if resp, _ := b.press(plan + "/release"); (resp.StatusCode == http.StatusSeeOther) != c.may {
				t.Errorf("%s releases: %d", c.token, resp.StatusCode)
			}
		}
	})
}

// proposed makes a plan by the API that stands still, and returns its page.
func proposed(t *testing.T, l *servertest.Pipes, token string) string {
	t.Helper()
	b := newBrowser(t, "", l)
	b.header.Set("Authorization", "Bearer "+token)
	b.header.Set("Content-Type", "application/json")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.base+"/v1/plans", strings.NewReader(`{"action":"redrive","filter":{"queue":"orders"}}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = b.header
	resp, err := b.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("%d", resp.StatusCode)
	}
	return "/ui" + strings.TrimPrefix(resp.Header.Get("Location"), "/v1")
}

// An edit that another was faster than shows what each of them changed.
func TestConflictOfEditsOnThePages(t *testing.T) {
	inBubble(t, func(t *testing.T) *config.Config { return parse(t, pagesConfig) }, func(t *testing.T, store driver.Store, l *servertest.Pipes, _ *daemon.Server) {
		scene(t, store, time.Now())
		b := newBrowser(t, "", l)
		hiddenFields := regexp.MustCompile(`name="(version|was_\w+)" value="([^"]*)"`)
		form := func() url.Values {
			page := b.page("/ui/m/orders/a-0007/edit")
			f := url.Values{"form": {b.form}, "act": {"save"}, "kind": {"github.pull_request"}, "headers": {"x-tenant: t-3\r\n"}}
			for _, m := range hiddenFields.FindAllStringSubmatch(page, -1) {
				f.Set(m[1], strings.NewReplacer("&#34;", `"`, "&#39;", "'", "&amp;", "&").Replace(m[2]))
			}
			f.Set("body", f.Get("was_body"))
			return f
		}
		mine, theirs := form(), form()
		theirs.Set("body", strings.Replace(theirs.Get("body"), `"ada"`, `"eve"`, 1))
		if resp, page := b.open(http.MethodPost, "/ui/m/orders/a-0007/edit", theirs); resp.StatusCode != 303 {
			t.Fatalf("%d\n%s", resp.StatusCode, page)
		}
		mine.Set("body", strings.Replace(mine.Get("body"), `"number": 7`, `"number": 8`, 1))
		resp, page := b.open(http.MethodPost, "/ui/m/orders/a-0007/edit", mine)
		golden(t, "edit-conflict", regexp.MustCompile(`name="version" value="[^"]*"`).ReplaceAllString(page, `name="version" value="VERSION"`))
		of := func(from, to string) string { return page[strings.Index(page, from):strings.Index(page, to)] }
		if resp.StatusCode != http.StatusConflict {
			t.Fatalf("%d\n%s", resp.StatusCode, page)
		}
		if s := of(`id="theirs"`, `id="mine"`); !strings.Contains(s, "eve") || strings.Contains(s, ": 8") {
			t.Errorf("theirs: %s", s)
		}
		if s := of(`id="mine"`, `id="diff"`); !strings.Contains(s, ": 8") || strings.Contains(s, "eve") {
			t.Errorf("mine: %s", s)
		}
		if s := of(`id="diff"`, "<textarea"); !strings.Contains(s, "ada") || !strings.Contains(s, "eve") || !strings.Contains(s, ": 8") {
			t.Errorf("what saving would change: %s", s)
		}
	})
}

// The theme is kept in a cookie, also where the pages are read-only, and needs no script.
func TestThemeOfThePages(t *testing.T) {
	readOnly := func(t *testing.T) *config.Config {
		c := parse(t, pagesConfig)
		c.UI.ReadOnly = true
		return c
	}
	inBubble(t, readOnly, func(t *testing.T, _ driver.Store, l *servertest.Pipes, _ *daemon.Server) {
		b := newBrowser(t, "", l)
		if page := b.page("/ui/queues?name=a"); strings.Contains(page, "data-theme") || !strings.Contains(page, `name="next" value="/queues?name=a"`) {
			t.Errorf("before:\n%s", page)
		}
		resp, _ := b.press("/ui/theme", "theme", "dark", "next", "/queues?name=a")
		if resp.Header.Get("Location") != "/ui/queues?name=a" || len(resp.Cookies()) != 1 || !resp.Cookies()[0].HttpOnly {
			t.Errorf("%d %v", resp.StatusCode, resp.Header)
		}
		if page := b.page("/ui/"); !strings.Contains(page, `<html lang="en" data-theme="dark">`) || !strings.Contains(page, `<option value="dark" selected>`) {
			t.Errorf("dark:\n%s", page)
		}
		if resp, _ := b.press("/ui/theme", "theme", "red"); resp.StatusCode != 400 {
			t.Errorf("red: %d", resp.StatusCode)
		}
		for _, next := range []string{"//evil.example", "https://evil.example"} {
			if resp, _ := b.press("/ui/theme", "theme", "light", "next", next); resp.Header.Get("Location") != "/ui/" {
				t.Errorf("%s leads to %s", next, resp.Header.Get("Location"))
			}
		}
		b.press("/ui/theme", "theme", "")
		if page := b.page("/ui/"); strings.Contains(page, "data-theme") {
			t.Error("the system's is not back")
		}
	})
}

// The scripts and the style sheet are small.
func TestSizesOfThePages(t *testing.T) {
	d := start(t, parse(t, pagesConfig), newStore(t))
	b := newBrowser(t, d.base, nil)
	page := b.page("/ui/")
	b.header.Set("Accept-Encoding", "gzip")
	sum := make(map[string]int)
	for _, m := range regexp.MustCompile(`"(/ui/assets/[^"]+\.(css|js))"`).FindAllStringSubmatch(page, -1) {
		_, packed := b.open(http.MethodGet, m[1], nil)
		sum[m[2]] += len(packed)
	}
	if sum["css"] == 0 || sum["css"] > 12<<10 || sum["js"] == 0 || sum["js"] > 15<<10 || len(page)+sum["css"]+sum["js"] > 60<<10 {
		t.Errorf("%v on the wire, the page %d bytes", sum, len(page))
	}
	t.Logf("%v on the wire, the page %d bytes", sum, len(page))
}

// examiningStore counts what a store looks at. A list of causes by a plan, which has an index, counts as
// what it found; by anything else that no counter knows as all that it may look at.
type examiningStore struct {
	driver.Store
	examined atomic.Int64
}

func (s *examiningStore) Unwrap() any { return s.Store }

// add counts what a request examined: alerts and listeners look at the store meanwhile.
func (s *examiningStore) add(ctx context.Context, n int64) {
	if ctx.Value(http.ServerContextKey) != nil {
		s.examined.Add(n)
	}
}

func (s *examiningStore) Find(ctx context.Context, q redrive.Query) (driver.Page, error) {
	page, err := s.Store.Find(ctx, q)
	s.add(ctx, int64(page.Examined))
	return page, err
}

func (s *examiningStore) Count(ctx context.Context, q redrive.Query) (driver.Count, error) {
	n, err := s.Store.Count(ctx, q)
	s.add(ctx, n.Examined)
	return n, err
}

func (s *examiningStore) Causes(ctx context.Context, q redrive.Query) ([]driver.Cause, bool, error) {
	causes, complete, err := s.Store.Causes(ctx, q)
	counted := redrive.Query{Queue: q.Queue, State: q.State, Reason: q.Reason, Signature: q.Signature, Until: q.Until, Limit: q.Limit, After: q.After}
	switch {
	case q == counted:
	case q.Plan != "" && complete:
		for i := range causes {
			s.add(ctx, causes[i].Count)
		}
	default:
		s.add(ctx, redrive.Examined)
	}
	return causes, complete, err
}

// No page looks at more than 20,000 messages, however many are dead. The dry run of a plan by a filter
// that no counter knows looks so far twice: for the number, and for the causes.
func TestPagesExamineFewMessages(t *testing.T) {
	const most = 20_000
	twice := map[string]bool{"/ui/redrive?queue=open&kind=none": true, "/ui/redrive?queue=open&body=needle": true}
	store := &examiningStore{Store: newStore(t)}
	now := time.Now()
	for from := range 50 {
		var batch driver.Batch
		for i := range 1000 {
			died := now.Add(-time.Hour + time.Duration(from*1000+i)*50*time.Millisecond)
			f := &redrive.Failure{At: died, Attempt: 1, Types: []string{"delivery.ResponseError"}, Message: "the target answered 422 Unprocessable Entity", Details: map[string]string{driver.DetailStatus: "422", driver.DetailAnswer: "no"}}
			f.Signature = driver.Signature(f)
			e := redrive.Entry{Message: redrive.Message{Queue: "open", ID: fmt.Sprintf("m-%d", from*1000+i), Kind: "order", Body: fmt.Appendf(nil, `{"n":%d}`, i)}, State: redrive.StateDead, Reason: redrive.ReasonPermanent, DiedAt: died}
			e.History.Record(f, true)
			batch.Put = append(batch.Put, e)
		}
		if errs, err := store.Apply(t.Context(), batch); err != nil || driver.FirstError(errs) != nil {
			t.Fatal(err, errs)
		}
	}
	scene(t, store, now)
	d := start(t, parse(t, "{queues: {open: {}, orders: {}, payments: {}, hooks: {}}}"), store)
	b := newBrowser(t, d.base, nil)
	signature := causeOf(t, b, "orders", "422")
	open := regexp.MustCompile(`/ui/causes/([^?"]+)\?queue=open`).FindStringSubmatch(b.page("/ui/causes"))[1]
	plan := planOf(t, b, "orders", signature)
	for _, path := range []string{
		"/ui/", "/ui/causes", "/ui/causes?queue=open&sort=count", "/ui/causes?since=1h", "/ui/causes/" + open + "?queue=open", "/ui/dead", "/ui/dead?queue=open", "/ui/dead?queue=open&kind=none",
		"/ui/dead?queue=open&text=nothing", "/ui/dead?body=nothing", "/ui/dead?header=none", "/ui/m/open/m-7", "/ui/m/open/m-7/edit", "/ui/queues", "/ui/queues/open", "/ui/queues/open/waiting", "/ui/queues/open/processing",
		"/ui/redrive?queue=open", "/ui/redrive?queue=open&signature=" + open, "/ui/redrive?queue=open&kind=none", "/ui/redrive?queue=open&body=needle", "/ui/drop?queue=open", "/ui/archive?queue=open", "/ui/repairs/new?queue=open",
		"/ui/queues/open/purge", "/ui/plans", plan, plan + "/results", "/ui/ledger", "/ui/audit", "/ui/report", "/ui/report?plan=" + strings.TrimPrefix(plan, "/ui/plans/"),
	} {
		before := store.examined.Load()
		page := b.page(path)
		examined := store.examined.Load() - before
		t.Logf("%6d %s (%d bytes)", examined, path, len(page))
		if examined > most && !(twice[path] && examined <= 2*most) {
			t.Errorf("%s looks at %d messages", path, examined)
		}
		if len(page) > 100<<10 {
			t.Errorf("%s has %d bytes", path, len(page))
		}
	}
	b.page("/ui/repairs/new?queue=open")
	before := store.examined.Load()
	if resp, page := b.sendForm("/ui/repairs/new", "queue", "open", "op", "set", "where", "$.n", "value", "1", "with", "", "act", "preview"); resp.StatusCode != 200 {
		t.Fatalf("%d\n%s", resp.StatusCode, page)
	}
	if n := store.examined.Load() - before; n > most {
		t.Errorf("the preview of a repair looks at %d messages", n)
	}
}

// What each role may press of a cause, a queue and a plan, and what it is refused when it sends the form all the same.
func TestRolesOfFurtherForms(t *testing.T) {
	inBubble(t, pagesTokens, func(t *testing.T, store driver.Store, l *servertest.Pipes, _ *daemon.Server) {
		scene(t, store, time.Now())
		forms := map[string][]string{
			"/ui/repairs/new": {"queue", "orders", "op", "remove", "where", "$.a", "act", "preview"}, "/ui/archive": {"queue", "idle"},
			"/ui/queues/idle/purge": {"number", "1"}, "/ui/queues/idle/retry": nil,
		}
		redrives := map[config.Scope]bool{config.ScopeRedrive: true, config.ScopeAdmin: true}
		for _, scope := range []config.Scope{config.ScopeRead, config.ScopeReadPayload, config.ScopeRedrive, config.ScopePurge, config.ScopeAdmin} {
			b := newBrowser(t, "", l)
			b.logIn("secret-" + string(scope))
			may := map[string]bool{"/ui/repairs/new": redrives[scope], "/ui/archive": redrives[scope], "/ui/queues/idle/purge": scope == config.ScopeAdmin, "/ui/queues/idle/retry": redrives[scope]}
			for path, fields := range forms {
				resp, page := b.sendForm(path, fields...)
				if forbidden := resp.StatusCode == http.StatusForbidden; forbidden == may[path] {
					t.Errorf("%s: %s: %d\n%s", scope, path, resp.StatusCode, page)
				}
			}
			cause := b.page("/ui/causes/" + causeOf(t, b, "orders", "422") + "?queue=orders")
			for label, can := range map[string]bool{"Try 10": redrives[scope], "Redrive…": redrives[scope], "Repair…": redrives[scope], "Archive…": redrives[scope], "Drop…": scope == config.ScopeAdmin} {
				if disabled := strings.Contains(cause, fmt.Sprintf("<button type=\"button\" disabled>%s</button>", label)); disabled == can {
					t.Errorf("%s: %s is disabled: %t", scope, label, disabled)
				}
			}
			if queue := b.page("/ui/queues/hooks"); strings.Contains(queue, `disabled>Purge…`) == (scope == config.ScopeAdmin) {
				t.Errorf("%s: purge", scope)
			}
		}
	})
}

// A header's value with a line break would be two headers in the form: it is not edited there.
func TestHeadersOfSeveralLinesAreNotEditedOnThePage(t *testing.T) {
	store := memory.New()
	deadOf(t, store, "orders", "two", "", func(e *redrive.Entry) { e.Headers = redrive.Headers{{Name: "note", Value: []byte("one\nx: two")}} })
	b := newBrowser(t, start(t, parse(t, pagesConfig), store).base, nil)
	if page := b.page("/ui/m/orders/two/edit"); !strings.Contains(page, "has a line break: use the command line") {
		t.Error(page)
	}
}
