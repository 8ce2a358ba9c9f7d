package sqlstore

import (
	"context"
	"embed"
	"fmt"
	"strings"
)

// Statements is embedded SQL by name, and migrations.
type Statements struct {
	ByName map[string]string
	files  *embed.FS
	in     func(sql string) string
}

// NewStatements reads embedded files of SQL. Each "-- name: x" begins a statement; the
// comment lines after it are its legend. in puts the names of tables into SQL.
func NewStatements(files *embed.FS, in func(sql string) string) Statements {
	s := Statements{ByName: make(map[string]string), files: files, in: in}
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // they are part of the program
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		parts := strings.Split(s.read(e.Name()), "-- name: ")
		for _, part := range parts[1:] {
			name, body, _ := strings.Cut(part, "\n")
			s.ByName[name] = in(WithoutComments(body))
		}
	}
	return s
}

func (s *Statements) read(name string) string {
	text, err := s.files.ReadFile(name)
	if err != nil {
		panic(err) // they are part of the program
	}
	return string(text)
}

// Get returns a statement by its name.
func (s *Statements) Get(name string) string {
	sql, ok := s.ByName[name]
	if !ok {
		panic(fmt.Sprintf("no statement %q", name)) // a mistake in the program
	}
	return sql
}

// Replace replaces parts in all statements, given as pairs of old and new.
func (s *Statements) Replace(pairs ...string) {
	replacer := strings.NewReplacer(pairs...)
	for name := range s.ByName {
		s.ByName[name] = replacer.Replace(s.ByName[name])
	}
}

// WithoutComments drops legends: they need not travel to the server.
func WithoutComments(sql string) string {
	var b strings.Builder
	for line := range strings.Lines(sql) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			b.WriteString(line)
		}
	}
	return strings.TrimSuffix(strings.TrimSpace(b.String()), ";")
}

// Migration is the SQL that brings the tables to a version, or back from it.
func (s *Statements) Migration(version int, up bool) string {
	way := "down"
	if up {
		way = "up"
	}
	return s.in(s.read(fmt.Sprintf("migrations/%04d_%s.sql", version, way)))
}

// Migrations is the SQL that brings the tables from one version to another.
func (s *Statements) Migrations(from, to int) string {
	var b strings.Builder
	for v := from + 1; v <= to; v++ {
		b.WriteString(s.Migration(v, true))
	}
	for v := from; v > to; v-- {
		b.WriteString(s.Migration(v, false))
	}
	return b.String()
}

// Layout tells apart tables that bear the same version: until the first release, version 1
// is changed in place.
const Layout = 6

// CheckLayout refuses tables that an earlier build made, which this one cannot bring up.
func (b *Base) CheckLayout(layout int) error {
	if layout == Layout {
		return nil
	}
	return b.own.OpenError(fmt.Errorf("the tables are of layout %d, of an earlier build; this program needs %d", layout, Layout),
		"drain the store with that build, or copy it with that build to a store of another kind and from there")
}

// Migrate brings the tables up to a version, or refuses them if it may not change them.
func (b *Base) Migrate(ctx context.Context, want int, ddl bool) error {
	have, err := b.own.Version(ctx)
	switch {
	case err != nil:
		return err
	case have == want:
		return nil
	case !ddl:
		return b.own.OpenError(fmt.Errorf("the tables are of version %d, this program needs %d", have, want),
			"have somebody who may change tables run the output of `redrive migrate --print`")
	case have > want:
		return b.own.OpenError(fmt.Errorf("the tables are of version %d, newer than %d, which this program knows", have, want),
			"use the newer program that migrated them")
	}
	return b.own.MigrateTo(ctx, want)
}
