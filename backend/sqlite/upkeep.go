package sqlite

import (
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// upkeep is what the writer does beside its groups: it moves the log into the
// file, and gives free pages back to the file system.
type upkeep struct {
	movedAt int64 // pages written when the log was last moved
	tidied  bool  // there is nothing to do until the next write
	noRoom  bool  // the log could not be moved, as the file cannot grow
	checked int64 // when free pages were last looked at
}

const (
	logPages    = 4096 // 16 MiB: the log is moved when it has grown by so much
	vacuumPages = 256  // given back in one slice
	idleFor     = 200 * time.Millisecond
	freeLeast   = 256 // free pages that are not worth the trouble
)

// maintain runs after each group.
func (s *Store) maintain() {
	u := &s.upkeep
	u.tidied = false
	s.lastWrite = s.now()
	if pages := s.w.pagesWritten(); pages-u.movedAt >= s.movePages() || pages < u.movedAt {
		s.moveLog(sqlite3.SQLITE_CHECKPOINT_PASSIVE)
	}
	if now := s.now(); now-u.checked >= int64(time.Second) {
		u.checked = now
		s.shrink()
	}
}

// moveLog moves the log into the file, and reports whether all of it was moved.
func (s *Store) moveLog(mode int32) bool {
	if s.failed() != nil {
		return false
	}
	log, moved, err := s.w.checkpoint(sqlite3.SQLITE_CHECKPOINT_PASSIVE)
	if s.upkeep.noRoom = isFull(err); s.upkeep.noRoom {
		s.setFull(err)
	}
	switch {
	case err == nil:
		if log == moved {
			s.upkeep.movedAt = s.w.pagesWritten()
			s.synced.moved() // before the log is cut or begun anew
			return mode == sqlite3.SQLITE_CHECKPOINT_PASSIVE || s.cutLog(mode)
		}
		// A reader is in the way: try again soon.
		s.upkeep.movedAt = s.w.pagesWritten() - s.movePages()*3/4
	case isFatal(err):
		s.fatal(err)
	case isCorrupt(err):
		_ = s.corrupt(err)
	}
	return false
}

// cutLog cuts the log, all of which is in the file, unless a reader is in the way.
func (s *Store) cutLog(mode int32) bool {
	log, moved, err := s.w.checkpoint(mode)
	if isFatal(err) {
		s.fatal(err)
	}
	return err == nil && log == moved
}

// shrink gives a slice of the free pages back, and reports whether there are more.
func (s *Store) shrink() bool {
	if s.failed() != nil {
		return false
	}
	free, err := s.w.value("PRAGMA freelist_count")
	if err != nil || free < freeLeast {
		return false
	}
	if err := s.w.exec("PRAGMA incremental_vacuum(256)"); err != nil {
		if isFatal(err) {
			s.fatal(err)
		}
		return false
	}
	return free >= freeLeast+vacuumPages
}

// idle is called when there is nothing to write. It returns how long the writer may
// sleep.
func (s *Store) idle() time.Duration {
	wait := time.Hour
	if s.failed() != nil {
		return wait
	}
	if len(s.leases.ends) > 0 {
		wait = min(wait, max(time.Duration(s.leases.ends[0].until-s.now()), time.Millisecond))
	}
	u := &s.upkeep
	if u.tidied {
		return wait
	}
	if s.now()-s.lastWrite < int64(idleFor) {
		return min(wait, idleFor)
	}
	if s.shrink() {
		return 0
	}
	if !s.moveLog(sqlite3.SQLITE_CHECKPOINT_TRUNCATE) && s.failed() == nil {
		return min(wait, time.Second)
	}
	u.tidied = true
	return wait
}
