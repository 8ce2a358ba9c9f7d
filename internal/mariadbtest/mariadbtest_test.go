//go:build unix

package mariadbtest

import (
	"database/sql"
	"testing"

	_ "github.com/go-sql-driver/mysql" // the driver
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
	for _, end := range []func() error{s.Stop, s.Kill} {
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if err := s.Resume(); err != nil {
			t.Fatal(err)
		}
		ask()
	}
}
