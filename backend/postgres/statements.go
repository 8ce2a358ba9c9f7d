package postgres

import (
	"embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/redrive/redrive/internal/sqlstore"
)

//go:embed *.sql migrations/*.sql
var files embed.FS

// defaultSchema is what the embedded SQL is written for.
const defaultSchema = "redrive"

// statements is the embedded SQL by name, for one schema.
type statements struct {
	sqlstore.Statements
	schema string
}

// newStatements reads the embedded files for a schema.
func newStatements(schema string) *statements {
	s := &statements{schema: schema}
	s.Statements = sqlstore.NewStatements(&files, s.in)
	s.ByName["write_ledger"] = s.in(ledgerDelta())
	columns := make([]string, 0, 10)
	for _, list := range []string{"columns_message_parts", "columns_dead_parts", "columns_no_parts", "columns_message", "columns_dead"} {
		columns = append(columns, ":"+list, s.Get(list))
	}
	columns = append(columns, ":ledger", accountList("#"), ":sums", accountList("coalesce(sum(d.#), 0)::bigint AS #"),
		":totals", accountList("coalesce(q.#, 0) + coalesce(d.#, 0) AS #"), ":values", accountList("d.#"), ":adds", accountList("# = q.# + excluded.#"))
	s.Replace(columns...)
	for _, find := range []string{"find_waiting", "find_dead", "find_key"} {
		parts := "columns_message_parts"
		if find == "find_dead" {
			parts = "columns_dead_parts"
		}
		text := s.Get(find)
		s.ByName[find] = strings.ReplaceAll(text, ":parts", s.Get("columns_no_parts"))
		s.ByName[find+"_whole"] = strings.ReplaceAll(text, ":parts", s.Get(parts))
	}
	for _, pick := range []string{"pick_lane", "pick_alone", "pick_expired", "pick_old"} {
		s.ByName[pick] += "\n" + s.Get("take")
	}
	return s
}

// in puts the schema's name into SQL.
func (s *statements) in(sql string) string {
	return strings.ReplaceAll(sql, defaultSchema+".", pgx.Identifier{s.schema}.Sanitize()+".")
}

// accountList is a list of all accounts for SQL, each made by a format of its column.
func accountList(format string) string { return sqlstore.AccountList("", format) }

// ledgerDelta is the statement that writes one row of differences.
func ledgerDelta() string {
	places := make([]string, sqlstore.AccountCount)
	for i := range places {
		places[i] = fmt.Sprintf("nullif($%d::bigint, 0)", i+2)
	}
	return "INSERT INTO redrive.delta (queue, " + accountList("#") + ") VALUES ($1, " + strings.Join(places, ", ") + ")"
}
