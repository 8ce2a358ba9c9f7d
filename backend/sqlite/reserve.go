package sqlite

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// On a full disk the log cannot be moved into the database, which must grow by what is new in
// the log, and so cannot be begun anew: nothing at all could be written. A file that takes room for
// nothing is removed then; what it leaves is kept for all that does not store messages.
const reserveName = "redrive.reserve"

// The reserve holds the log of 16 MiB with the last group of 8 MiB, and what the trees of
// the database need beside it. On a small disk it is an eighth of that, and the log is moved
// sooner.
const (
	reserveSize  = 32 << 20
	reservePart  = 8
	reserveSlack = 8 // it is made again when an eighth more than it is free
)

// errNoReserve: the file system gives no room in advance.
var errNoReserve = errors.New("the file system cannot keep room for a file")

// reserve is the file. It is the writer's.
type reserve struct {
	path string
	size int64 // 0: there is none here
	held bool
	form string // of a file system that copies what it writes
}

// makeReserve makes the reserve of a folder, as far as there is room.
func makeReserve(dir string) reserve {
	r := reserve{path: filepath.Join(dir, reserveName)}
	total, _, form, err := room(dir)
	if err != nil {
		return r
	}
	r.form = form
	r.size = min(reserveSize, total/reservePart) &^ (pageSize - 1)
	if info, err := os.Stat(r.path); err == nil && info.Size() == r.size {
		r.held = true
		return r
	}
	r.make()
	return r
}

// make makes the reserve if there is room for it and a little more.
func (r *reserve) make() {
	_, free, _, err := room(filepath.Dir(r.path))
	if err != nil || free < r.size+r.size/reserveSlack {
		return
	}
	switch err := allocate(r.path, r.size); {
	case err == nil:
		r.held = true
	case errors.Is(err, errNoReserve):
		r.size = 0
	}
	if !r.held {
		_ = os.Remove(r.path)
	}
}

// give makes room, and reports whether there was any to give.
func (r *reserve) give() bool {
	if !r.held {
		return false
	}
	r.held = false
	return os.Remove(r.path) == nil
}

// spent reports that what room there is must be kept.
func (r *reserve) spent() bool { return r.size > 0 && !r.held }

// Full returns why the store takes no messages: its disk is full, or was and has too little
// room for the reserve. It is nil otherwise. What waits is still delivered.
func (s *Store) Full() error {
	if f := s.full.Load(); f != nil {
		return f.err
	}
	return nil
}

// FullSince returns since when Full is not nil; zero: it is nil.
func (s *Store) FullSince() time.Time {
	if f := s.full.Load(); f != nil {
		return f.since
	}
	return time.Time{}
}

// fullDisk is why no messages are taken.
type fullDisk struct {
	err   error
	since time.Time
}

// setFull notes that the disk is full, and gives the reserve up.
func (s *Store) setFull(err error) (gave bool) {
	gave = s.reserve.give()
	full := &fullDisk{since: time.Now(), err: &redrive.Error{Op: "write", Err: fmt.Errorf("%w: %w", redrive.ErrFull, err), Hint: "free some room on the store's disk; the store goes on by itself"}}
	before := s.full.Load() // only the writer sets it
	if before != nil {
		full.since = before.since
	}
	if s.full.Store(full); before == nil {
		slog.Error("the store's disk is full: messages are refused until there is room", "dir", s.dir, "reserve", s.reserve.size, "error", err)
	}
	return gave
}

// setRoom notes that there is room.
func (s *Store) setRoom() {
	if s.full.Swap(nil) != nil {
		slog.Info("the store's disk has room again", "dir", s.dir)
	}
}

// checkReserve makes the reserve again once there is room, after which messages are taken.
func (s *Store) checkReserve() {
	if !s.reserve.spent() {
		return
	}
	if s.reserve.make(); s.reserve.held {
		s.setRoom()
	} else if s.Full() == nil {
		s.setFull(fmt.Errorf("there is less room than the reserve of %d KiB", s.reserve.size>>10))
	}
}

// refuseGrowth refuses what stores messages, and returns the rest of a group.
func refuseGrowth(group []operation, full error) []operation {
	return slices.DeleteFunc(group, func(o operation) bool {
		if o.base().grows {
			o.end(full)
			close(o.base().done)
			return true
		}
		return false
	})
}

// attemptFull carries out a group on a full disk: what frees room goes on without what needs
// it, with what the reserve leaves. The log is moved first, so that it need not grow.
func (s *Store) attemptFull(group []operation, err error) ([]operation, error) {
	s.setFull(err)
	s.moveLog(sqlite3.SQLITE_CHECKPOINT_PASSIVE)
	if err := s.failed(); err != nil {
		return group, err
	}
	group = refuseGrowth(group, s.Full())
	return group, s.attempt(group, false)
}

// movePages is how far the log grows before it is moved: what is new in it must fit into
// the reserve.
func (s *Store) movePages() int64 {
	if s.reserve.size == 0 {
		return logPages
	}
	return min(logPages, s.reserve.size/pageSize/2)
}

// probeReserve says what a full disk does.
func (s *Store) probeReserve() driver.Finding {
	f := driver.Finding{Level: driver.LevelOK, Setting: "full disk", Value: fmt.Sprintf("a reserve of %d KiB", s.reserveSize.Load()>>10),
		Promise: "publishes are refused, and what waits is delivered"}
	switch full := s.Full(); {
	case full != nil:
		f.Level, f.Value, f.Promise, f.Hint = driver.LevelWarn, "the disk is full", full.Error(), "free some room; the store goes on by itself"
	case s.reserveSize.Load() == 0:
		f.Level, f.Value = driver.LevelWarn, "no reserve"
		f.Promise = "the file system gives no room in advance: nothing may work until there is room again"
	case s.reserve.form != "":
		f.Level = driver.LevelWarn
		f.Promise = "on " + s.reserve.form + ", which copies what it writes, and where others share the room, the reserve may not be enough: nothing may work until there is room again"
		f.Hint = "watch the room on the store's disk"
	}
	return f
}
