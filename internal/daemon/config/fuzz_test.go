package config_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/redrive/redrive/internal/daemon/config"

	"github.com/redrive/redrive"
)

// FuzzParse looks for panics, and for errors that would upset a terminal.
func FuzzParse(f *testing.F) {
	f.Add(whole)
	f.Add("queues:\n  sms:\n    policy: {max_attemps: 5}\n")
	f.Add("a: &a {b: *a}\nqueues: *a")
	f.Add("<<: {grace: 1s}\n? [x]\n: y")
	f.Add("\x1b[31mgrace: \"\x00\"")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := config.Parse("f.yaml", []byte(text))
		if err == nil {
			if again := c.Check(); again != nil {
				t.Errorf("what was accepted is not right: %v", again)
			}
			for name := range c.Queues {
				policies := c.PoliciesOf(name)
				policies.Of(&redrive.Message{})
			}
			return
		}
		var list config.Errors
		if !errors.As(err, &list) || len(list) == 0 {
			t.Fatalf("an error of type %T", err)
		}
		for _, e := range list {
			for _, r := range e.Source {
				if unicode.IsControl(r) {
					t.Errorf("an excerpt with the control character %q", r)
				}
			}
		}
	})
}

// FuzzDuration compares with what is read back, and with time.ParseDuration where
// that accepts the same text.
func FuzzDuration(f *testing.F) {
	for _, s := range []string{"5s", "1.5h", "2w3d", "10m", "0", "1h30m", "999999999h", ".5s", "5 seconds", "µs"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := config.ParseDuration(s)
		if err != nil {
			return
		}
		if d < 0 {
			t.Fatalf("%q is negative: %s", s, d)
		}
		back, err := config.ParseDuration(config.Duration(d).String())
		if err != nil || back != d && d < 1<<52 { // beyond it a float loses digits
			t.Errorf("%q is %s, read back as %s, %v", s, d, back, err)
		}
		if std, err := time.ParseDuration(strings.TrimSpace(s)); err == nil && std != d && max(std-d, d-std) > 1 && d < 1<<52 {
			t.Errorf("%q is %s, the standard library says %s", s, d, std)
		}
	})
}
