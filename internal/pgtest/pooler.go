//go:build unix

package pgtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/servertest"
)

const poolerHint = "PgBouncer is not installed; on Debian: apt-get install pgbouncer"

// Pooler starts a PgBouncer in transaction mode before the server, with so many
// connections to it, and returns its URL. Without the binary it skips the test, or fails
// it where CI is true.
func (s *Server) Pooler(t testing.TB, conns int) string {
	t.Helper()
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		path = "/usr/sbin/pgbouncer"
	}
	if _, err := os.Stat(path); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(poolerHint)
		}
		t.Skip(poolerHint)
	}
	dir, err := os.MkdirTemp(s.dir, "pooler-") //nolint:usetesting // the folder belongs to the account of the server
	if err != nil {
		t.Fatal(err)
	}
	port, err := servertest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	conf := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%s user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %d
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
`, s.port, port, conns)
	ini := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(ini, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, ini} {
		if err := s.ours(path); err != nil {
			t.Fatal(err)
		}
	}
	cmd := s.command(path, "-q", ini)
	if err := cmd.Start(); err != nil {
		t.Fatalf("start PgBouncer: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	addr := net.JoinHostPort("127.0.0.1", port)
	for deadline := time.Now().Add(patience); ; pause(10 * time.Millisecond) {
		c, err := new(net.Dialer).DialContext(context.Background(), "tcp", addr)
		if err == nil {
			_ = c.Close()
			return "postgres://postgres@" + addr + "/postgres?sslmode=disable"
		}
		if time.Now().After(deadline) {
			t.Fatalf("PgBouncer does not answer: %v", err)
		}
	}
}
