package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/redrive/redrive"
)

// This file speaks to SQLite itself instead of through database/sql: the writer
// runs some ten statements a message, and boxing every argument and column would
// cost more than the statements.

// sqlError is an error of SQLite with its extended result code.
type sqlError struct {
	code int32
	text string
}

func (e *sqlError) Error() string { return fmt.Sprintf("sqlite: %s (%d)", e.text, e.code) }

func (*sqlError) ErrorName() string { return "sqlite.Error" }

// Unwrap says what the code means for callers.
func (e *sqlError) Unwrap() error {
	switch {
	case e.full():
		return redrive.ErrFull
	case e.corrupt():
		return redrive.ErrCorrupt
	}
	return nil
}

func (e *sqlError) full() bool {
	// The shared-memory file cannot be extended: that is a full disk as well.
	return e.code&0xff == sqlite3.SQLITE_FULL || e.code == sqlite3.SQLITE_IOERR_SHMSIZE
}

func (e *sqlError) corrupt() bool {
	primary := e.code & 0xff
	return primary == sqlite3.SQLITE_CORRUPT || primary == sqlite3.SQLITE_NOTADB
}

// fatal reports an error after which nobody knows what is on disk.
func (e *sqlError) fatal() bool {
	return e.code&0xff == sqlite3.SQLITE_IOERR && !e.full()
}

func isFatal(err error) bool {
	var e *sqlError
	return errors.As(err, &e) && e.fatal()
}

func isFull(err error) bool {
	var e *sqlError
	return errors.As(err, &e) && e.full()
}

func isCorrupt(err error) bool {
	var e *sqlError
	return errors.As(err, &e) && e.corrupt()
}

// at is the C memory at an address.
func at(p uintptr) unsafe.Pointer {
	return *(*unsafe.Pointer)(unsafe.Pointer(&p)) //nolint:gosec // memory of the C heap, which does not move
}

// conn is one connection. It is used by one goroutine at a time.
type conn struct {
	tls   *libc.TLS
	db    uintptr
	out   uintptr // room for two out parameters
	stmts map[string]*stmt
}

// busyTimeout is how long, in milliseconds, a statement waits for tools that look
// into the file from outside.
const busyTimeout = 10_000

var patchOnce sync.Once

// openConn opens the file; it is made if create is set.
func openConn(path string, create bool) (*conn, error) {
	patchOnce.Do(sqlite3.PatchIssue199)
	c := &conn{tls: libc.NewTLS(), stmts: make(map[string]*stmt)}
	c.out = libc.Xmalloc(c.tls, 16)
	name, err := libc.CString(path)
	if err != nil || c.out == 0 {
		c.tls.Close()
		return nil, errors.New("out of memory")
	}
	defer libc.Xfree(c.tls, name)
	flags := int32(sqlite3.SQLITE_OPEN_READWRITE | sqlite3.SQLITE_OPEN_NOMUTEX)
	if create {
		flags |= sqlite3.SQLITE_OPEN_CREATE
	}
	rc := sqlite3.Xsqlite3_open_v2(c.tls, name, c.out, flags, 0)
	c.db = *(*uintptr)(at(c.out))
	if rc != sqlite3.SQLITE_OK {
		err := c.err(rc)
		c.close()
		return nil, err
	}
	sqlite3.Xsqlite3_extended_result_codes(c.tls, c.db, 1)
	sqlite3.Xsqlite3_busy_timeout(c.tls, c.db, busyTimeout)
	return c, nil
}

// close frees all statements and closes the connection.
func (c *conn) close() {
	for _, s := range c.stmts {
		s.free()
	}
	c.stmts = nil
	if c.db != 0 {
		sqlite3.Xsqlite3_close_v2(c.tls, c.db)
	}
	libc.Xfree(c.tls, c.out)
	c.tls.Close()
	c.db = 0
}

func (c *conn) err(rc int32) error {
	if c.db == 0 {
		return &sqlError{code: rc, text: libc.GoString(sqlite3.Xsqlite3_errstr(c.tls, rc))}
	}
	text := libc.GoString(sqlite3.Xsqlite3_errmsg(c.tls, c.db))
	if full := sqlite3.Xsqlite3_extended_errcode(c.tls, c.db); full&0xff == rc&0xff {
		rc = full
	}
	return &sqlError{code: rc, text: text}
}

// exec runs a script of statements without results.
func (c *conn) exec(sql string) error {
	p, err := libc.CString(sql)
	if err != nil {
		return err
	}
	defer libc.Xfree(c.tls, p)
	if rc := sqlite3.Xsqlite3_exec(c.tls, c.db, p, 0, 0, 0); rc != sqlite3.SQLITE_OK {
		return c.err(rc)
	}
	return nil
}

// inTx reports whether a transaction is open.
func (c *conn) inTx() bool { return sqlite3.Xsqlite3_get_autocommit(c.tls, c.db) == 0 }

// pagesWritten is how many pages the connection has written so far.
func (c *conn) pagesWritten() int64 {
	sqlite3.Xsqlite3_db_status(c.tls, c.db, sqlite3.SQLITE_DBSTATUS_CACHE_WRITE, c.out, c.out+4, 0)
	return int64(*(*int32)(at(c.out)))
}

// checkpoint moves frames of the log into the file, as far as readers allow, for
// whom it does not wait. It returns how many frames the log has and how many of them
// were moved.
func (c *conn) checkpoint(mode int32) (log, moved int32, err error) {
	sqlite3.Xsqlite3_busy_timeout(c.tls, c.db, 0)
	defer sqlite3.Xsqlite3_busy_timeout(c.tls, c.db, busyTimeout)
	rc := sqlite3.Xsqlite3_wal_checkpoint_v2(c.tls, c.db, 0, mode, c.out, c.out+4)
	log, moved = *(*int32)(at(c.out)), *(*int32)(at(c.out + 4))
	switch {
	case rc == sqlite3.SQLITE_OK:
		return log, moved, nil
	case rc&0xff == sqlite3.SQLITE_BUSY: // a reader keeps the log from being cut
		return log, log - 1, nil
	}
	return log, moved, c.err(rc)
}

// keepLog says whether closing leaves the log as it is, or moves it into the file.
func (c *conn) keepLog(keep bool) {
	on := int32(0)
	if keep {
		on = 1
	}
	args := libc.Xmalloc(c.tls, 16)
	defer libc.Xfree(c.tls, args)
	sqlite3.Xsqlite3_db_config(c.tls, c.db, sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, libc.VaList(args, on, uintptr(0)))
}

// interruptOn interrupts what the connection runs when ctx ends. The returned
// function undoes that and must be called before the connection is used again.
func (c *conn) interruptOn(ctx context.Context) (stop func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	done := make(chan struct{})
	undo := context.AfterFunc(ctx, func() {
		defer close(done)
		tls := libc.NewTLS() // the connection's own is in use
		sqlite3.Xsqlite3_interrupt(tls, c.db)
		tls.Close()
	})
	return func() {
		if !undo() {
			<-done
		}
	}
}

// stmt returns the prepared statement of a text, which is kept.
func (c *conn) stmt(sql string) *stmt {
	if s := c.stmts[sql]; s != nil {
		return s
	}
	s := &stmt{c: c}
	s.prepare(sql)
	if s.err == nil {
		c.stmts[sql] = s
	}
	return s
}

// value runs a statement that yields one number.
func (c *conn) value(sql string) (int64, error) {
	s := &stmt{c: c}
	s.prepare(sql)
	defer s.free()
	return s.one()
}
