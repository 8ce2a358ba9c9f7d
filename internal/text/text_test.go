package text

import "testing"

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"orders", "orders", true}, {"orders", "orders2", false}, {"orders.*", "orders.eu", true}, {"orders.*", "orders", false},
		{"*", "", true}, {"*.eu", "orders.eu", true}, {"a*b*c", "aXbYc", true}, {"a*b*c", "ac", false}, {"a*a", "a", false}, {"", "x", false},
	} {
		if Match(c.pattern, c.name) != c.want {
			t.Errorf("%q %q", c.pattern, c.name)
		}
	}
}
