package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// backupPages is how many pages are copied in one go, between which others write.
const backupPages = 1024

// Backup implements driver.Store: it writes a SQLite file. The copy is made by the
// writer between its groups, so that no reader holds the log meanwhile; what is
// written during the copy is in it.
func (s *Store) Backup(ctx context.Context, w io.Writer) error {
	dir, err := os.MkdirTemp(s.dir, "backup-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, FileName)
	if err := os.WriteFile(path, nil, fileMode); err != nil {
		return err
	}
	if err := s.copyTo(ctx, path); err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	f, err := os.Open(path) //nolint:gosec // the file that was just made
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = io.Copy(w, f)
	return err
}

func (s *Store) copyTo(ctx context.Context, path string) (err error) {
	to, err := openConn(path, false)
	if err != nil {
		return err
	}
	defer to.close()
	if err := to.exec("PRAGMA synchronous = OFF"); err != nil { // a temporary file
		return err
	}
	name, err := libc.CString("main")
	if err != nil {
		return err
	}
	defer libc.Xfree(to.tls, name)
	b := uintptr(0)
	err = s.between(ctx, func() error {
		if b = sqlite3.Xsqlite3_backup_init(to.tls, to.db, name, s.w.db, name); b == 0 {
			return to.err(sqlite3.Xsqlite3_extended_errcode(to.tls, to.db))
		}
		return nil
	})
	for more := true; err == nil && more; {
		err = s.between(ctx, func() error {
			switch rc := sqlite3.Xsqlite3_backup_step(to.tls, b, backupPages); rc {
			case sqlite3.SQLITE_OK:
			case sqlite3.SQLITE_DONE:
				more = false
			default:
				return to.err(rc)
			}
			return nil
		})
	}
	if b == 0 {
		return err
	}
	// The end must come whatever happened, and from the writer, who else uses the
	// connection.
	end := s.between(context.WithoutCancel(ctx), func() error {
		if rc := sqlite3.Xsqlite3_backup_finish(to.tls, b); rc != sqlite3.SQLITE_OK && err == nil {
			return to.err(rc)
		}
		return nil
	})
	return errors.Join(err, end)
}

// betweenOp runs a function between two groups, outside of any transaction.
type betweenOp struct {
	op
	fn  func() error
	err error
}

func (o *betweenOp) run(*tx) {}

func (o *betweenOp) end(err error) {
	if o.err = err; err == nil {
		o.err = o.fn()
	}
}

func (s *Store) between(ctx context.Context, fn func() error) error {
	o := &betweenOp{op: newOp(1, 0, false, false), fn: fn}
	took, err := s.submit(lineOther, o, ctx.Done())
	if err != nil {
		return err
	}
	if !took {
		return ctx.Err()
	}
	return o.err
}
