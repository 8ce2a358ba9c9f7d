//go:build !noui

package daemon_test

import (
	"fmt"
	"net/http"
	"net/url"
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
	"github.com/redrive/redrive/internal/daemon/ui"
	"github.com/redrive/redrive/internal/servertest"
)

// pagePath fills in the names of a page's pattern.
func pagePath(pattern string) string {
	return strings.NewReplacer("{queue}", "orders", "{id}", "a-0007", "{signature}", "s", "{act}", "pause").Replace(pattern)
}

// pagesTokens is a configuration with a token for each scope, and one that is confined to a queue.
func pagesTokens(t *testing.T) *config.Config {
	c := parse(t, pagesConfig)
	for _, s := range config.Scopes() {
		c.Tokens = append(c.Tokens, config.Token{Name: string(s), Hash: hash("secret-" + string(s)), Scopes: []config.Scope{s}})
	}
	c.Tokens = append(c.Tokens, config.Token{Name: "confined", Hash: hash("secret-confined"), Queues: []string{"payments"}})
	return c
}

// Every form is refused from another site, without a session, with another session's form, and when
// the pages are read-only.
func TestEveryFormOfThePagesIsGuarded(t *testing.T) {
	inBubble(t, pagesTokens, func(t *testing.T, store driver.Store, l *servertest.Pipes, _ *daemon.Server) {
		scene(t, store, time.Now())
		b, other := newBrowser(t, "", l), newBrowser(t, "", l)
		for _, r := range ui.Routes() {
			if r[0] != http.MethodPost || strings.HasSuffix(r[1], "/login") || strings.HasSuffix(r[1], "/logout") {
				continue
			}
			if resp, _ := b.press(pagePath(r[1])); resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("without a session %s: %d", r[1], resp.StatusCode)
			}
		}
		b.logIn("secret-admin")
		other.logIn("secret-admin")
		for _, r := range ui.Routes() {
			if r[0] != http.MethodPost {
				continue
			}
			b.header.Set("Sec-Fetch-Site", "cross-site")
			if resp, _ := b.press(pagePath(r[1]), "token", "secret-admin"); resp.StatusCode != http.StatusForbidden {
				t.Errorf("from another site %s: %d", r[1], resp.StatusCode)
			}
			b.header.Del("Sec-Fetch-Site")
			if strings.HasSuffix(r[1], "/login") {
				continue
			}
			for _, form := range []string{"", "x", other.form} {
				if resp, page := b.press(pagePath(r[1]), "form", form); resp.StatusCode != http.StatusForbidden || !strings.Contains(page, "form is not of this session") {
					t.Errorf("with the form %q %s: %d", form, r[1], resp.StatusCode)
				}
			}
		}
	})
	readOnly := func(t *testing.T) *config.Config {
		c := pagesTokens(t)
		c.UI.ReadOnly = true
		return c
	}
	inBubble(t, readOnly, func(t *testing.T, store driver.Store, l *servertest.Pipes, _ *daemon.Server) {
		scene(t, store, time.Now())
		b := newBrowser(t, "", l)
		b.logIn("secret-admin")
		for _, r := range ui.Routes() {
			path := pagePath(r[1])
			if r[0] == http.MethodPost && !strings.Contains(path, "/log") && path != "/ui/theme" {
				if resp, _ := b.press(path); resp.StatusCode != http.StatusForbidden {
					t.Errorf("read-only %s: %d", path, resp.StatusCode)
				}
			}
		}
		for _, path := range []string{"/ui/m/orders/a-0007", "/ui/queues/orders", "/ui/redrive?queue=orders", "/ui/drop?queue=orders", "/ui/causes/" + causeOf(t, b, "orders", "422") + "?queue=orders"} {
			for _, form := range regexp.MustCompile(`<form method="post" action="[^"]*"`).FindAllString(b.page(path), -1) {
				if !strings.HasSuffix(form, `/logout"`) && !strings.HasSuffix(form, `/theme"`) && !strings.HasSuffix(form, `/ui/redrive"`) { // that one has disabled buttons
					t.Errorf("%s has %s", path, form)
				}
			}
		}
	})
}

