// Package programtest builds the program and runs it as a daemon, for tests that see it from
// outside.
package programtest

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/redrive/redrive/internal/servertest"
)

// Build builds the program into a folder, with more flags of go build, and returns where it
// is.
func Build(dir, name string, flags ...string) (string, error) {
	bin := filepath.Join(dir, name)
	args := append(append([]string{"build"}, flags...), "-o", bin, "github.com/redrive/redrive/cmd/redrive")
	cmd := exec.Command("go", args...) //nolint:gosec // of a test
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return bin, nil
}

// Configure writes a configuration on a free address, and returns its file and the daemon's
// URL. The rest needs neither listen nor store.
func Configure(t testing.TB, store, rest string) (file, url string) {
	t.Helper()
	port, err := servertest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "redrive.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "listen: %s\nstore: %q\n%s", port.Addr(), store, rest), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, "http://" + port.Addr()
}

// Environ is the environment of the test, without what would change how the program
// behaves, and with more.
func Environ(more ...string) (env []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "REDRIVE_") {
			env = append(env, v)
		}
	}
	return append(append(env, "NO_PROXY=*"), more...)
}

// Ready reports whether the daemon at a URL accepts and delivers.
func Ready(url string) bool {
	resp, err := http.Get(url + "/readyz")
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode == http.StatusOK
}

// Log keeps the end of what a program writes. Its zero value is ready, and it is safe for
// concurrent use.
type Log struct {
	mu sync.Mutex
	b  []byte
}

// logBytes is how much a Log keeps.
const logBytes = 4 << 20

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = append(l.b, p...)
	if len(l.b) > 2*logBytes {
		l.b = bytes.Clone(l.b[len(l.b)-logBytes:])
	}
	return len(p), nil
}

// String returns it.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.b)
}
