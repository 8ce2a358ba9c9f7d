// Package memory is a Store within the process, for tests and for measuring the
// engine. Nothing survives the process.
//
// Guarantees: settles are fenced by token; dead-lettering, emits, Apply and Update
// are one step; order by key, remembered ids, records and the ledger are kept as in every
// backend. Leases, delays and expiry follow one clock, time.Now by default, so that
// the store works inside a testing/synctest bubble if it was made there.
//
// Limits: everything is held in memory and nothing is bounded. Times beyond the year
// 2262 are taken as that year. Bodies, headers and failures are shared with callers,
// not copied: who publishes gives them away, who reads them does not change them.
package memory

import (
	"cmp"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

var _ driver.Store = (*Store)(nil)

// Store is a driver.Store in memory. It has no goroutine of its own. All methods
// are safe for concurrent use.
type Store struct {
	clock func() time.Time
	masks driver.Masks

	// step is held shared by what touches one queue, under that queue's own lock, and
	// exclusively by what must see or change several of them in one step.
	step   sync.RWMutex
	ended  bool
	closed chan struct{}

	queuesMu sync.RWMutex
	queues   map[string]*queue

	waitersMu sync.Mutex
	waiters   []chan struct{}
	waiting   atomic.Int32

	recordsMu     sync.Mutex
	spaces        map[string]*space
	recordVersion int64
}

// Option configures a Store.
type Option func(*Store)

// WithClock makes the store follow another clock than time.Now. It must be safe for
// concurrent use.
func WithClock(now func() time.Time) Option { return func(s *Store) { s.clock = now } }

// New returns an empty store.
func New(opts ...Option) *Store {
	s := &Store{
		clock:  time.Now,
		closed: make(chan struct{}),
		queues: make(map[string]*queue),
		spaces: make(map[string]*space),
	}
	for _, o := range opts {
		o(s)
	}
	return s
}

// Caps implements driver.Source.
func (s *Store) Caps() driver.Caps {
	return driver.Caps{
		Name: "memory", MaxDelay: driver.Never,
		DeadLetters: true, KeepsHistory: true, Repeats: true, Emits: true, Fenced: true, Filters: true,
		RecordsClaims: true, Remembers: true, Expires: true, Ordered: true, Browsable: true, Exclusive: true,
		Identity: redrive.IdentityMessage, Transfer: driver.TransferTransaction,
	}
}

// Probe implements driver.Source.
func (s *Store) Probe(context.Context) []driver.Finding {
	return []driver.Finding{{
		Level: driver.LevelWarn, Setting: "durability", Value: "none",
		Promise: "everything is gone when the process ends",
		Hint:    "use it for tests only",
	}}
}

// Now implements driver.Store.
func (s *Store) Now(ctx context.Context) (time.Time, error) {
	if err := s.enter(ctx); err != nil {
		return time.Time{}, err
	}
	defer s.step.RUnlock()
	return s.clock(), nil
}

// Configure implements driver.Store.
func (s *Store) Configure(ctx context.Context, name string, settings driver.QueueSettings) error {
	if err := driver.CheckQueue(name); err != nil {
		return &redrive.Error{Op: "configure", Err: err}
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.step.RUnlock()
	q := s.queue(name)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.known, q.settings = true, settings
	return nil
}

// Settings implements driver.SettingsStore.
func (s *Store) Settings(ctx context.Context, name string) (settings driver.QueueSettings, err error) {
	if err := s.enter(ctx); err != nil {
		return settings, err
	}
	defer s.step.RUnlock()
	if q := s.lookup(name); q != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		settings = q.settings
	}
	settings.Remember = cmp.Or(settings.Remember, driver.DefaultRemember)
	return settings, nil
}

// Crash ends all leases of an instance as the death of its process would: what it
// had claimed in isolation counts a crash, everything it held becomes a suspect, attempts
// stay counted.
func (s *Store) Crash(instance string) {
	s.step.Lock()
	defer s.step.Unlock()
	now := s.now()
	for _, q := range s.queues {
		q.crash(func(it *item) bool { return it.instance == instance }, now)
	}
}

// Close implements driver.Source. It ends every Wait; all later calls fail with
// redrive.ErrClosed.
func (s *Store) Close() error {
	s.step.Lock()
	defer s.step.Unlock()
	if !s.ended {
		s.ended = true
		close(s.closed)
	}
	return nil
}

// enter takes the step lock shared, unless the store is closed or ctx has ended.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.step.RLock()
	if s.ended {
		s.step.RUnlock()
		return redrive.ErrClosed
	}
	return nil
}

// enterExclusively takes the step lock exclusively, unless the store is closed or ctx has
// ended.
func (s *Store) enterExclusively(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.step.Lock()
	if s.ended {
		s.step.Unlock()
		return redrive.ErrClosed
	}
	return nil
}

// lookup returns a queue, or nil if nothing ever named it.
func (s *Store) lookup(name string) *queue {
	s.queuesMu.RLock()
	defer s.queuesMu.RUnlock()
	return s.queues[name]
}

// queue returns a queue and makes it if need be.
func (s *Store) queue(name string) *queue {
	if q := s.lookup(name); q != nil {
		return q
	}
	s.queuesMu.Lock()
	defer s.queuesMu.Unlock()
	q, ok := s.queues[name]
	if !ok {
		q = newQueue(s, name)
		s.queues[name] = q
	}
	return q
}

// never is the due time of what is never due.
const never int64 = math.MaxInt64

func (s *Store) now() int64 { return nanos(s.clock()) }

// nanos is a time as nanoseconds since 1970, kept within what they can express.
func nanos(t time.Time) int64 {
	switch y := t.Year(); {
	case y > 2261:
		return never
	case y < 1678:
		return 0
	}
	return t.UnixNano()
}

// later is now plus d, without overflow.
func later(now int64, d time.Duration) int64 {
	if int64(d) > never-now {
		return never
	}
	return now + int64(d)
}

// moment is the reverse of nanos; 0 is the zero time.
func moment(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// result sets the i-th of n results, in a slice that is only made for an error.
func result(errs []error, i, n int, err error) []error {
	if err == nil {
		return errs
	}
	if errs == nil {
		errs = make([]error, n)
	}
	errs[i] = err
	return errs
}

// failAll is the result of n items that failed for one reason.
func failAll(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}
