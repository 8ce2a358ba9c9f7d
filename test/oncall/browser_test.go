package oncall

import (
	_ "embed"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redrive/redrive/internal/browsertest"
	"github.com/redrive/redrive/internal/servertest"
)

//go:embed walk.mjs
var walk []byte

// taken is what the walk in a browser took.
type taken struct {
	Interactions int      `json:"interactions"`
	Keys         int      `json:"keys"`
	Pages        int      `json:"pages"`
	Seconds      float64  `json:"seconds"` // of the script, which does not read
	Steps        []string `json:"steps"`
	Found        []string `json:"found"`
}

// What a person needs, in seconds: for a page until it is understood, and for something that is pressed
// or written.
const (
	perPage        = 5
	perInteraction = 3
)

// TestOnCallInABrowser walks in Chromium: thousands of dead letters of three causes, one looked into, a redrive
// whose canary stops it, a message that is edited, the repair of the rest and its redrive, the ledger, the report.
// REDRIVE_ALL=1, or make test-all, walks by keyboard only, without JavaScript and on a phone as well.
func TestOnCallInABrowser(t *testing.T) {
	modes := []string{"mouse"}
	if os.Getenv("REDRIVE_ALL") != "" {
		modes = append(modes, "keyboard", "nojs", "phone")
	}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			const orders, payments, hooks = 2000, 300, 200
			w := newWorld(t)
			nobody, err := servertest.FreePort()
			if err != nil {
				t.Fatal(err)
			}
			p := onCall(t, w, fmt.Sprintf("  hooks: {deliver: {url: \"http://%s/\", allow_private: true}, policy: {max_attempts: 1}}\n", nobody.Addr()))
			p.prepare(orders)
			p.publish("hooks", "first", `{}`)
			p.until("a hook died", func() bool { return p.queue("hooks").Dead == 1 })
			p.copies("hooks", hooks-1, func(i int) string { return fmt.Sprintf(`{"hook":%d}`, i) })
			p.copies("payments", payments-1, func(i int) string { return fmt.Sprintf(`{"method":"sepa-legacy","amount":%d}`, i) })
			p.until("all are dead", func() bool { return p.queue("payments").Dead == payments && p.queue("hooks").Dead == hooks })
			before := w.of("orders")

			var took taken
			browsertest.Script(t, walk, map[string]any{"base": p.url, "mode": mode, "dead": grouped(orders + payments + hooks)}, &took)
			for _, what := range took.Found {
				t.Error(what)
			}
			seconds := took.Pages*perPage + took.Interactions*perInteraction
			t.Logf("%s: %d interactions (%d keys), %d pages: about %d s of a person's time, %.0f s of the script's: %s",
				mode, took.Interactions, took.Keys, took.Pages, seconds, took.Seconds, strings.Join(took.Steps, ", "))
			if took.Interactions > 40 || seconds > 300 {
				t.Errorf("that is more than 40 interactions, or than 5 minutes")
			}
			if n := w.of("orders") - before; !t.Failed() && n != orders {
				t.Errorf("%d orders were delivered, not %d", n, orders)
			}
		})
	}
}
