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
	s.Replace(":counters", s.in(counters))
	causes := s.Get("counted_causes")
	s.ByName["counted_causes"] = strings.NewReplacer(":after", "true", ":first", "c.n DESC,", ":largest", "l.n DESC,").Replace(causes)
	s.ByName["next_causes"] = strings.NewReplacer(":after", "(x.queue, x.reason, x.signature) > ($5::text, $6::smallint, $7::text)", ":first", "", ":largest", "").Replace(causes)
	for _, find := range []string{"find_dead", "find_dead_place"} {
		text, plan := s.Get(find), " AND x.plan <> '' AND x.plan = "+map[string]string{"find_dead": "$8", "find_dead_place": "$9"}[find]
		for name, narrow := range map[string]string{"find_dead": "", "find_plan": plan, "find_edited": " AND x.original IS NOT NULL"} {
			s.ByName[strings.Replace(find, "find_dead", name, 1)] = strings.ReplaceAll(text, ":narrow", narrow)
		}
	}
	for _, find := range []string{"find_plan", "find_edited", "find_waiting", "find_dead", "find_key", "find_texts", "find_said"} {
		parts := "columns_message_parts"
		if find != "find_waiting" && find != "find_key" {
			parts = "columns_dead_parts"
		}
		text := s.Get(find)
		none := "columns_no_parts"
		if find == "find_texts" || find == "find_said" {
			none = "columns_said"
		}
		s.ByName[find] = strings.ReplaceAll(text, ":parts", s.Get(none))
		s.ByName[find+"_whole"] = strings.ReplaceAll(text, ":parts", s.Get(parts))
	}
	for _, pick := range []string{"pick_lane", "pick_isolated", "pick_expired", "pick_old"} {
		s.ByName[pick] += "\n" + s.Get("take")
	}
	return s
}

// in puts the schema's name into SQL, where it may stand at the beginning of a text.
func (s *statements) in(sql string) string {
	name := pgx.Identifier{s.schema}.Sanitize() + "."
	return strings.NewReplacer("'"+defaultSchema+".", "'"+strings.ReplaceAll(name, "'", "''"), defaultSchema+".", name).Replace(sql)
}

// counters are the counters of causes by queue ($1), reason ($2) and signature ($3).
const counters = `SELECT c.queue, c.reason, c.signature, c.dead FROM redrive.cause c
    WHERE ($1::text IS NULL OR c.queue = $1) AND ($2::smallint IS NULL OR c.reason = $2) AND ($3::text IS NULL OR c.signature = $3)
    UNION ALL SELECT c.queue, c.reason, c.signature, c.dead FROM redrive.cause_delta c
    WHERE ($1::text IS NULL OR c.queue = $1) AND ($2::smallint IS NULL OR c.reason = $2) AND ($3::text IS NULL OR c.signature = $3)`

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
