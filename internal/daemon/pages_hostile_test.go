//go:build !noui

package daemon_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/browsertest"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/ui"
	"github.com/redrive/redrive/internal/servertest"
)

// nameOf is as much of a hostile text as a kind or a key may be.
func nameOf(evil string) string {
	var name strings.Builder
	for _, r := range evil {
		if r != utf8.RuneError && unicode.IsPrint(r) && name.Len()+utf8.RuneLen(r) <= redrive.MaxKindLength {
			name.WriteRune(r)
		}
	}
	return name.String()
}

// hostileTexts are texts that would run, lead to another host or hide what they are, if a page let them. In a
// browser they would set window.evil.
var hostileTexts = []string{
	`</script></textarea></title><script>window.evil=1</script>"><img src=x onerror="window.evil=2">'><svg onload=window.evil=3><style>*{background:url(//evil.invalid/s)}</style>`,
	`<meta http-equiv="refresh" content="0;url=http://evil.invalid/"><iframe src="//evil.invalid/f"></iframe><img src=//evil.invalid/p><link rel=stylesheet href=//evil.invalid/c><base href="//evil.invalid/"><form action=//evil.invalid/><button autofocus onfocus=window.evil=4>`,
	"javascript:window.evil=5//" + `{{.}}${window.evil=6}<%= 7 %>" onmouseover="window.evil=8` + "\u202e\u200b\u2066\x00\x1b[31m\xff" + `{"a":1e400}`,
}

// haunt puts the hostile texts wherever a page shows one.
func haunt(t *testing.T, store driver.Store, b *browser) (paths []string) {
	t.Helper()
	for i, evil := range hostileTexts {
		id := fmt.Sprintf("evil-%d", i)
		deadOf(t, store, "orders", id, evil, func(e *redrive.Entry) {
			e.Kind, e.Key, e.Body = nameOf(evil), nameOf(evil), []byte(evil)
			e.Headers = redrive.Headers{{Name: "x-evil", Value: []byte(evil)}}
			f := *e.History.First
			f.Message, f.Stack, f.Host, f.Types = evil, evil, evil, []string{evil}
			f.Signature = driver.Signature(&f)
			e.History = redrive.History{}
			e.History.Record(&f, true)
		})
		asked := url.QueryEscape(strings.ToValidUTF8(strings.ReplaceAll(evil, "\x00", ""), ""))
		paths = append(paths, "/ui/m/orders/"+id, "/ui/m/orders/"+id+"?as=hex", "/ui/m/orders/"+id+"/edit", "/ui/dead?text="+asked, "/ui/queues?name="+asked)
	}
	list := b.page("/ui/causes")
	for i, link := range regexp.MustCompile(`href="(/ui/causes/([^"?]+)\?queue=orders)"`).FindAllStringSubmatch(list, -1) {
		paths = append(paths, link[1])
		if resp, page := b.press("/ui/causes/"+link[2], "queue", "orders", "state", "acknowledged", "note", hostileTexts[i%len(hostileTexts)]); resp.StatusCode != http.StatusSeeOther {
			t.Fatalf("a note: %d\n%s", resp.StatusCode, page)
		}
		for _, to := range []string{"javascript:window.evil=9", "data:text/html,<script>window.evil=10</script>"} {
			if resp, _ := b.press("/ui/causes/"+link[2], "queue", "orders", "state", "acknowledged", "link", to); resp.StatusCode < 400 || resp.StatusCode >= 500 {
				t.Errorf("a link to %s: %d", to, resp.StatusCode)
			}
		}
	}
	for i, evil := range hostileTexts {
		if resp, page := b.press("/ui/queues/idle/pause", "reason", evil); resp.StatusCode != http.StatusSeeOther {
			t.Fatalf("a pause: %d\n%s", resp.StatusCode, page)
		}
		deadOf(t, store, "payments", fmt.Sprintf("p-%d", i), "no")
		b.page("/ui/redrive?queue=payments")
		resp, page := b.press("/ui/redrive", "queue", "payments", "act", "start", "rate", "1/h", "why", evil)
		if resp.StatusCode != http.StatusSeeOther {
			t.Fatalf("a plan: %d\n%s", resp.StatusCode, page)
		}
		if paths = append(paths, resp.Header.Get("Location")); i == 0 {
			paths = append(paths, resp.Header.Get("Location")+"/results")
		}
	}
	return append(paths, "/ui/", "/ui/causes", "/ui/dead", "/ui/queues", "/ui/queues/idle", "/ui/queues/orders", "/ui/plans", "/ui/audit", "/ui/redrive?queue=orders", "/ui/drop?queue=orders")
}

