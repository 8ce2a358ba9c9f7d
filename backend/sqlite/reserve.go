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

// Room returns how many bytes the store's disk has left, beside the reserve, and its size. It
// returns an error where the system does not say.
func (s *Store) Room() (free, size int64, err error) {
	size, free, _, err = room(s.dir)
	return free, size, err
}

// fullDisk is why no messages are taken.
type fullDisk struct {
	err   error
	since time.Time
}

// setFull notes that the disk is full. The reserve stays: another program may be filling the disk
// just now, and would take what is given up before it is needed.
func (s *Store) setFull(err error) {
	full := &fullDisk{since: time.Now(), err: &redrive.Error{Op: "write", Err: fmt.Errorf("%w: %w", redrive.ErrFull, err), Hint: "free some room on the store's disk; the store goes on by itself"}}
	before := s.full.Load() // only the writer sets it
	if before != nil {
		full.since = before.since
	}
	if s.full.Store(full); before == nil {
		slog.Error("the store's disk is full: messages are refused until there is room", "dir", s.dir, "reserve", s.reserve.size, "error", err)
	}
}

// setRoom notes that there is room.
func (s *Store) setRoom() {
	if s.full.Swap(nil) != nil {
		slog.Info("the store's disk has room again", "dir", s.dir)
	}
}

// checkReserve takes messages again once the log can be moved, the reserve can be made, and there is
// room beside it.
func (s *Store) checkReserve() {
	if s.reserve.size == 0 || s.Full() == nil && !s.reserve.spent() {
		return
	}
	if s.upkeep.noRoom && !s.moveLog(sqlite3.SQLITE_CHECKPOINT_PASSIVE) && s.upkeep.noRoom {
		return
	}
	if s.reserve.spent() {
		s.reserve.make()
	} else if _, free, _, err := room(s.dir); err != nil || free < s.reserve.size/reserveSlack {
		return
	}
	if s.reserve.held {
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
// it. If that has no room either, the reserve is given up for it, and the log is moved first, so that
// it need not grow.
func (s *Store) attemptFull(group []operation, err error) ([]operation, error) {
	s.setFull(err)
	group = refuseGrowth(group, s.Full())
	if err = s.attempt(group, false); !isFull(err) {
		return group, err
	}
	s.reserve.give()
	s.moveLog(sqlite3.SQLITE_CHECKPOINT_PASSIVE)
	if err := s.failed(); err != nil {
		return group, err
	}
	return group, s.attempt(group, false)
}

// makeRoom gives the reserve of a folder up for a start on a disk that has less than half as much.
func makeRoom(dir string) {
	path := filepath.Join(dir, reserveName)
	info, err := os.Stat(path)
	if err != nil {
		return
	}
	if _, free, _, err := room(dir); err == nil && free < info.Size()/2 {
		_ = os.Remove(path)
	}
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
