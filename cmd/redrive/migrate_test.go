package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend"
	"github.com/redrive/redrive/backend/mysql"
	"github.com/redrive/redrive/backend/postgres"
	"github.com/redrive/redrive/internal/mariadbtest"
	"github.com/redrive/redrive/internal/pgtest"
)

// serveSQL carries out a script, as an administrator would.
func serveSQL(t *testing.T, driver, address, script string) {
	t.Helper()
	db, err := sql.Open(driver, address)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), script); err != nil {
		t.Fatal(err)
	}
}

// publishTo publishes a message to a store that may not change its tables.
func publishTo(t *testing.T, address string) error {
	t.Helper()
	store, err := backend.Open(t.Context(), address)
	if err != nil {
		return err
	}
	defer store.Close()
	return redrive.Publish(t.Context(), store, "q", "x")
}

func TestMigratePostgres(t *testing.T) {
	s := pgtest.Start(t, nil)
	serveSQL(t, "pgx", s.URL(), "CREATE ROLE worker LOGIN")
	sep := "?"
	if strings.Contains(s.URL(), "?") {
		sep = "&"
	}
	migrates(t, s.URL()+sep+"redrive_schema=mine", strings.Replace(s.URL(), "postgres@", "worker@", 1)+sep+"redrive_schema=mine", "worker", postgres.SchemaVersion,
		func(script string) { serveSQL(t, "pgx", s.URL(), script) })
}

func TestMigrateMySQL(t *testing.T) {
	s := mariadbtest.Start(t, mariadbtest.Relaxed())
	root := "root@tcp(" + s.Addr() + ")/"
	serveSQL(t, "mysql", root, "CREATE DATABASE app")
	serveSQL(t, "mysql", root, "CREATE USER worker@'127.0.0.1'")
	migrates(t, s.URL("app")+"?redrive_prefix=mine_", strings.Replace(s.URL("app"), "root@", "worker@", 1)+"?redrive_prefix=mine_", "worker@127.0.0.1", mysql.SchemaVersion,
		func(script string) { s.Script(t, "app", script) })
}

// migrates goes the way of an owner, and of an administrator who runs what was printed.
func migrates(t *testing.T, address, worker, user string, newest int, run func(script string)) {
	t.Helper()
	b := newBench(t)
	off := "&redrive_ddl=off"
	if err := publishTo(t, address+off); err == nil || !strings.Contains(err.Error(), "version 0") {
		t.Fatalf("no tables: %v", err)
	}
	b.expect(exitOK, "no tables to remove", "migrate", "--data", address, "--down")
	b.expect(exitOK, fmt.Sprintf("migrated from version 0 to %d", newest), "migrate", "--data", address+off)
	b.expect(exitOK, fmt.Sprintf("of version %d already", newest), "migrate", "--data", address)
	if err := publishTo(t, address+off); err != nil {
		t.Fatal(err)
	}
	b.expect(exitUsage, "add --yes to remove the tables of", "migrate", "--data", address, "--down")
	b.tty, b.types = true, "remove 2\n"
	b.expect(exitFailed, "nothing was removed", "migrate", "--data", address, "--down")
	b.types = "remove 1\n"
	b.expect(exitOK, "the tables are removed", "migrate", "--data", address, "--down")
	b.tty = false

	plain := b.expect(exitOK, fmt.Sprintf("from version 0 to %d", newest), "migrate", "--data", address, "--print", "--user", user)
	if offline := b.expect(exitOK, "", "migrate", "--data", address, "--print", "--user", user, "--from", "0"); offline != plain {
		t.Errorf("without asking the server the SQL is another:\n%s\n%s", offline, plain)
	}
	run(plain)
	if err := publishTo(t, worker+off); err != nil {
		t.Errorf("with the rights that were printed: %v", err)
	}
	var m migration
	out := b.expect(exitOK, "", "migrate", "--data", address, "--print", "--down", "--json")
	if err := json.Unmarshal([]byte(out), &m); err != nil || m.From != newest || m.To != 0 || !strings.Contains(m.Name, "mine") {
		t.Fatalf("%s: %v", out, err)
	}
	run(m.SQL)
	b.expect(exitOK, `"from": 0`, "migrate", "--data", address, "--yes", "--json")
	b.expect(exitOK, `"to": 0`, "migrate", "--data", address, "--down", "--yes", "--json")
}

func TestMigrateWithoutAServer(t *testing.T) {
	b := newBench(t)
	b.expect(exitOK, "migrates by itself", "migrate", "--data", t.TempDir())
	b.expect(exitOK, "migrates by itself", "migrate", "--data", "redis://127.0.0.1:1")
	b.expect(exitUsage, "migrates by itself", "migrate", "--data", t.TempDir(), "--down")
	b.expect(exitUsage, "go with --print", "migrate", "--data", "postgres://h/d", "--user", "w")
	b.expect(exitFailed, "newer", "migrate", "--data", "postgres://h/d", "--print", "--from", "99")
	b.expect(exitUsage, "no account", "migrate", "--data", "mysql://u@h/d", "--print", "--from", "0", "--user", "a'b")
	out := b.expect(exitOK, "GRANT", "migrate", "--data", "mysql://u:hunter2@h/app", "--print", "--from", "0", "--user", "worker")
	if !strings.Contains(out, "`app`.`redrive_message` TO 'worker'@'%'") || strings.Contains(out, "hunter2") {
		t.Error(out)
	}
	if _, out, stderr := b.run("migrate", "--data", "postgres://u:hunter2@127.0.0.1:1/d"); strings.Contains(out+stderr, "hunter2") || stderr == "" {
		t.Errorf("%s%s", out, stderr)
	}
}
