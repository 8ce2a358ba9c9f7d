package sqlite

import (
	"errors"
	"fmt"
	"unsafe"

	"modernc.org/libc"
	"modernc.org/libc/sys/types"
	sqlite3 "modernc.org/sqlite/lib"
)

// stmt is a prepared statement: bind with int, text, blob and null in order, then
// run it, or step through it with next and end with done.
type stmt struct {
	c      *conn
	p      uintptr
	bound  int32     // parameters bound so far
	err    error     // the first error; reported by run and done
	buffer uintptr   // holds texts and blobs while they are bound
	used   int       // bytes of buffer in use
	extra  []uintptr // values that did not fit
}

const stmtBuffer = 8 << 10

func (s *stmt) prepare(sql string) {
	p, err := libc.CString(sql)
	if err != nil {
		s.err = err
		return
	}
	defer libc.Xfree(s.c.tls, p)
	rc := sqlite3.Xsqlite3_prepare_v3(s.c.tls, s.c.db, p, -1, sqlite3.SQLITE_PREPARE_PERSISTENT, s.c.out, 0)
	if rc != sqlite3.SQLITE_OK {
		s.err = fmt.Errorf("%w in %q", s.c.err(rc), sql)
		return
	}
	s.p = *(*uintptr)(at(s.c.out))
	if s.buffer = libc.Xmalloc(s.c.tls, stmtBuffer); s.buffer == 0 {
		s.err = errors.New("out of memory")
	}
}

func (s *stmt) free() {
	s.reset()
	sqlite3.Xsqlite3_finalize(s.c.tls, s.p)
	libc.Xfree(s.c.tls, s.buffer)
	s.p, s.buffer = 0, 0
}

func (s *stmt) check(rc int32) {
	if rc != sqlite3.SQLITE_OK && s.err == nil {
		s.err = s.c.err(rc)
	}
}

func (s *stmt) int(v int64) *stmt {
	s.bound++
	if s.p != 0 {
		s.check(sqlite3.Xsqlite3_bind_int64(s.c.tls, s.p, s.bound, v))
	}
	return s
}

// ints binds several numbers.
func (s *stmt) ints(values ...int64) *stmt {
	for _, v := range values {
		s.int(v)
	}
	return s
}

func (s *stmt) flag(v bool) *stmt {
	if v {
		return s.int(1)
	}
	return s.int(0)
}

func (s *stmt) null() *stmt {
	s.bound++
	if s.p != 0 {
		s.check(sqlite3.Xsqlite3_bind_null(s.c.tls, s.p, s.bound))
	}
	return s
}

// intOrNull binds null for 0.
func (s *stmt) intOrNull(v int64) *stmt {
	if v == 0 {
		return s.null()
	}
	return s.int(v)
}

// text binds a string.
func (s *stmt) text(v string) *stmt {
	s.bound++
	if s.p == 0 {
		return s
	}
	p := s.room(len(v))
	if len(v) > 0 {
		copy(unsafe.Slice((*byte)(at(p)), len(v)), v) //nolint:gosec // room has len(v) bytes
	}
	s.check(sqlite3.Xsqlite3_bind_text(s.c.tls, s.p, s.bound, p, int32(len(v)), 0)) //nolint:gosec // below 2 GiB
	return s
}

// textOrNull binds null for the empty string, which is stored in no bytes.
func (s *stmt) textOrNull(v string) *stmt {
	if v == "" {
		return s.null()
	}
	return s.text(v)
}

// blob binds bytes; nil and empty are an empty blob.
func (s *stmt) blob(v []byte) *stmt {
	s.bound++
	if s.p == 0 {
		return s
	}
	p := s.room(len(v))
	if len(v) > 0 {
		copy(unsafe.Slice((*byte)(at(p)), len(v)), v) //nolint:gosec // room has len(v) bytes
	}
	s.check(sqlite3.Xsqlite3_bind_blob(s.c.tls, s.p, s.bound, p, int32(len(v)), 0)) //nolint:gosec // below 2 GiB
	return s
}

