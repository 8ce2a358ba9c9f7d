//go:build !noui

package daemon_test

import (
	"os"
	"testing"
	"time"

	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/internal/browsertest"
)

// TestPagesInABrowser opens every page at three widths in both themes. REDRIVE_PICTURES=DIR keeps
// pictures of them.
func TestPagesInABrowser(t *testing.T) {
	store := memory.New()
	now := time.Now()
	scene(t, store, now)
	d := start(t, parse(t, pagesConfig), store)
	b := newBrowser(t, d.base, nil)
	signature := causeOf(t, b, "orders", "422")
	plan := planOf(t, b, "orders", signature)
	pages := []browsertest.Page{
		{Name: "now", Path: "/ui/"}, {Name: "causes", Path: "/ui/causes"}, {Name: "causes-none", Path: "/ui/causes?queue=idle"}, {Name: "cause", Path: "/ui/causes/" + signature + "?queue=orders"},
		{Name: "dead", Path: "/ui/dead?queue=payments"}, {Name: "message", Path: "/ui/m/orders/b-0007", Open: true}, {Name: "message-binary", Path: "/ui/m/hooks/e-0001"}, {Name: "edit", Path: "/ui/m/orders/b-0007/edit"},
		{Name: "queues", Path: "/ui/queues"}, {Name: "queue", Path: "/ui/queues/orders"}, {Name: "waiting", Path: "/ui/queues/hooks/waiting"},
		{Name: "redrive", Path: "/ui/redrive?queue=orders&signature=" + signature, Open: true}, {Name: "drop", Path: "/ui/drop?queue=hooks"},
		{Name: "plans", Path: "/ui/plans"}, {Name: "plan", Path: plan}, {Name: "results", Path: plan + "/results"}, {Name: "ledger", Path: "/ui/ledger"}, {Name: "audit", Path: "/ui/audit"},
	}
	report(t, browsertest.Audit{Base: d.base, Pages: pages, Widths: []int{320, 360, 1280}, Themes: []string{"light", "dark"}, JavaScript: true, Dir: os.Getenv("REDRIVE_PICTURES")})
	errors := []browsertest.Page{{Name: "error", Path: "/ui/causes?quueue=orders", Status: 400}, {Name: "error-message", Path: "/ui/m/orders/nothing", Status: 404}}
	for _, f := range (browsertest.Audit{Base: d.base, Pages: errors, Widths: []int{360, 1280}, Themes: []string{"light", "dark"}, JavaScript: true, Dir: os.Getenv("REDRIVE_PICTURES")}).Run(t) {
		if f.What[:8] != "console:" { // it says that the status is an error's
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