// A session is a sealed cookie: it ends when it is idle for an hour, after 12 hours, when it is
// logged out of, and with its token.
func TestSessionsOfThePages(t *testing.T) {
	root := config.Token{Name: "root", Hash: hash("secret-root")}
	inForce := []config.Token{root, {Name: "read", Hash: hash("secret-read"), Scopes: []config.Scope{config.ScopeRead}}}
	conf := func(tokens ...config.Token) *config.Config {
		c := parse(t, pagesConfig)
		c.Tokens = tokens
		return c
	}
	synctest.Test(t, func(t *testing.T) {
		next := conf(inForce...)
		s, err := daemon.New(conf(inForce...), daemon.Options{Store: memory.New(), Reload: func() (*config.Config, error) { return next, nil }})
		if err != nil {
			t.Fatal(err)
		}
		l := servertest.NewPipes()
		defer s.ServeOn(l)()
		b := newBrowser(t, "", l)
		in := func() bool {
			resp, _ := b.open(http.MethodGet, "/ui/queues", nil)
			if out := strings.HasPrefix(resp.Header.Get("Location"), "/ui/login?next="); resp.StatusCode != http.StatusOK && !out {
				t.Errorf("%d, %s", resp.StatusCode, resp.Header.Get("Location"))
			}
			return resp.StatusCode == http.StatusOK
		}
		if in() {
			t.Error("in without a login")
		}
		if resp, page := b.open(http.MethodPost, "/ui/login", url.Values{"token": {"secret-wrong"}}); resp.StatusCode != http.StatusUnauthorized || len(resp.Cookies()) > 0 || strings.Contains(page, "secret-wrong") {
			t.Errorf("a wrong token: %d\n%s", resp.StatusCode, page)
		}
		resp, _ := b.open(http.MethodPost, "/ui/login", url.Values{"token": {"secret-read"}, "next": {"/ui/queues?name=a"}})
		cookies := resp.Cookies()
		if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/ui/queues?name=a" || len(cookies) != 1 {
			t.Fatalf("%d %v", resp.StatusCode, resp.Header)
		}
		if c := cookies[0]; c.Name != "rdui-80" || !c.HttpOnly || c.Secure || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.MaxAge != 12*3600 || strings.Contains(c.Value, "secret") {
			t.Errorf("%+v", c)
		}
		if resp, _ := b.open(http.MethodGet, "/v1/queues", nil); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("/v1 takes a cookie: %d", resp.StatusCode)
		}
		for range 20 { // a look keeps it, up to 12 hours
			<-time.After(35 * time.Minute)
			if !in() {
				t.Fatal("it ended although it was looked at")
			}
		}
		<-time.After(35 * time.Minute)
		if in() {
			t.Error("in after 12 hours")
		}
		b.logIn("secret-read")
		<-time.After(time.Hour)
		if in() {
			t.Error("in after an idle hour")
		}
		b.logIn("secret-read")
		b.press("/ui/logout")
		if in() {
			t.Error("in after a logout")
		}
		b.logIn("secret-read")
		at, _ := url.Parse(b.base)
		c := b.client.Jar.Cookies(at)[0]
		b.client.Jar.SetCookies(at, []*http.Cookie{{Name: c.Name, Value: c.Value[:20] + "AAAA" + c.Value[24:], Path: "/"}})
		if in() {
			t.Error("in with a cookie that was changed")
		}
		b.logIn("secret-read")
		next = conf(root, config.Token{Name: "read", Hash: hash("secret-rotated"), Scopes: []config.Scope{config.ScopeRead}})
		if err := s.Replace(t.Context()); err != nil {
			t.Fatal(err)
		}
		if in() {
			t.Error("in after the token was rotated")
		}
		b.logIn("secret-root")
		next = conf(inForce[1])
		if err := s.Replace(t.Context()); err != nil {
			t.Fatal(err)
		}
		if in() {
			t.Error("in after the token was removed")
		}
	})
}

