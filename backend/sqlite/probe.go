package sqlite

import (
	"context"
	"fmt"
	"path/filepath"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/redrive/redrive/driver"
)

// Probe implements driver.Source.
func (s *Store) Probe(ctx context.Context) []driver.Finding {
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
		return []driver.Finding{{Level: driver.LevelRefused, Setting: "store", Value: filepath.Join(s.dir, FileName),
			Promise: fmt.Sprintf("it cannot be read: %v", err), Hint: corruptHint}}
	}
	level := driver.LevelOK
	if mode != "wal" {
		level = driver.LevelRefused
	}
	log := driver.Finding{Level: driver.LevelOK, Setting: "log", Value: "whole", Promise: "it held what was synced to it when the store was opened"}
	if s.loss != nil {
		log.Level, log.Value, log.Promise = driver.LevelWarn, "a loss was accepted", s.loss.Error()
	}
	return []driver.Finding{
		log,
		s.probeModes(),
		{Level: driver.LevelOK, Setting: "sqlite", Value: version, Promise: "a version without known faults in its write-ahead log"},
		{Level: level, Setting: "journal_mode", Value: mode, Promise: "readers do not stop the writer"},
		{Level: driver.LevelOK, Setting: "sync", Value: "every group",
			Promise: "what was acknowledged survives a loss of power, if the disk keeps what it says it has written"},
	}
}
