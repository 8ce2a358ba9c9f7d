package config

import (
	"strings"
	"testing"
)

func TestAdvice(t *testing.T) {
	const queues = "queues:\n  plain:\n    deliver: {url: \"https://example.com\"}\n  orders:\n    source: kafka://broker/orders?group=shop\n    deliver: {url: \"https://example.com\"}\n"
	for store, want := range map[string]int{"": 1, "store: sqlite:./data\n": 1, "store: postgres://db/redrive\n": 0} {
		c, err := Parse("redrive.yaml", []byte(store+queues))
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Advice(); len(got) != want || want > 0 && !strings.HasPrefix(got[0], "queue orders: ") {
			t.Errorf("%q: %q, want %d", store, got, want)
		}
	}
}