func (s *stmt) blobOrNull(v []byte) *stmt {
	if len(v) == 0 {
		return s.null()
	}
	return s.blob(v)
}

// room returns n bytes that live until the statement is reset.
func (s *stmt) room(n int) uintptr {
	if s.used+n <= stmtBuffer {
		p := s.buffer + uintptr(s.used)
		s.used += n
		return p
	}
	p := libc.Xmalloc(s.c.tls, types.Size_t(n)) //nolint:gosec // not negative
	if p == 0 {
		panic("sqlite: out of memory")
	}
	s.extra = append(s.extra, p)
	return p
}

// reset makes the statement ready for its next use.
func (s *stmt) reset() {
	if s.p != 0 {
		sqlite3.Xsqlite3_reset(s.c.tls, s.p)
		if len(s.extra) > 0 { // no binding may point to freed memory
			sqlite3.Xsqlite3_clear_bindings(s.c.tls, s.p)
		}
	}
	for _, p := range s.extra {
		libc.Xfree(s.c.tls, p)
	}
	s.extra = s.extra[:0]
	s.bound, s.used = 0, 0
}

// next steps to the next row and reports whether there is one.
func (s *stmt) next() bool {
	if s.err != nil || s.p == 0 {
		return false
	}
	switch rc := sqlite3.Xsqlite3_step(s.c.tls, s.p); rc {
	case sqlite3.SQLITE_ROW:
		return true
	case sqlite3.SQLITE_DONE:
	default:
		s.err = s.c.err(rc)
	}
	return false
}

// done ends a use of the statement and returns its error.
func (s *stmt) done() error {
	err := s.err
	s.reset()
	if s.p != 0 {
		s.err = nil
	}
	return err
}

// run executes the statement.
func (s *stmt) run() error {
	for s.next() {
	}
	return s.done()
}

// one executes the statement, which yields one number.
func (s *stmt) one() (n int64, err error) {
	for s.next() {
		n = s.colInt(0)
	}
	return n, s.done()
}

// changed executes the statement and returns how many rows it changed.
func (s *stmt) changed() (int64, error) {
	if err := s.run(); err != nil {
		return 0, err
	}
	return int64(sqlite3.Xsqlite3_changes(s.c.tls, s.c.db)), nil
}

func (s *stmt) colInt(i int32) int64 { return sqlite3.Xsqlite3_column_int64(s.c.tls, s.p, i) }

func (s *stmt) colNull(i int32) bool {
	return sqlite3.Xsqlite3_column_type(s.c.tls, s.p, i) == sqlite3.SQLITE_NULL
}

// colBytes returns a copy of a text or blob, nil if it is empty.
func (s *stmt) colBytes(i int32) []byte {
	p := sqlite3.Xsqlite3_column_blob(s.c.tls, s.p, i)
	n := sqlite3.Xsqlite3_column_bytes(s.c.tls, s.p, i)
	if p == 0 || n == 0 {
		return nil
	}
	b := make([]byte, n)
	copy(b, unsafe.Slice((*byte)(at(p)), n)) //nolint:gosec // SQLite says that there are n bytes
	return b
}

func (s *stmt) colText(i int32) string {
	p := sqlite3.Xsqlite3_column_blob(s.c.tls, s.p, i) // the bytes as they are: the file is UTF-8
	n := sqlite3.Xsqlite3_column_bytes(s.c.tls, s.p, i)
	if p == 0 || n == 0 {
		return ""
	}
	return string(unsafe.Slice((*byte)(at(p)), n)) //nolint:gosec // SQLite says that there are n bytes
}

// copyRow binds all columns of the current row to another statement.
func (s *stmt) copyRow(to *stmt) {
	for i := range sqlite3.Xsqlite3_column_count(s.c.tls, s.p) {
		switch sqlite3.Xsqlite3_column_type(s.c.tls, s.p, i) {
		case sqlite3.SQLITE_NULL:
			to.null()
		case sqlite3.SQLITE_INTEGER:
			to.int(s.colInt(i))
		case sqlite3.SQLITE_TEXT:
			to.text(s.colText(i))
		default:
			to.blob(s.colBytes(i))
		}
	}
}
