package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/backendtest"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/mariadbtest"
)

// onMovedClock lets a store go by the server's clock moved by what stands in a table.
func onMovedClock(s *Store) {
	moved := "((SELECT moved.us FROM moved) + " + serverClock + ")"
	s.sql.Replace(serverClock, moved)
	s.sql.clock = moved
}

func TestConformance(t *testing.T) {
	serve(t, "CREATE TABLE moved (us BIGINT NOT NULL); INSERT INTO moved VALUES (0)")
	clock := dial(t)
	again := func(t testing.TB, s driver.Store) *Store { return connect(t, s.(*Store), onMovedClock) }
	backendtest.Run(t, backendtest.Factory{
		Open:    func(t testing.TB) driver.Store { return open(t, onMovedClock) },
		Connect: func(t testing.TB, s driver.Store) driver.Store { return again(t, s) },
		Contents: func(t testing.TB, s driver.Store) map[string]string {
			return contents(t, clock, s.(*Store).sql.prefix)
		},
		Reopen: func(t testing.TB, s driver.Store) driver.Store {
			noErr(t, s.Close())
			return again(t, s)
		},
		Crash: func(t testing.TB, s driver.Store) driver.Store { return crash(t, s.(*Store), onMovedClock) },
		Advance: func(d time.Duration) {
			if _, err := clock.ExecContext(context.Background(), fmt.Sprintf("UPDATE moved SET us = us + %d", d.Microseconds())); err != nil {
				panic(err)
			}
		},
		Flip:  flip,
		Shift: shift,
		// The engine's clock goes on beside the moved one, which is all its cases need.
		Around: func(t *testing.T, run func(testing.TB)) { run(t) },
	})
}

// flip changes a bit of the body of a message, or of its original.
func flip(t testing.TB, s driver.Store, ref redrive.Ref, original bool) {
	t.Helper()
	flipped := func(bytes string) string {
		return fmt.Sprintf("INSERT(%[1]s, 1, 1, CHAR(ORD(LEFT(%[1]s, 1)) ^ 1))", bytes)
	}
	change := "body = " + flipped("body")
	if original {
		text := "CONVERT(original USING utf8mb4)"
		change = fmt.Sprintf("original = JSON_SET(%s, '$.body', TO_BASE64(%s))", text, flipped("FROM_BASE64(JSON_UNQUOTE(JSON_EXTRACT("+text+", '$.body')))"))
	}
	n := int64(0)
	for _, table := range []string{"message", "dead"} {
		res, err := dial(t, "interpolateParams=true").ExecContext(t.Context(), s.(*Store).sql.in("UPDATE redrive_"+table+" SET "+change+" WHERE queue = ? AND id = ?"), []byte(ref.Queue), []byte(ref.ID))
		noErr(t, err)
		changed, err := res.RowsAffected()
		noErr(t, err)
		n += changed
	}
	if n != 1 {
		t.Fatalf("%s: %d messages were flipped", ref, n)
	}
}

// shift moves the due times of what waits in a queue.
func shift(t testing.TB, s driver.Store, queue string, d time.Duration) {
	t.Helper()
	by := d.Microseconds()
	db := dial(t, "interpolateParams=true")
	_, err := db.ExecContext(t.Context(), s.(*Store).sql.in("UPDATE redrive_message SET due = due + ? WHERE queue = ?"), by, []byte(queue))
	noErr(t, err)
	_, err = db.ExecContext(t.Context(), s.(*Store).sql.in("UPDATE redrive_dead SET died = died + ?, due = due + ? WHERE queue = ?"), by, by, []byte(queue))
	noErr(t, err)
}

// contents tells what begins with a prefix: the names of all tables and views, and sums of
// the rows of messages and of a table of others, which is made first. The rest is tended all
// the time.
func contents(t testing.TB, db *sql.DB, prefix string) map[string]string {
	t.Helper()
	ctx := t.Context()
	serve(t, fmt.Sprintf("CREATE TABLE IF NOT EXISTS %[1]stheirs (id INT PRIMARY KEY); INSERT IGNORE INTO %[1]stheirs VALUES (1)", prefix))
	rows, err := db.QueryContext(ctx, "SELECT TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND LEFT(TABLE_NAME, CHAR_LENGTH(?)) = ?", mariadbtest.Database, prefix, prefix)
	noErr(t, err)
	defer func() { _ = rows.Close() }()
	all := make(map[string]string)
	for rows.Next() {
		var name, kind string
		noErr(t, rows.Scan(&name, &kind))
		all[name] = kind
	}
	noErr(t, rows.Err())
	for _, table := range []string{"message", "dead", "remembered", "theirs"} {
		var name, sum string
		noErr(t, db.QueryRowContext(ctx, "CHECKSUM TABLE "+prefix+table+" EXTENDED").Scan(&name, &sum))
		all["rows of "+table] = sum
	}
	return all
}
