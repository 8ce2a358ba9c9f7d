package mysql

import (
	"embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed *.sql migrations/*.sql
var files embed.FS

// defaultPrefix is what the embedded SQL is written for.
const defaultPrefix = "redrive_"

// serverClock is the server's clock in microseconds since 1970. It is the beginning of
// the statement, not of the transaction, and independent of the session's time zone.
const serverClock = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

// statements is the embedded SQL by name, for one prefix.
type statements struct {
	prefix string
	clock  string // in SQL
	byName map[string]string
}

// newStatements reads the embedded files. Each "-- name: x" begins a statement; the
// comment lines after it are its legend.
func newStatements(prefix string) *statements {
	s := &statements{prefix: prefix, clock: serverClock, byName: make(map[string]string)}
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
	lists := []string{":books", bookList("#"), ":sums", bookList("COALESCE(SUM(d.#), 0)"), ":adds", bookList("# = # + VALUES(#)")}
	for _, list := range []string{"columns_message_parts", "columns_dead_parts", "columns_no_parts", "columns_message", "columns_dead", "claimed_columns"} {
		lists = append(lists, ":"+list, s.get(list))
	}
	s.replace(lists...)
	s.replace(":now", serverClock)
	s.byName["publish_bulk"] = s.with("publish_plain", ":rows", strings.TrimSuffix(strings.Repeat(s.get("publish_now_row")+",", bulkRows), ","))
	return s
}

// replace replaces parts in all statements, given as pairs of old and new.
func (s *statements) replace(pairs ...string) {
	replacer := strings.NewReplacer(pairs...)
	for name := range s.byName {
		s.byName[name] = replacer.Replace(s.byName[name])
	}
}

// withoutComments drops legends: they need not travel to the server.
func withoutComments(sql string) string {
	var b strings.Builder
	for line := range strings.Lines(sql) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			b.WriteString(line)
		}
	}
	return strings.TrimSuffix(strings.TrimSpace(b.String()), ";")
}

// in puts the tables' prefix into SQL.
func (s *statements) in(sql string) string {
	return strings.ReplaceAll(sql, defaultPrefix, s.prefix)
}

// get returns a statement by its name.
func (s *statements) get(name string) string {
	sql, ok := s.byName[name]
	if !ok {
		panic(fmt.Sprintf("no statement %q", name)) // a mistake in the program
	}
	return sql
}

// with returns a statement with the parts filled in that vary, given as pairs of
// placeholder and text.
func (s *statements) with(name string, pairs ...string) string {
	return strings.NewReplacer(pairs...).Replace(s.get(name))
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