// A login leads to a page of ours only.
func TestALoginLeadsNowhereElse(t *testing.T) {
	inBubble(t, pagesTokens, func(t *testing.T, _ driver.Store, l *servertest.Pipes, _ *daemon.Server) {
		for _, next := range []string{"//evil.example", "https://evil.example", "/ui//evil.example", "/ui/\\evil.example", "/v1/queues", ""} {
			resp, _ := newBrowser(t, "", l).open(http.MethodPost, "/ui/login", url.Values{"token": {"secret-read"}, "next": {next}})
			if to := resp.Header.Get("Location"); to != "/ui/" {
				t.Errorf("%q leads to %q", next, to)
			}
		}
	})
}

// What a role may not press is shown, disabled, with the scope that it needs; and the form is
// refused if it is sent all the same.
func TestRolesOfThePages(t *testing.T) {
	inBubble(t, pagesTokens, func(t *testing.T, store driver.Store, l *servertest.Pipes, _ *daemon.Server) {
		scene(t, store, time.Now())
		bodies := map[config.Scope]bool{config.ScopeReadPayload: true, config.ScopeRedrive: true, config.ScopeAdmin: true}
		redrives := map[config.Scope]bool{config.ScopeRedrive: true, config.ScopeAdmin: true}
		purges := map[config.Scope]bool{config.ScopePurge: true, config.ScopeAdmin: true}
		for _, scope := range []config.Scope{config.ScopeRead, config.ScopeReadPayload, config.ScopeRedrive, config.ScopePurge, config.ScopeAdmin} {
			b := newBrowser(t, "", l)
			b.logIn("secret-" + string(scope))
			page := b.page("/ui/m/orders/a-0007")
			if strings.Contains(page, "1000000000000000007") != bodies[scope] || strings.Contains(page, "needs the scope read-payload") == bodies[scope] {
				t.Errorf("%s: the body shows: %t", scope, !bodies[scope])
			}
			if strings.Contains(page, "needs the scope redrive") == redrives[scope] || strings.Contains(page, "needs the scope purge") == purges[scope] {
				t.Errorf("%s: the page of a message says another thing of what it needs", scope)
			}
			if resp, _ := b.open(http.MethodGet, "/ui/audit", nil); (resp.StatusCode == http.StatusOK) != (scope == config.ScopeAdmin) {
				t.Errorf("%s: the audit log: %d", scope, resp.StatusCode)
			}
			signature := causeOf(t, b, "orders", "422")
			if page := b.page("/ui/causes/" + signature + "?queue=orders"); strings.Contains(page, "1000000000000000") != bodies[scope] {
				t.Errorf("%s: samples show: %t", scope, !bodies[scope])
			}
			b.page("/ui/redrive?queue=orders&signature=" + signature)
			for path, may := range map[string]bool{"/ui/redrive": redrives[scope], "/ui/queues/idle/pause": redrives[scope], "/ui/m/orders/nothing/drop": purges[scope], "/ui/drop": scope == config.ScopeAdmin, "/ui/causes/s": redrives[scope]} {
				b.page("/ui/ledger")
				resp, page := b.press(path, "queue", "idle", "act", "start", "id", "nothing", "number", "7", "state", "resolved", "for", "1m")
				if forbidden := resp.StatusCode == http.StatusForbidden; forbidden == may {
					t.Errorf("%s: %s: %d\n%s", scope, path, resp.StatusCode, page)
				}
			}
		}
	})
}