// In Chromium nothing of the hostile texts runs, and no page asks another host.
func TestHostileTextsInABrowser(t *testing.T) {
	store := memory.New()
	d := start(t, parse(t, pagesConfig), store)
	b := newBrowser(t, d.base, nil)
	b.page("/ui/queues/idle")
	a := browsertest.Audit{Base: d.base, Widths: []int{1280}, Themes: []string{"light"}, JavaScript: true}
	for _, path := range haunt(t, store, b) {
		a.Pages = append(a.Pages, browsertest.Page{Name: path, Path: path, Open: true})
	}
	report(t, a)
}

// What another queue's token sends is refused by every form, whatever it says, and changes nothing.
func TestEveryFormIsRefusedOfAnotherQueue(t *testing.T) {
	inBubble(t, pagesTokens, func(t *testing.T, store driver.Store, l *servertest.Pipes, _ *daemon.Server) {
		scene(t, store, time.Now())
		root, confined := newBrowser(t, "", l), newBrowser(t, "", l)
		root.logIn("secret-admin")
		signature := causeOf(t, root, "orders", "422")
		plan := planOf(t, root, "orders", signature)
		root.press(plan + "/pause")
		confined.logIn("secret-confined")
		plan = strings.TrimPrefix(plan, "/ui/plans/")
		now := func() string {
			counts, err := store.Counts(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			entries, err := store.Get(t.Context(), []redrive.Ref{{Queue: "orders", ID: "a-0007"}})
			if err != nil {
				t.Fatal(err)
			}
			page := root.page("/ui/plans/" + plan)
			state := page[strings.Index(page, `<main`):strings.Index(page, `</main>`)]
			e := entries[0]
			return fmt.Sprintf("%+v\n%s %s %s %v\n%s\n%s", counts, e.Kind, e.Key, e.Body, e.State, root.page("/ui/queues/orders")[:2000], formKeys.ReplaceAllString(state, ""))
		}
		before := now()
		tried := 0
		for _, r := range ui.Routes() {
			if r[0] != http.MethodPost || strings.HasSuffix(r[1], "/login") || strings.HasSuffix(r[1], "/logout") || r[1] == "/ui/theme" { // they are about the reader's own cookies
				continue
			}
			for _, act := range []string{"start", "now", "try", "count", "save", "preview", "pause", "resume", "cancel", "change", "release"} {
				id := "a-0007"
				if strings.Contains(r[1], "/plans/") {
					id = plan
				}
				path := strings.NewReplacer("{queue}", "orders", "{id}", id, "{signature}", signature, "{act}", act).Replace(r[1])
				form := []string{"act", act, "queue", "orders", "refs", "orders/a-0007", "id", "a-0007", "number", "290", "body", "{}", "rate", "9/s"}
				if strings.Contains(r[1], "/causes/") {
					form = append(form, "state", "resolved")
				}
				resp, page := confined.press(path, form...)
				tried++
				if s := resp.StatusCode; s != http.StatusForbidden && s != http.StatusNotFound && !strings.Contains(page, "a plan cannot") {
					t.Errorf("%s, %s: %d\n%s", path, act, s, page)
				}
			}
		}
		if after := now(); after != before || tried < 50 {
			t.Errorf("%d were tried, and something changed:\n%s\nwas\n%s", tried, after, before)
		}
	})
}
