//go:build !noui

package daemon_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/internal/browsertest"
)

// TestPagesInABrowser opens every page, on a phone in the dark theme, and on a laptop in the light one, at 100 % and
// at 400 %, where what is wider than the window may scroll only in a box of its own.
// REDRIVE_PICTURES=DIR opens them at four widths in both, and keeps pictures.
func TestPagesInABrowser(t *testing.T) {
	store := memory.New()
	now := time.Now()
	scene(t, store, now)
	guarded := `{queues: {sms: {deliver: {url: "https://sms.example.com", headers: {x-key: secret}}, guard: {preset: sms}}, `
	d := start(t, parse(t, strings.Replace(pagesConfig, "{queues: {", guarded, 1)), store)
	b := newBrowser(t, d.base, nil)
	signature := causeOf(t, b, "orders", "422")
	plan := planOf(t, b, "orders", signature)
	pages := []browsertest.Page{
		{Name: "now", Path: "/ui/"}, {Name: "causes", Path: "/ui/causes"}, {Name: "causes-none", Path: "/ui/causes?queue=idle"}, {Name: "cause", Path: "/ui/causes/" + signature + "?queue=orders"},
		{Name: "dead", Path: "/ui/dead?queue=payments"}, {Name: "message", Path: "/ui/m/orders/b-0007", Open: true}, {Name: "message-binary", Path: "/ui/m/hooks/e-0001"}, {Name: "edit", Path: "/ui/m/orders/b-0007/edit"},
		{Name: "queues", Path: "/ui/queues"}, {Name: "queue", Path: "/ui/queues/orders"}, {Name: "waiting", Path: "/ui/queues/hooks/waiting"},
		{Name: "redrive", Path: "/ui/redrive?queue=orders&signature=" + signature, Open: true}, {Name: "drop", Path: "/ui/drop?queue=hooks"},
		{Name: "repair", Path: "/ui/repairs/new?queue=orders&signature=" + signature, Open: true}, {Name: "archive", Path: "/ui/archive?queue=hooks"}, {Name: "purge", Path: "/ui/queues/hooks/purge"}, {Name: "report", Path: "/ui/report"},
		{Name: "plans", Path: "/ui/plans"}, {Name: "plan", Path: plan}, {Name: "results", Path: plan + "/results"}, {Name: "ledger", Path: "/ui/ledger"}, {Name: "audit", Path: "/ui/audit"},
		{Name: "guards", Path: "/ui/guards"}, {Name: "sessions", Path: "/ui/sessions"}, {Name: "config", Path: "/ui/config"},
	}
	looks := []browsertest.Audit{{Widths: []int{360}, Themes: []string{"dark"}}, {Widths: []int{1280}, Themes: []string{"light"}}, {Widths: []int{1280}, Zoom: 4, Themes: []string{"light"}}}
	if dir := os.Getenv("REDRIVE_PICTURES"); dir != "" {
		looks = []browsertest.Audit{{Widths: []int{320, 360, 1280, 1920}, Themes: []string{"light", "dark"}, Dir: dir}}
	}
	for _, look := range looks {
		look.Base, look.Pages, look.JavaScript = d.base, pages, true
		report(t, look)
	}
	failed := []browsertest.Page{{Name: "error", Path: "/ui/causes?quueue=orders", Status: 400}, {Name: "error-message", Path: "/ui/m/orders/nothing", Status: 404}}
	for _, f := range (browsertest.Audit{Base: d.base, Pages: failed, Widths: []int{360, 1280}, Themes: []string{"light", "dark"}, JavaScript: true}).Run(t) {
		if !strings.HasPrefix(f.What, "console:") { // it says that the status is an error's
			t.Errorf("%+v", f)
		}
	}
}

func report(t *testing.T, a browsertest.Audit) {
	t.Helper()
	for _, f := range a.Run(t) {
		t.Errorf("%s, %s, %d px: %s", f.Page, f.Theme, f.Width, f.What)
	}
}

// planOf starts a redrive with a canary by the form, and returns its page.
func planOf(t *testing.T, b *browser, queue, signature string) string {
	t.Helper()
	b.page("/ui/redrive?queue=" + queue + "&signature=" + signature)
	resp, page := b.press("/ui/redrive", "queue", queue, "signature", signature, "with_canary", "yes", "canary", "10", "rate", "50/s", "act", "start")
	if resp.StatusCode != 303 {
		t.Fatalf("%d: %s", resp.StatusCode, page)
	}
	return resp.Header.Get("Location")
}