// A token that is confined to a queue sees that, and nothing of the others.
func TestPagesOfAConfinedToken(t *testing.T) {
	inBubble(t, pagesTokens, func(t *testing.T, store driver.Store, l *servertest.Pipes, _ *daemon.Server) {
		scene(t, store, time.Now())
		b := newBrowser(t, "", l)
		b.logIn("secret-confined")
		for path, want := range map[string]string{
			"/ui/": "120 dead", "/ui/causes": "2 causes, 120 dead", "/ui/dead": "choose one", "/ui/dead?queue=payments": "c-0001", "/ui/queues": "1 queue", "/ui/ledger": "payments", "/ui/plans": "No plans",
		} {
			page := b.page(path)
			if !strings.Contains(page, want) || strings.Contains(page, "orders") || strings.Contains(page, "hooks") {
				t.Errorf("%s lacks %q, or has more:\n%s", path, want, page)
			}
		}
		for _, path := range []string{"/ui/queues/orders", "/ui/m/orders/a-0007", "/ui/m/orders/a-0007/edit", "/ui/m/orders/a-0007/body", "/ui/causes?queue=orders", "/ui/dead?queue=orders", "/ui/redrive?queue=orders", "/ui/redrive", "/ui/audit", "/ui/queues/orders/waiting", "/ui/queues/orders/processing"} {
			if resp, page := b.open(http.MethodGet, path, nil); resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %d\n%s", path, resp.StatusCode, page)
			}
		}
		for path, form := range map[string][]string{
			"/ui/redrive": {"queue", "orders", "act", "start"}, "/ui/queues/orders/pause": nil, "/ui/queues/orders/resume": nil, "/ui/m/orders/a-0007/edit": {"body", "{}"},
			"/ui/m/orders/a-0007/drop": {"id", "a-0007"}, "/ui/drop": {"queue", "orders", "number", "290"}, "/ui/causes/s": {"queue", "orders", "state", "resolved"},
		} {
			if resp, page := b.press(path, form...); resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %d\n%s", path, resp.StatusCode, page)
			}
		}
	})
}

// ourScripts are the two that every page has.
var ourScripts = regexp.MustCompile(`<script type="module" src="[a-z/]*/ui/assets/(live|keys)\.[0-9a-f]{12}\.js"></script>`)

