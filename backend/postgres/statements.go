package postgres

import (
	"embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed *.sql migrations/*.sql
var files embed.FS

// defaultSchema is what the embedded SQL is written for.
const defaultSchema = "redrive"

// statements is the embedded SQL by name, for one schema.
type statements struct {
	schema string
	byName map[string]string
}

// newStatements reads the embedded files. Each "-- name: x" begins a statement; the
// comment lines after it are its legend.
func newStatements(schema string) *statements {
	s := &statements{schema: schema, byName: make(map[string]string)}
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // they are part of the program
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		text, err := files.ReadFile(e.Name())
		if err != nil {
			panic(err)
		}
		parts := strings.Split(string(text), "-- name: ")
		for _, part := range parts[1:] {
			name, body, _ := strings.Cut(part, "\n")
			s.byName[name] = s.in(withoutComments(body))
		}
	}
	s.byName["book"] = s.in(bookDelta())
	columns := make([]string, 0, 10)
	for _, list := range []string{"columns_message_parts", "columns_dead_parts", "columns_no_parts", "columns_message", "columns_dead"} {
		columns = append(columns, ":"+list, strings.TrimSpace(s.get(list)))
	}
	columns = append(columns, ":books", bookList("#"), ":sums", bookList("coalesce(sum(d.#), 0)::bigint AS #"),
		":totals", bookList("coalesce(q.#, 0) + coalesce(d.#, 0) AS #"), ":values", bookList("d.#"), ":adds", bookList("# = q.# + excluded.#"))
	replacer := strings.NewReplacer(columns...)
	for name := range s.byName {
		s.byName[name] = replacer.Replace(s.byName[name])
	}
	for _, find := range []string{"find_waiting", "find_dead", "find_key"} {
		parts := "columns_message_parts"
		if find == "find_dead" {
			parts = "columns_dead_parts"
		}
		text := s.get(find)
		s.byName[find] = strings.ReplaceAll(text, ":parts", s.get("columns_no_parts"))
		s.byName[find+"_whole"] = strings.ReplaceAll(text, ":parts", s.get(parts))
	}
	for _, pick := range []string{"pick_lane", "pick_alone", "pick_expired", "pick_old"} {
		s.byName[pick] += s.get("take")
	}
	return s
}

// withoutComments drops legends: they need not travel to the server.
func withoutComments(sql string) string {
	var b strings.Builder
	for line := range strings.Lines(sql) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			b.WriteString(line)
		}
	}
	return strings.TrimSpace(b.String()) + "\n"
}

// in puts the schema's name into SQL.
func (s *statements) in(sql string) string {
	return strings.ReplaceAll(sql, defaultSchema+".", pgx.Identifier{s.schema}.Sanitize()+".")
}

// get returns a statement by its name.
func (s *statements) get(name string) string {
	sql, ok := s.byName[name]
	if !ok {
		panic(fmt.Sprintf("no statement %q", name)) // a mistake in the program
	}
	return sql
}
