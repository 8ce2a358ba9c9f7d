package sqlite

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redrive/redrive"
)

// migrate makes the schema, or checks that it is one that this program knows.
func (s *Store) migrate() error {
	id, err := s.w.value("PRAGMA application_id")
	if err != nil {
		return err
	}
	version, err := s.w.value("PRAGMA user_version")
	if err != nil {
		return err
	}
	objects, err := s.w.value("SELECT count(*) FROM sqlite_schema")
	if err != nil {
		return err
	}
	if objects == 0 && version == 0 {
		return s.create()
	}
	switch {
	case id != applicationID:
		return fmt.Errorf("%w: %s is a SQLite file, but not a store of Redrive", redrive.ErrCorrupt, FileName)
	case version < 1:
		return fmt.Errorf("%w: schema version %d", redrive.ErrCorrupt, version)
	}
	if err := checkVersion("open", s.dir, version); err != nil {
		return err
	}
	if mode, err := s.pragma("PRAGMA journal_mode = WAL"); err != nil || mode != "wal" {
		return errors.Join(err, fmt.Errorf("journal mode %q instead of wal", mode))
	}
	return s.checkSchema()
}

func (s *Store) create() error {
	// auto_vacuum must come before the first page is written.
	if err := s.w.exec("PRAGMA auto_vacuum = INCREMENTAL"); err != nil {
		return err
	}
	if mode, err := s.pragma("PRAGMA journal_mode = WAL"); err != nil || mode != "wal" {
		return errors.Join(err, fmt.Errorf("journal mode %q instead of wal: the folder's file system cannot share memory", mode))
	}
	return s.w.exec(fmt.Sprintf("PRAGMA synchronous = FULL; BEGIN IMMEDIATE;\n%s\nPRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT",
		schema, applicationID, schemaVersion))
}

// checkVersion reports a store that another build wrote.
func checkVersion(op, dir string, version int64) error {
	e := &redrive.Error{Op: op}
	switch {
	case version > schemaVersion:
		e.Err = fmt.Errorf("store %s: its schema version %d is newer than %d, which this program knows", dir, version, schemaVersion)
		e.Hint = "use the newer program that wrote it"
	case version < schemaVersion:
		e.Err = fmt.Errorf("store %s: its schema version %d is that of an earlier build; this program knows %d", dir, version, schemaVersion)
		e.Hint = "drain it with the build that wrote it, or copy its messages into a new store with that build"
	default:
		return nil
	}
	return e
}

// checkSchema compares the tables of the file with those of the schema.
func (s *Store) checkSchema() error {
	have, err := schemaOf(s.w)
	if err != nil {
		return err
	}
	for part := range strings.SplitSeq(schema, ";") {
		lines := strings.Split(part, "\n")
		for len(lines) > 0 && (lines[0] == "" || strings.HasPrefix(lines[0], "--")) {
			lines = lines[1:]
		}
		if want := strings.TrimSpace(strings.Join(lines, "\n")); strings.HasPrefix(want, "CREATE") && !have[want] {
			name, _, _ := strings.Cut(want, "(")
			return fmt.Errorf("%w: its schema differs at %q", redrive.ErrCorrupt, strings.TrimSpace(name))
		}
	}
	return nil
}

func schemaOf(c *conn) (map[string]bool, error) {
	have := make(map[string]bool)
	st := c.stmt("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")
	for st.next() {
		have[st.colText(0)] = true
	}
	return have, st.done()
}

func (s *Store) pragma(sql string) (string, error) {
	st := &stmt{c: s.w}
	st.prepare(sql)
	defer st.free()
	var v string
	if st.next() {
		v = st.colText(0)
	}
	return v, st.done()
}
