package sqlite

import (
	"database/sql"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite" // what the package would use instead of its own connection
)

// BenchmarkInterface is what the package's own connection brings: a row written, read and
// removed by it, and through database/sql, both in transactions of 100 rows and without a
// sync, as the writer works.
func BenchmarkInterface(b *testing.B) {
	const table = `CREATE TABLE t (id INTEGER PRIMARY KEY, queue INT, class INT, due INT, lane INT, kind TEXT, body BLOB)`
	statements := []string{`INSERT INTO t (queue, class, due, lane, kind, body) VALUES (?, ?, ?, ?, ?, ?)`,
		`SELECT id, due, kind, body FROM t WHERE queue = ? LIMIT 1`, `DELETE FROM t WHERE id = ?`}
	body := make([]byte, 200)
	b.Run("own", func(b *testing.B) {
		c, err := openConn(filepath.Join(b.TempDir(), "db"), true)
		noErr(b, err)
		defer c.close()
		noErr(b, c.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; "+table))
		b.ReportAllocs()
		for i := range b.N {
			if i%100 == 0 {
				noErr(b, c.exec("BEGIN"))
			}
			noErr(b, c.stmt(statements[0]).ints(1, 2, int64(i), 0).text("kind").blob(body).run())
			st := c.stmt(statements[1]).int(1)
			st.next()
			id, _, _, _ := st.colInt(0), st.colInt(1), st.colText(2), st.colBytes(3)
			noErr(b, st.done())
			noErr(b, c.stmt(statements[2]).int(id).run())
			if i%100 == 99 || i == b.N-1 {
				noErr(b, c.exec("COMMIT"))
			}
		}
	})
	b.Run("database/sql", func(b *testing.B) {
		db, err := sql.Open("sqlite", filepath.Join(b.TempDir(), "db"))
		noErr(b, err)
		defer func() { _ = db.Close() }()
		db.SetMaxOpenConns(1)
		_, err = db.ExecContext(b.Context(), "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; "+table)
		noErr(b, err)
		var prepared [3]*sql.Stmt
		for i, text := range statements {
			prepared[i], err = db.PrepareContext(b.Context(), text)
			noErr(b, err)
		}
		b.ReportAllocs()
		var tx *sql.Tx
		var in [3]*sql.Stmt
		for i := range b.N {
			if i%100 == 0 {
				tx, err = db.BeginTx(b.Context(), nil)
				noErr(b, err)
				for j := range in {
					in[j] = tx.StmtContext(b.Context(), prepared[j])
				}
			}
			_, err := in[0].ExecContext(b.Context(), 1, 2, i, 0, "kind", body)
			noErr(b, err)
			var id, due int64
			var kind string
			var got []byte
			noErr(b, in[1].QueryRowContext(b.Context(), 1).Scan(&id, &due, &kind, &got))
			_, err = in[2].ExecContext(b.Context(), id)
			noErr(b, err)
			if i%100 == 99 || i == b.N-1 {
				noErr(b, tx.Commit())
			}
		}
	})
}
