package servertest_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/redrive/redrive/internal/servertest"
)

// A port stays its process's while nobody listens on it.
func TestAPortIsHeld(t *testing.T) {
	ports, err := servertest.FreePorts(20)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range ports {
		f, err := os.Open(filepath.Join(os.TempDir(), "ports-of-tests", p.String()))
		if err != nil {
			t.Fatal(err)
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			t.Errorf("another process would be given port %s", p)
		}
		_ = f.Close()
	}
}
