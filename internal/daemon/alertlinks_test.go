package daemon

import (
	"testing"

	"github.com/redrive/redrive/internal/daemon/config"
)

// Links of alerts lead to the pages, wherever a proxy shows them.
func TestLinksOfAlerts(t *testing.T) {
	for want, c := range map[string]config.Config{
		"":                            {UI: config.UI{BasePath: "/redrive"}},
		"https://example.com":         {PublicURL: "https://example.com/"},
		"https://example.com/redrive": {PublicURL: "https://example.com", UI: config.UI{BasePath: "/redrive"}},
		"https://example.com/ops":     {PublicURL: "https://example.com/ops/"},
		"https://example.com/b":       {PublicURL: "https://example.com/a", UI: config.UI{BasePath: "/b/"}},
	} {
		if got := linkBase(&c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := linkBase(&config.Config{PublicURL: "https://example.com", UI: config.UI{Off: true}}); got != "" {
		t.Errorf("%q leads to pages that are off", got)
	}
}
