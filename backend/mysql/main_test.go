package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/redrive/redrive/internal/childtest"
	"github.com/redrive/redrive/internal/mariadbtest"
	"github.com/redrive/redrive/internal/servertest"
)

func TestMain(m *testing.M) {
	os.Exit(childtest.Main(func() int { return servertest.Main(m.Run) }, claimers))
}

// roundsEnv asks for long runs.
const roundsEnv = "REDRIVE_PROOF_ROUNDS"

func proofRounds(t testing.TB, usual int) int {
	t.Helper()
	text := os.Getenv(roundsEnv)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is not a number of rounds", roundsEnv, text)
	}
	return n
}

var prefixes, clients atomic.Int64

// users are the accounts of stores, each with one of its own, by which its connections
// are known.
var users sync.Map

func newPrefix() string { return fmt.Sprintf("test_%d_", prefixes.Add(1)) }

// patience is how long a store of the tests waits for its server, which may have much to
// do beside.
const patience = 5 * time.Minute

// open opens a store with tables of its own.
func open(t testing.TB, opts ...Option) *Store {
	t.Helper()
	return openAs(t, newPrefix(), opts...)
}

func openAs(t testing.TB, prefix string, opts ...Option) *Store {
	t.Helper()
	user := fmt.Sprintf("client_%d", clients.Add(1))
	serve(t, fmt.Sprintf("CREATE USER %[1]s; GRANT ALL ON *.* TO %[1]s", user))
	s, err := Open(context.Background(), strings.Replace(mariadbtest.Shared(t).URL(mariadbtest.Database), "root@", user+"@", 1), append([]Option{WithPrefix(prefix), WithTimeout(patience)}, opts...)...)
	noErr(t, err)
	users.Store(s, user)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// connect is another client of the same store.
func connect(t testing.TB, s *Store, opts ...Option) *Store {
	t.Helper()
	return openAs(t, s.sql.prefix, opts...)
}

// dial is a plain handle on the server, as a user's program has one.
func dial(t testing.TB, params ...string) *sql.DB {
	t.Helper()
	db := handle(t, params...)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func handle(t testing.TB, params ...string) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", "root@tcp("+mariadbtest.Shared(t).Addr()+")/"+mariadbtest.Database+"?"+strings.Join(params, "&"))
	noErr(t, err)
	return db
}

// serve carries out statements on the server, beside any store.
func serve(t testing.TB, script string) {
	t.Helper()
	db := handle(t, "multiStatements=true")
	_, err := db.ExecContext(context.Background(), script)
	noErr(t, errors.Join(err, db.Close()))
}

// crash lets a store's process die: its connections are cut at the server, and nothing
// that it does afterwards reaches the database.
func crash(t testing.TB, s *Store, opts ...Option) *Store {
	t.Helper()
	s.base.Abandon()
	other := connect(t, s, opts...)
	user, _ := users.Load(s)
	killUser(t, user.(string))
	s.base.Close()
	noErr(t, s.pool.Close())
	return other
}

// killUser cuts the connections of a user.
func killUser(t testing.TB, user string) {
	t.Helper()
	db := handle(t)
	defer func() { _ = db.Close() }()
	for deadline := time.Now().Add(patience); ; {
		ids := connectionsOf(t, db, user)
		if len(ids) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s has %d connections still", user, len(ids))
		}
		for _, id := range ids {
			_, err := db.ExecContext(context.Background(), fmt.Sprintf("KILL %d", id))
			var gone *driver.MySQLError
			if errors.As(err, &gone) && gone.Number == 1094 { // no such connection any more
				err = nil
			}
			noErr(t, err)
		}
	}
}

func connectionsOf(t testing.TB, db *sql.DB, user string) (ids []int64) {
	t.Helper()
	rows, err := db.QueryContext(context.Background(), "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = ?", user)
	noErr(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		noErr(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	noErr(t, rows.Err())
	return ids
}