// What the pages are served with, where, and when they are not.
func TestWhereThePagesAre(t *testing.T) {
	d := start(t, parse(t, pagesConfig), newStore(t))
	b := newBrowser(t, d.base, nil)
	resp, _ := b.open(http.MethodGet, "/", nil)
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/ui/" {
		t.Errorf("/ leads a browser to %q", resp.Header.Get("Location"))
	}
	d.refused(404, "no-route", http.MethodGet, "/", "", "Accept", "*/*")
	resp, page := b.open(http.MethodGet, "/ui/", nil)
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'; script-src 'self'") || strings.Contains(csp, "unsafe") || !strings.Contains(csp, "require-trusted-types-for 'script'; trusted-types redrive") {
		t.Error(csp)
	}
	for name, want := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin"} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if regexp.MustCompile(`(?i)<style|\son\w+=|\sstyle=|javascript:`).MatchString(ourScripts.ReplaceAllString(page, "")) || strings.Contains(ourScripts.ReplaceAllString(page, ""), "<script") {
		t.Error("the page has something inline")
	}
	css := regexp.MustCompile(`/ui/assets/ui\.[0-9a-f]+\.css`).FindString(page)
	b.header.Set("Accept-Encoding", "gzip")
	resp, packed := b.open(http.MethodGet, css, nil)
	if resp.StatusCode != http.StatusOK || !strings.Contains(resp.Header.Get("Cache-Control"), "immutable") || resp.Header.Get("Content-Encoding") != "gzip" || len(packed) > 12<<10 {
		t.Errorf("%s: %d, %d bytes, %v", css, resp.StatusCode, len(packed), resp.Header)
	}
	t.Logf("the style sheet has %d bytes on the wire", len(packed))
	b.header.Del("Accept-Encoding")

	off := parse(t, pagesConfig)
	off.UI.Off = true
	d = start(t, off, newStore(t))
	if resp, _ := newBrowser(t, d.base, nil).open(http.MethodGet, "/ui/", nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("off: %d", resp.StatusCode)
	}

	below := pagesTokens(t)
	below.PublicURL = "https://ops.example.com/redrive/"
	d = start(t, below, newStore(t))
	for _, prefix := range []string{"", "/redrive"} { // a proxy takes the path out, or leaves it
		b := newBrowser(t, d.base, nil)
		if resp, _ := b.open(http.MethodGet, prefix+"/ui/queues", nil); resp.Header.Get("Location") != "/redrive/ui/login?next=%2Fui%2Fqueues" {
			t.Errorf("%q: %s", prefix, resp.Header.Get("Location"))
		}
		resp, _ := b.open(http.MethodPost, prefix+"/ui/login", url.Values{"token": {"secret-read"}, "next": {"/ui/queues"}})
		if c := resp.Cookies(); len(c) != 1 || c[0].Name != "__Host-rdui" || !c[0].Secure || resp.Header.Get("Location") != "/redrive/ui/queues" {
			t.Errorf("%q: %v, %s", prefix, c, resp.Header.Get("Location"))
		}
		b.header.Set("Cookie", resp.Cookies()[0].Name+"="+resp.Cookies()[0].Value) // the jar keeps it for https
		page := b.page(prefix + "/ui/queues")
		for _, link := range regexp.MustCompile(`(?:href|action|src|data-stream)="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			if !strings.HasPrefix(link[1], "/redrive/ui/") && link[1] != "#main" {
				t.Errorf("%q: a link to %s", prefix, link[1])
			}
		}
	}
}

// Nothing of a message is taken for HTML, and what would not show is shown.
func TestHostileTextOnThePages(t *testing.T) {
	evil := "</script><img src=x onerror=alert(1)>{{.}}\u202e\u200b\u2066\x01"
	inBubble(t, func(t *testing.T) *config.Config { return parse(t, pagesConfig) }, func(t *testing.T, store driver.Store, l *servertest.Pipes, _ *daemon.Server) {
		deadOf(t, store, "orders", "evil", evil, func(e *redrive.Entry) {
			e.Kind, e.Key, e.Body = nameOf(evil), nameOf(evil), []byte(evil)
			e.Headers = redrive.Headers{{Name: "x-evil", Value: []byte(evil)}}
			e.History.First.Message, e.History.First.Stack, e.History.First.Host = evil, evil, evil
		})
		for i, body := range []string{strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000), `{"a":1e400,"b":"\u202e"}`, "javascript:alert(1)", strings.Repeat("x", 16<<20), "\xff\xfe"} {
			deadOf(t, store, "orders", fmt.Sprintf("body-%d", i), "x", func(e *redrive.Entry) { e.Body = []byte(body) })
		}
		b := newBrowser(t, "", l)
		list := b.page("/ui/causes")
		links := regexp.MustCompile(`href="(/ui/causes/[^"]+)"`).FindAllStringSubmatch(list, -1)
		paths := []string{"/ui/", "/ui/causes", "/ui/dead", "/ui/m/orders/evil", "/ui/m/orders/evil/edit", "/ui/m/orders/evil?as=hex", "/ui/m/orders/evil?as=raw", "/ui/dead?text=" + url.QueryEscape("</script><img src=x onerror=alert(1)>")}
		for i := range 5 {
			paths = append(paths, fmt.Sprintf("/ui/m/orders/body-%d", i), fmt.Sprintf("/ui/m/orders/body-%d/edit", i))
		}
		for _, link := range links {
			paths = append(paths, strings.ReplaceAll(link[1], "&amp;", "&"))
		}
		shown := false
		for _, path := range paths {
			page := b.page(path)
			if strings.Contains(page, "<img") || strings.Contains(ourScripts.ReplaceAllString(page, ""), "<script") || strings.ContainsAny(page, "\u202e\u200b\u2066\x01") || len(page) > 300<<10 {
				t.Errorf("%s (%d bytes) lets it through", path, len(page))
			}
			shown = shown || strings.Contains(page, "⟨U+202E⟩")
		}
		if !shown {
			t.Error("what does not show is not shown")
		}
		resp, body := b.open(http.MethodGet, "/ui/m/orders/evil/body", nil)
		if body != evil || resp.Header.Get("Content-Type") != "application/octet-stream" || !strings.HasPrefix(resp.Header.Get("Content-Disposition"), "attachment") {
			t.Errorf("%q %v", body, resp.Header)
		}
	})
}

