package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/redrive/redrive"
)

// anchorEvery is how often a store looks whether its files are in their places, beside
// what it does before it acknowledges.
const anchorEvery = time.Second

// anchor is a path and the open file that it must lead to. What is written to a file that
// was deleted, or that another one hides, is synced without an error and gone with the
// process.
type anchor struct {
	path string
	file fs.FileInfo
}

// anchors are those of the database and its log, which what is acknowledged depends on,
// and of the lock.
type anchors []anchor

const dataAnchors = 2 // the database's and its log's, which come first

// check fails when a path does not lead to its open file any more. Any error of the
// look counts: what cannot be found now cannot be found by the next process either.
func (a anchors) check() error {
	for i := range a {
		now, err := os.Stat(a[i].path)
		var what error
		switch {
		case errors.Is(err, fs.ErrNotExist):
			what = fmt.Errorf("%s is gone: it or its folder was deleted or moved while the store was open", a[i].path)
		case err != nil:
			what = fmt.Errorf("the open file was moved or deleted: %w", err)
		case !os.SameFile(a[i].file, now):
			what = fmt.Errorf("%s is another file now: it or its folder was replaced while the store was open", a[i].path)
		default:
			continue
		}
		return &redrive.Error{Op: "write", Err: what,
			Hint: "before the next start, which would make an empty store, put the folder back where it was or restore a backup; end the process before you move a store"}
	}
	return nil
}

// checkAnchors stops the store once its files are gone, also while nothing is acknowledged. It
// returns after which time to look again.
func (s *Store) checkAnchors() time.Duration {
	if s.failed() != nil {
		return time.Hour
	}
	now := s.clock()
	if since := now.Sub(s.anchored); since >= 0 && since < s.every {
		return s.every - since
	}
	s.anchored = now
	if err := s.anchors[:dataAnchors].check(); err != nil {
		s.fatal(err)
		return s.every
	}
	if lost := s.anchors[dataAnchors:].check(); lost != nil {
		s.relock(lost)
	}
	return s.every
}

// relock makes the lock file anew after somebody removed or replaced it. Where the database
// has a lock of its own, nobody came in meanwhile, and the store goes on.
func (s *Store) relock(lost error) {
	if !locksData {
		s.fatal(lost)
		return
	}
	err := s.lock.renew(s.dir)
	if err == nil {
		s.anchors[dataAnchors].file, err = s.lock.folder.Stat()
	}
	level, text := slog.LevelWarn, "the store's lock file was removed or replaced: made again"
	if err != nil {
		level, text = slog.LevelError, "the store's lock file was removed or replaced, and cannot be made again yet"
	}
	slog.Log(context.Background(), level, text, "dir", s.dir, "error", errors.Join(errors.Unwrap(lost), err))
}

// findAnchors notes where the open files are.
func (s *Store) findAnchors() error {
	path := filepath.Join(s.dir, FileName)
	s.anchors = anchors{{path: path, file: s.lock.info}} // which SQLite opened too, if it is still there
	for _, open := range []struct {
		path string
		f    *os.File
	}{{path + logSuffix, s.syncer.log}, {filepath.Join(s.dir, lockName), s.lock.folder}} {
		info, err := open.f.Stat()
		if err != nil {
			return err
		}
		s.anchors = append(s.anchors, anchor{path: open.path, file: info})
	}
	return s.anchors.check()
}

// makeDurable syncs the log and makes sure that it will be found again, so that nothing
// is acknowledged which is gone already.
func (s *Store) makeDurable(log *os.File) error {
	if err := s.sync(log); err != nil {
		return fmt.Errorf("sync of the log: %w", err)
	}
	return s.anchors[:dataAnchors].check()
}
