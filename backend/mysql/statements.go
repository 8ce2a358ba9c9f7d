package mysql

import (
	"embed"
	"strconv"
	"strings"

	"github.com/redrive/redrive/internal/sqlstore"
)

//go:embed *.sql migrations/*.sql
var files embed.FS

// defaultPrefix is what the embedded SQL is written for.
const defaultPrefix = "redrive_"

// serverClock is the server's clock in microseconds since 1970. It is the beginning of
// the statement, not of the transaction, and independent of the session's time zone.
const serverClock = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

// lastSignature is the signature of a message's last failure.
const lastSignature = `COALESCE(LEFT(CAST(JSON_UNQUOTE(JSON_EXTRACT(CONVERT(COALESCE(last_failure, first_failure) USING utf8mb4), '$.signature')) AS BINARY), 512), '')`

// statements is the embedded SQL by name, for one prefix.
type statements struct {
	sqlstore.Statements
	prefix string
	clock  string // in SQL
}

// newStatements reads the embedded files for a prefix.
func newStatements(prefix string) *statements {
	s := &statements{prefix: prefix, clock: serverClock}
	s.Statements = sqlstore.NewStatements(&files, s.in)
	s.ByName["write_ledger"] = s.in(ledgerDelta())
	lists := []string{":ledger", accountList("#"), ":sums", accountList("COALESCE(SUM(d.#), 0)"), ":adds", accountList("# = # + VALUES(#)")}
	for _, list := range []string{"columns_message_parts", "columns_dead_parts", "columns_no_parts", "columns_message", "columns_dead", "claimed_columns"} {
		lists = append(lists, ":"+list, s.Get(list))
	}
	s.Replace(lists...)
	s.Replace(":signature", lastSignature)
	s.Replace(":now", serverClock)
	s.ByName["publish_bulk"] = s.with("publish_plain", ":rows", strings.TrimSuffix(strings.Repeat(s.Get("publish_now_row")+",", bulkRows), ","))
	return s
}

// in puts the tables' prefix into SQL.
func (s *statements) in(sql string) string {
	return strings.ReplaceAll(sql, defaultPrefix, s.prefix)
}

// with returns a statement with the parts filled in that vary, given as pairs of
// placeholder and text.
func (s *statements) with(name string, pairs ...string) string {
	return strings.NewReplacer(pairs...).Replace(s.Get(name))
}

// listMax is the most elements of a list within a statement. MariaDB makes a table of
// a list of 1,000.
const listMax = 500

// places returns n placeholders.
func places(n int) string { return strings.TrimSuffix(strings.Repeat("?,", n), ",") }

// numbers returns a list of numbers as SQL.
func numbers(list []int64) string {
	b := make([]byte, 0, 12*len(list))
	for i, n := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return string(b)
}

// accountList is a list of all accounts for SQL, each made by a format of its column.
func accountList(format string) string { return sqlstore.AccountList("dead_", format) }

// ledgerDelta is the statement that writes one row of differences.
func ledgerDelta() string {
	return "INSERT INTO redrive_delta (queue, " + accountList("#") + ") VALUES (?, " + accountList("NULLIF(?, 0)") + ")"
}
