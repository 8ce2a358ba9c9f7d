package servertest

import (
	"os"
	"sync"
	"testing"

	"github.com/redrive/redrive/internal/leaktest"
)

// Missing skips a test whose server is not installed, or fails it where CI is true: that
// runs every test. The hint says how to get it.
func Missing(t testing.TB, hint string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(hint)
	}
	t.Skip(hint)
}

// Shared is a server that the tests of a package share: the first that asks for it starts
// it, and [Main] ends it.
type Shared[S interface{ Kill() }] struct {
	// Start starts it in a folder of its own.
	Start func(dir string) (S, error)

	once   sync.Once
	server S
	err    error
}

// Get returns the server.
func (s *Shared[S]) Get(t testing.TB) S {
	t.Helper()
	s.once.Do(func() {
		var dir string
		if dir, s.err = os.MkdirTemp("", "redriveserver-"); s.err != nil { //nolint:usetesting // it outlives the test that asks first
			return
		}
		s.server, s.err = s.Start(dir)
		running.Lock()
		defer running.Unlock()
		running.end = append(running.end, func() {
			if s.err == nil {
				s.server.Kill()
			}
			_ = os.RemoveAll(dir)
		})
	})
	if s.err != nil {
		t.Fatalf("start the server that the tests share: %v", s.err)
	}
	return s.server
}

var running struct {
	sync.Mutex
	end []func()
}

// Main runs the tests of a package, ends the servers that they shared, and fails if goroutines are left:
//
//	func TestMain(m *testing.M) { os.Exit(servertest.Main(m.Run)) }
func Main(run func() int) int {
	return leaktest.Main(func() int {
		code := run()
		running.Lock()
		defer running.Unlock()
		for _, end := range running.end {
			end()
		}
		return code
	})
}