// The forms do what they say, and lead to where it shows.
func TestActionsOfThePages(t *testing.T) {
	inBubble(t, func(t *testing.T) *config.Config { return parse(t, pagesConfig) }, func(t *testing.T, store driver.Store, l *servertest.Pipes, _ *daemon.Server) {
		scene(t, store, time.Now())
		b := newBrowser(t, "", l)
		b.page("/ui/queues/idle") // it has a form
		done := func(path string, pairs ...string) string {
			t.Helper()
			resp, page := b.press(path, pairs...)
			if resp.StatusCode != http.StatusSeeOther {
				t.Fatalf("%s: %d\n%s", path, resp.StatusCode, page)
			}
			return b.page(resp.Header.Get("Location"))
		}
		signature := causeOf(t, b, "orders", "422")
		// A cause: acknowledged with a note, and taken back.
		if page := done("/ui/causes/"+signature, "queue", "orders", "state", "acknowledged", "until", "2h", "note", "see INC-812", "link", "https://incidents.example.com/812"); !strings.Contains(page, "acked by local") || !strings.Contains(page, "see INC-812") {
			t.Errorf("not acknowledged:\n%s", page)
		}
		if page := done("/ui/causes/"+signature, "queue", "orders", "state", "new"); strings.Contains(page, "INC-812") {
			t.Error("not taken back")
		}
		// A redrive: counted again, refused for its rate, started, paused, resumed, cancelled.
		if resp, page := b.press("/ui/redrive", "queue", "orders", "signature", signature, "act", "count", "rate", "5/s"); resp.StatusCode != 200 || !strings.Contains(page, "Redrive 180") || !strings.Contains(page, `value="5/s"`) {
			t.Errorf("count: %d\n%s", resp.StatusCode, page)
		}
		if resp, page := b.press("/ui/redrive", "queue", "orders", "signature", signature, "act", "start", "rate", "fast", "with_canary", "yes", "canary", "3"); resp.StatusCode != 400 || !strings.Contains(page, `value="fast"`) || !strings.Contains(page, `role="alert"`) {
			t.Errorf("a wrong rate: %d\n%s", resp.StatusCode, page)
		}
		page := done("/ui/redrive", "queue", "orders", "signature", signature, "act", "start", "rate", "5/s", "with_canary", "yes", "canary", "3")
		plan := regexp.MustCompile(`/ui/plans/[^/"]+`).FindString(page[strings.Index(page, "crumb"):])
		if !strings.Contains(page, "running") || !strings.Contains(page, "canary") || plan == "" {
			t.Fatalf("no plan:\n%s", page)
		}
		for _, act := range [][2]string{{"pause", "paused"}, {"resume", "running"}, {"cancel", "cancelled"}} {
			if page := done(plan + "/" + act[0]); !strings.Contains(page, act[1]) {
				t.Errorf("%s:\n%s", act[0], page)
			}
		}
		page = done("/ui/redrive", "queue", "orders", "signature", signature, "act", "start", "rate", "5/s", "why", "see INC-812")
		plan = regexp.MustCompile(`/ui/plans/[^/"]+`).FindString(page[strings.Index(page, "crumb"):])
		if page := done(plan+"/change", "rate", "7/s", "canary", "4"); !strings.Contains(page, "<dd>7/s</dd>") || !strings.Contains(page, "<dd>4</dd>") || !strings.Contains(page, "INC-812") {
			t.Errorf("not changed:\n%s", page)
		}
		done(plan + "/cancel")
		if page := done("/ui/redrive", "queue", "hooks", "act", "try"); !strings.Contains(page, "10") {
			t.Errorf("try:\n%s", page)
		}
		// A queue: paused for a while, resumed.
		if page := done("/ui/queues/payments/pause", "for", "30m", "reason", "the provider is down"); !strings.Contains(page, "the provider is down") {
			t.Logf("a queue that nobody consumes shows no pause:\n%s", page)
		}
		done("/ui/queues/payments/resume")
		// A drop: by the number of now.
		if resp, page := b.press("/ui/drop", "queue", "payments", "number", "119"); resp.StatusCode != 409 || !strings.Contains(page, "it is 120 now") {
			t.Errorf("another number: %d\n%s", resp.StatusCode, page)
		}
		done("/ui/drop", "queue", "payments", "number", "120")
		if resp, _ := b.press("/ui/m/orders/b-0001/drop", "id", "b-0002"); resp.StatusCode != 400 {
			t.Errorf("another id: %d", resp.StatusCode)
		}
		if resp, _ := b.press("/ui/m/orders/b-0001/drop", "id", "b-0001"); resp.StatusCode != 303 {
			t.Errorf("dropped: %d", resp.StatusCode)
		}
		audit := b.page("/ui/audit")
		for _, action := range []string{"cause acknowledged", "plan redrive", "plan paused", "plan cancelled", "plan drop", "pause", "drop"} {
			if !strings.Contains(audit, ">"+action+"<") {
				t.Errorf("the audit log lacks %q", action)
			}
		}
	})
}

