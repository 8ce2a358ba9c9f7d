package wire

import (
	"strings"
	"testing"
)

// JSON is laid out with its numbers and its order as they are, and what nests deeply stays short.
func TestPretty(t *testing.T) {
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	for in, want := range map[string]string{
		`{"b":10000000000000000001,"a":1e400}`: "{\n  \"b\": 10000000000000000001,\n  \"a\": 1e400\n}",
		`{"a":"[{\"\\"}`:                       "{\n  \"a\": \"[{\\\"\\\\\"\n}",
		`{"a"`:                                 `{"a"`,
		deep:                                   deep,
		`"` + strings.Repeat("[", 5000) + `"`:  `"` + strings.Repeat("[", 5000) + `"`,
	} {
		if got := string(Pretty([]byte(in))); got != want {
			t.Errorf("%.80s: %.200s", in, got)
		}
	}
}
