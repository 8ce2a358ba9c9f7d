package sqlite

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// pageSize is that of every store.
const pageSize = 4096

// headless reports whether the file's first page, which says where every table
// begins, cannot be read.
func (s *source) headless() bool {
	id, err := s.conn.value("PRAGMA application_id")
	if err != nil || id != applicationID {
		return true
	}
	have, err := schemaOf(s.conn)
	return err != nil || len(have) == 0
}

// lendHeader goes on with a copy of the file that has the first page of a new store:
// the tables of every store begin at the same pages.
func (s *source) lendHeader(dir string) error {
	s.report.problem("file: the first page cannot be read; that of a new store was taken instead")
	donor := filepath.Join(dir, "donor")
	defer func() { _ = os.RemoveAll(donor) }()
	fresh, err := Open(donor)
	if err != nil {
		return err
	}
	if err := fresh.Close(); err != nil {
		return err
	}
	page := make([]byte, pageSize)
	if err := readPage(filepath.Join(donor, FileName), page); err != nil {
		return err
	}
	s.conn.close()
	path := filepath.Join(dir, "headless.db")
	size, err := copyFile(filepath.Join(s.dir, FileName), path)
	if err == nil {
		binary.BigEndian.PutUint32(page[28:], uint32(size/pageSize)) //nolint:gosec // SQLite has no more pages
		copy(page[92:96], page[24:28])                               // the size is valid for this change counter
		clear(page[32:40])                                           // the list of free pages is lost
		err = writePage(path, page)
	}
	s.scratch = path
	if err != nil {
		return err
	}
	// What was not moved into the file yet is read from the log.
	if _, err := copyFile(filepath.Join(s.dir, FileName+"-wal"), path+"-wal"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	c, err := openConn(path, false)
	if err == nil {
		s.conn = c
	}
	return err
}

func readPage(path string, page []byte) error {
	f, err := os.Open(path) //nolint:gosec // a store's file
	if err != nil {
		return err
	}
	_, err = io.ReadFull(f, page)
	return errors.Join(err, f.Close())
}

func writePage(path string, page []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0) //nolint:gosec // the copy that was just made
	if err != nil {
		return err
	}
	_, err = f.WriteAt(page, 0)
	return errors.Join(err, f.Close())
}

func copyFile(from, to string) (size int64, err error) {
	in, err := os.Open(from) //nolint:gosec // a store's file
	if err != nil {
		return 0, err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // in the caller's folder
	if err != nil {
		return 0, err
	}
	size, err = io.Copy(out, in)
	return size, errors.Join(err, out.Close())
}
