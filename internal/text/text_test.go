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

func TestHidden(t *testing.T) {
	for _, r := range "\x00\x1b\n\t\x7f\u0085\u200b\u202e\u2066\u2028\ufeff\u00ad\U000e0041\ue000" {
		if !Hidden(r) {
			t.Errorf("%U shows", r)
		}
	}
	for _, r := range "a é 中 ⟨ ✓ 🎉" {
		if Hidden(r) {
			t.Errorf("%U does not show", r)
		}
	}
}
