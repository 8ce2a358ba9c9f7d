package sqlite

import (
	"context"
	"fmt"
	"path/filepath"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/redrive/redrive"
)

// Probe implements redrive.Source.
func (s *Store) Probe(ctx context.Context) []redrive.Verdict {
	var version, mode string
	err := s.read(ctx, func(c *conn) error {
		version = libc.GoString(sqlite3.Xsqlite3_libversion(c.tls))
		st := c.stmt("PRAGMA journal_mode")
		if st.next() {
			mode = st.colText(0)
		}
		return st.done()
	})
	if err != nil {
		return []redrive.Verdict{{Level: redrive.LevelRefused, Setting: "store", Value: filepath.Join(s.dir, FileName),
			Promise: fmt.Sprintf("it cannot be read: %v", err), Hint: corruptHint}}
	}
	level := redrive.LevelOK
	if mode != "wal" {
		level = redrive.LevelRefused
	}
	return []redrive.Verdict{
		{Level: redrive.LevelOK, Setting: "sqlite", Value: version, Promise: "a version without known faults in its write-ahead log"},
		{Level: level, Setting: "journal_mode", Value: mode, Promise: "readers do not stop the writer"},
		{Level: redrive.LevelOK, Setting: "sync", Value: "every group",
			Promise: "what was acknowledged survives a loss of power, if the disk keeps what it says it has written"},
	}
}