// An edit shows what it changes before it is saved, keeps the form of the body, and is refused when
// the message is another by then.
func TestEditOnThePages(t *testing.T) {
	inBubble(t, func(t *testing.T) *config.Config { return parse(t, pagesConfig) }, func(t *testing.T, store driver.Store, l *servertest.Pipes, _ *daemon.Server) {
		scene(t, store, time.Now())
		b := newBrowser(t, "", l)
		form := func() url.Values {
			page := b.page("/ui/m/orders/a-0007/edit")
			return url.Values{"form": {b.form}, "version": {regexp.MustCompile(`name="version" value="([^"]+)"`).FindStringSubmatch(page)[1]}, "kind": {"github.pull_request"}, "headers": {"x-tenant: t-3\r\n"},
				"body": {"{\r\n  \"action\": \"created\",\r\n  \"number\": 7,\r\n  \"repository\": {\r\n    \"id\": 1000000000000000007,\r\n    \"name\": \"shop\"\r\n  },\r\n  \"sender\": {\r\n    \"login\": \"ada\"\r\n  }\r\n}"}}
		}
		f := form()
		if resp, page := b.open(http.MethodPost, "/ui/m/orders/a-0007/edit", f); resp.StatusCode != 200 || !strings.Contains(page, "Nothing would change") {
			t.Errorf("unchanged: %d\n%s", resp.StatusCode, page)
		}
		f.Set("body", strings.Replace(f.Get("body"), `"number": 7`, `"number": 7, "schema_version": 2`, 1))
		resp, page := b.open(http.MethodPost, "/ui/m/orders/a-0007/edit", f)
		if resp.StatusCode != 200 || !strings.Contains(page, `<span class="add">&#43;   &#34;schema_version&#34;: 2`) || !strings.Contains(page, `value="save"`) {
			t.Errorf("preview: %d\n%s", resp.StatusCode, page)
		}
		old := form()
		f.Set("act", "save")
		if resp, page := b.open(http.MethodPost, "/ui/m/orders/a-0007/edit", f); resp.StatusCode != 303 {
			t.Fatalf("save: %d\n%s", resp.StatusCode, page)
		}
		entries, err := store.Get(t.Context(), []redrive.Ref{{Queue: "orders", ID: "a-0007"}})
		if err != nil || string(entries[0].Body) != `{"action":"created","number":7,"schema_version":2,"repository":{"id":1000000000000000007,"name":"shop"},"sender":{"login":"ada"}}` || len(entries[0].Headers) != 1 || entries[0].Kind != "github.pull_request" {
			t.Errorf("%+v %v", entries[0], err)
		}
		if page := b.page("/ui/m/orders/a-0007"); !strings.Contains(page, "Edited since it was published") {
			t.Errorf("the page does not say that it was edited")
		}
		old.Set("body", strings.Replace(old.Get("body"), "ada", "eve", 1))
		old.Set("act", "save")
		if resp, page := b.open(http.MethodPost, "/ui/m/orders/a-0007/edit", old); resp.StatusCode != 409 || !strings.Contains(page, "changed meanwhile") || !strings.Contains(page, "eve") {
			t.Errorf("a conflict: %d\n%s", resp.StatusCode, page)
		}
		f = form()
		f.Set("body", "{")
		f.Set("act", "save")
		if resp, page := b.open(http.MethodPost, "/ui/m/orders/a-0007/edit", f); resp.StatusCode != 422 || !strings.Contains(page, "not JSON") {
			t.Errorf("no JSON: %d\n%s", resp.StatusCode, page)
		}
	})
}
