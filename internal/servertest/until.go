package servertest

import (
	"testing"
	"time"
)

// patience bounds how long a test waits for what must happen by itself.
const patience = 2 * time.Minute

// Until repeats a check until it holds.
func Until(t testing.TB, what string, check func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !check() {
		select {
		case <-deadline:
			t.Fatalf("not within %v: %s", patience, what)
		case <-tick.C:
		}
	}
}

// UntilNil repeats what may fail until it does not. The last error is reported if that never
// comes.
func UntilNil(t testing.TB, what string, try func() error) {
	t.Helper()
	var last error
	t.Cleanup(func() {
		if last != nil {
			t.Logf("%s: %v", what, last)
		}
	})
	Until(t, what, func() bool {
		last = try()
		return last == nil
	})
}
