//go:build unix

package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

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
		servertest.Missing(t, poolerHint)
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
	addr := port.Addr()
	pooler := servertest.New(servertest.Command{Name: "pooler", Dir: dir, Path: path, Args: []string{"-q", ini}, As: account(), Patience: patience})
	t.Cleanup(pooler.Kill)
	if err := pooler.Start(func() bool { return servertest.Listens(addr) }); err != nil {
		t.Fatalf("start PgBouncer: %v", err)
	}
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable"
}
