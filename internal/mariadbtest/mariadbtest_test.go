//go:build unix

package mariadbtest

import (
	"database/sql"
	"testing"
)

func TestServerLivesDiesAndResumes(t *testing.T) {
	s := Start(t, Relaxed())
	ask := func() {
		t.Helper()
		db, err := sql.Open("mysql", "root@tcp("+s.Addr()+")/")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		var version string
		var relaxed int
		if err := db.QueryRowContext(t.Context(), "SELECT version(), @@innodb_flush_log_at_trx_commit").Scan(&version, &relaxed); err != nil || relaxed != 2 {
			t.Fatalf("%q, %d, %v", version, relaxed, err)
		}
	}
	ask()
	for _, end := range []func(){s.Kill, func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}} {
		end()
		if err := s.Resume(); err != nil {
			t.Fatal(err)
		}
		ask()
	}
}
