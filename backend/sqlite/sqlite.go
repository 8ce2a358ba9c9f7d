// Package sqlite is the embedded store: one SQLite file, owned by one process.
//
// Guarantees. Publish, Settle, Apply and Update return after their transaction is
// synced: the writer commits to the write-ahead log, and while one sync of the log is
// under way it prepares the next group (see syncer). A claim is not synced: losing its
// record with the power loses no message, only the memory that it was in flight. Every
// settlement is fenced by a token that is never used again, also across restarts.
// A message, what it emits, its death and the ledger change in one transaction.
//
// Native limits. One process at a time; others get [redrive.ErrInUse]. One writer
// commits for all callers, so throughput grows with their number. Ids and times are
// kept for good, a body is at most [redrive.MaxBodySize].
//
// Caps. Everything: any delay, dead letters, repeats, emits, fences, extensions,
// claim records, order by key, browsing; identity by message, transfer by transaction.
package sqlite

import (
	"context"
	_ "embed" // the schema
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// FileName is the store's file within its folder.
const FileName = "redrive.db"

const logSuffix = "-wal" // of the write-ahead log's name

const (
	schemaVersion  = 4
	applicationID  = 0x52647276 // "Rdrv"
	leastLibrary   = 3051003    // the first with a sound reset of the write-ahead log
	corruptCode    = int32(sqlite3.SQLITE_CORRUPT)
	exitAfterFatal = 70
)

//go:embed schema.sql
var schema string

// Store is the embedded store. It is safe for concurrent use.
type Store struct {
	dir     string
	clock   func() time.Time
	onFatal func(error)
	masks   driver.Masks
	lock    *lock
	w       *conn // the writer's
	syncer  *syncer
	sync    func(*os.File) error // syncData; tests break it
	anchors anchors
	synced  *syncedFile
	full    atomic.Pointer[fullDisk] // nil: messages are taken

	reserveSize atomic.Int64  // 0: there is none here
	every       time.Duration // between two checks of the anchors; tests whose clock runs for years change it
	maxSeries   int64         // of deaths, a queue; tests lower it
	maxTexts    int64         // distinct ones, a queue; tests lower it

	acceptLoss bool
	loss       error // that was accepted
	lacks      int64 // messages
	readers    chan *conn

	lineMu  sync.Mutex
	lines   [lines][]operation
	stopped error // no operation is taken any more

	work       chan struct{}
	quit       chan struct{}
	writerDone chan struct{}
	closeOnce  sync.Once

	lastNow atomic.Int64
	broken  atomic.Pointer[error] // the store has failed for good
	ending  sync.Once             // calls onFatal

	// Of the writer only.
	lastSeq   int64
	lastToken uint64
	upkeep    upkeep
	reserve   reserve
	lastWrite int64     // when the last group ended
	anchored  time.Time // when the anchors were last checked

	positioned time.Time // when the position in the log was last taken

	leaseMu  sync.RWMutex // guards leases; only the writer changes them
	leases   leases
	leaseEnd atomic.Int64 // when the first lease runs out

	mu      sync.Mutex // guards what follows and the shared part of queues
	queues  map[string]*queue
	byID    map[int64]*queue
	waiters map[*waiter]struct{}
	watches watchCache
}

var _ driver.Store = (*Store)(nil)

// Option changes how a store is opened.
type Option func(*Store)

// WithClock makes the store take the time from f. It is for tests: leases then run
// out when the store next looks at the clock.
func WithClock(f func() time.Time) Option { return func(s *Store) { s.clock = f } }

// OnFatal is called when a write could not be synced, when the folder or one of its
// files was deleted, moved or replaced, or when the writer failed in a way that leaves
// open what is on disk: the file must not be written again by this process. Without it, the store logs the error and ends the process with status
// 70. If f returns, every later call fails with the error.
func OnFatal(f func(error)) Option { return func(s *Store) { s.onFatal = f } }

// AcceptLoss opens a store whose log lacks what was synced to it, which Open refuses
// otherwise. What is missing is logged, and stands in [Store.Loss].
func AcceptLoss() Option { return func(s *Store) { s.acceptLoss = true } }

// Loss returns what was missing when the store was opened with [AcceptLoss], nil if nothing
// was, and how many messages the ledger lacks at least.
func (s *Store) Loss() (messages int64, what error) { return s.lacks, s.loss }

// Open opens the store in a folder, making both if they are not there. It fails
// with [redrive.ErrInUse] while another process has it, and with
// [redrive.ErrCorrupt] if the file is not a sound store, or its log lacks what was synced.
func Open(dir string, opts ...Option) (*Store, error) {
	s := &Store{
		dir: dir, clock: time.Now, sync: syncData, every: anchorEvery, maxSeries: driver.MaxDeathSeries, maxTexts: driver.MaxTexts, leases: newLeases(),
		queues: make(map[string]*queue), byID: make(map[int64]*queue), waiters: make(map[*waiter]struct{}),
		work: make(chan struct{}, 1), quit: make(chan struct{}), writerDone: make(chan struct{}),
		onFatal: func(err error) {
			slog.Error("store is not writable: exiting", "dir", dir, "error", err)
			os.Exit(exitAfterFatal) //nolint:forbidigo // nobody may write the file again before it was recovered
		},
	}
	for _, o := range opts {
		o(s)
	}
	if err := s.open(); err != nil {
		s.release()
		if (errors.Is(err, redrive.ErrFull) || errors.Is(err, syscall.ENOSPC)) && os.Remove(filepath.Join(dir, reserveName)) == nil {
			return Open(dir, opts...) // with what the reserve left
		}
		return nil, openError(dir, err)
	}
	s.showLeaseEnd()
	go s.syncer.run(s.nudge, func(err error) error {
		s.fatal(err)
		return s.failed()
	})
	go s.writeLoop()
	return s, nil
}

func openError(dir string, err error) error {
	var known *redrive.Error
	if errors.As(err, &known) {
		return err
	}
	e := &redrive.Error{Op: "open", Err: fmt.Errorf("store %s: %w", dir, err)}
	switch {
	case errors.Is(err, redrive.ErrCorrupt):
		e.Hint = corruptHint
	case errors.Is(err, redrive.ErrFull):
		e.Hint = "free some room on the store's disk"
	}
	return e
}

const corruptHint = "run `redrive store check` to see what is damaged, and `redrive store salvage` to copy what can be read"

func (s *Store) open() error {
	if err := makeDir(s.dir); err != nil {
		return err
	}
	var err error
	if s.dir, err = filepath.Abs(s.dir); err != nil { // the process may change its working folder
		return err
	}
	if s.lock, err = lockStore(s.dir, true); err != nil {
		return err
	}
	makePrivate(s.dir)
	if s.synced, err = openSynced(s.dir, true); err != nil {
		return err
	}
	missing, err := checkLog(s.dir, s.synced.last)
	if err != nil {
		return err
	}
	path := filepath.Join(s.dir, FileName)
	if s.w, err = openConn(path, false); err != nil {
		return err
	}
	s.w.keepLog(true) // until an orderly end
	if err := s.refuseCut(missing); err != nil {
		return err
	}
	if v := sqlite3.Xsqlite3_libversion_number(s.w.tls); v < leastLibrary {
		return fmt.Errorf("SQLite %d is older than %d, which is the first that does not damage its log", v, leastLibrary)
	}
	if err := s.migrate(); err != nil {
		return err
	}
	// The writer decides itself when the log is moved into the file.
	if err := s.w.exec(`PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0; PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 67108864`); err != nil {
		return err
	}
	if err := s.recover(); err != nil {
		return err
	}
	// From now on the syncer makes commits durable.
	if err := s.w.exec("PRAGMA synchronous = NORMAL"); err != nil {
		return err
	}
	log, err := os.OpenFile(path+logSuffix, os.O_RDWR, 0) //nolint:gosec // the log of our own file
	if err != nil {
		return err
	}
	s.syncer = newSyncer(log, s.makeDurable, s.synced.note)
	if err := s.findAnchors(); err != nil {
		return err
	}
	if err := syncDir(s.dir); err != nil {
		return err
	}
	if p, ok := s.position(); ok { // synced by the commit of recover
		s.synced.note(p)
	}
	s.reserve = makeReserve(s.dir)
	s.reserveSize.Store(s.reserve.size)
	s.checkReserve()
	s.readers = make(chan *conn, readConns)
	for range readConns {
		s.readers <- nil // opened when it is first needed
	}
	return nil
}

// Close ends the store: what is being written is finished, later calls fail with
// [redrive.ErrClosed]. Leases that are still held end as if the process had died.
func (s *Store) Close() error {
	s.shut(func() {
		s.lineMu.Lock()
		if s.stopped == nil {
			s.stopped = redrive.ErrClosed
		}
		s.lineMu.Unlock()
	})
	return nil
}

// shut stops the writer and releases everything, once.
func (s *Store) shut(stop func()) {
	s.closeOnce.Do(func() {
		stop()
		close(s.quit)
		<-s.writerDone
		s.syncer.stop()
		s.endRest()
		s.wakeWaiters()
		s.release()
	})
	<-s.writerDone
}

// endRest answers what came in after the writer's last look.
func (s *Store) endRest() {
	s.lineMu.Lock()
	var rest []operation
	for line := range s.lines {
		rest = append(rest, s.lines[line]...)
		s.lines[line] = nil
	}
	err := s.stopped
	s.lineMu.Unlock()
	endAll(rest, err)
}

// release closes connections and the lock.
func (s *Store) release() {
	if s.readers != nil {
		for range readConns {
			if c := <-s.readers; c != nil {
				c.close()
			}
		}
		close(s.readers)
	}
	if s.syncer != nil {
		if s.readers != nil && s.failed() == nil { // else the file must not be written again
			s.endLog()
		}
		_ = s.syncer.log.Close()
	}
	if s.w != nil {
		s.w.close()
	}
	if s.synced != nil {
		s.synced.close()
	}
	if s.lock != nil {
		s.lock.unlock()
	}
}

// endLog moves the log into the file, so that it can go. What cannot be moved, as another program
// reads, stays, with its exact end.
func (s *Store) endLog() {
	if s.moveLog(sqlite3.SQLITE_CHECKPOINT_PASSIVE) {
		s.w.keepLog(false)
		return
	}
	if p, ok := s.position(); ok && s.failed() == nil && s.sync(s.syncer.log) == nil {
		s.synced.note(p)
	}
}

// Caps implements driver.Source.
func (s *Store) Caps() driver.Caps {
	return driver.Caps{
		Name: "sqlite", MaxDelay: driver.Never, DeadLetters: true, KeepsHistory: true, Repeats: true, Emits: true,
		Fenced: true, Filters: true, RecordsClaims: true, Remembers: true, Expires: true, Ordered: true, Browsable: true, Texts: true, Exclusive: true,
		Identity: redrive.IdentityMessage, Transfer: driver.TransferTransaction,
	}
}

// now is the store's clock. It never goes back within the process.
func (s *Store) now() int64 {
	now := s.clock().UnixNano()
	for {
		last := s.lastNow.Load()
		if now <= last {
			return last
		}
		if s.lastNow.CompareAndSwap(last, now) {
			return now
		}
	}
}

// Now implements driver.Store.
func (s *Store) Now(context.Context) (time.Time, error) {
	if err := s.closed(); err != nil {
		return time.Time{}, err
	}
	return timeOf(s.now()), nil
}

func (s *Store) closed() error {
	s.lineMu.Lock()
	defer s.lineMu.Unlock()
	return s.stopped
}

// failed returns why the store has failed for good, or nil.
func (s *Store) failed() error {
	if p := s.broken.Load(); p != nil {
		return *p
	}
	return nil
}

// fail makes every later call end with err.
func (s *Store) fail(err error) {
	s.broken.CompareAndSwap(nil, &err) // which nobody writes any more
	first := s.failed()
	s.lineMu.Lock()
	if s.stopped == nil {
		s.stopped = first
	}
	s.lineMu.Unlock()
	s.wakeWaiters()
}

// fatal ends the store after an error that leaves open what is on disk, or where.
func (s *Store) fatal(err error) {
	var known *redrive.Error
	if !errors.As(err, &known) {
		err = &redrive.Error{Op: "write", Err: err, Hint: "the process must start anew; nothing that was acknowledged depends on what failed"}
	}
	s.fail(err)
	s.ending.Do(func() { s.onFatal(s.failed()) }) // the writer and the syncer may find the same
}

// corrupt ends the store after a page that cannot be read.
func (s *Store) corrupt(err error) error {
	s.fail(&redrive.Error{Op: "read", Err: err, Hint: corruptHint})
	return s.failed()
}

// newTokens returns the first of n new tokens.
func (s *Store) newTokens(n int) uint64 {
	first := s.lastToken + 1
	s.lastToken += uint64(n) //nolint:gosec // not negative
	return first
}

// queueNamed returns a queue of the store, or nil.
func (s *Store) queueNamed(name string) *queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queues[name]
}

// addQueue returns the queue of a name, which need not be in the file yet.
func (s *Store) addQueue(name string) *queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[name]; q != nil {
		return q
	}
	return s.newQueue(name)
}

// newQueue makes a queue that is not in the file. mu is held.
func (s *Store) newQueue(name string) *queue {
	q := &queue{name: name, version: 1, settings: driver.QueueSettings{Remember: driver.DefaultRemember}}
	for class := range q.state.next {
		q.state.next[class] = dueNever
	}
	q.shared = q.state
	q.leaseEnd.Store(dueNever)
	s.queues[name] = q
	return q
}

// showLeaseEnd tells others than the writer when the first lease runs out.
func (s *Store) showLeaseEnd() {
	end := dueNever
	if len(s.leases.ends) > 0 {
		end = s.leases.ends[0].until
	}
	s.leaseEnd.Store(end)
}
