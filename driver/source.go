package driver

import (
	"context"
	"io"
	"math"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/text"
)

// A Source delivers messages under a lease and takes back what became of them.
// All methods are safe for concurrent use. A result slice has one element an item,
// in order; a nil slice means that every item succeeded.
type Source interface {
	// Wait blocks until one of the watched queues has changed since the given
	// version, and returns an event for each that has. A watch with Since 0 returns
	// at once. The engine keeps one call of it a backend and process, whatever the
	// number of queues. It returns ctx.Err() when ctx ends, [redrive.ErrClosed] after Close.
	// A spurious event is allowed, a missed one is not; a backend that must poll
	// documents its bound.
	Wait(ctx context.Context, watches []Watch) ([]Event, error)

	// Claim delivers up to Max messages that are due, oldest due first within the
	// lane, and never waits: nothing due is an empty result. The lease runs from
	// now. Each claim raises the message's token and counts an attempt. A message
	// whose lease ran out is claimable again, as a suspect. A store that finds that a message
	// does not match its [Checksum] returns it with Unfit [redrive.ReasonCorrupt].
	Claim(ctx context.Context, req ClaimRequest) ([]redrive.Delivery, error)

	// Settle carries out settlements, each if and only if its receipt's token is
	// still the message's. It returns after the result is as durable as a publish.
	// An emit that is there already counts as done; one that is refused ([redrive.ErrConflict],
	// [redrive.ErrInvalid]) fails its settlement with that error and changes nothing of that
	// item. A Release with After 0 works on every source.
	// An item fails with [redrive.ErrLeaseLost] (claimed again, or settled before),
	// [redrive.ErrNotFound], [redrive.ErrUnknown] or a fault. After a lease ran out and before
	// anyone has claimed the message again, a settlement still succeeds.
	// Repeating a settlement after ErrUnknown is safe: ErrLeaseLost or ErrNotFound
	// then mean that the first one counted, or that another holds the message.
	Settle(ctx context.Context, s []Settlement) []error

	// Extend makes leases run for another lease from now, without counting an
	// attempt. After the lease ran out it fails with [redrive.ErrLeaseLost], even if nobody
	// has claimed the message yet. Where the lease is the connection's it only checks
	// that the message is still ours.
	Extend(ctx context.Context, r []redrive.Receipt, lease time.Duration) []error

	// Caps tells what the backend can do. It does not change.
	Caps() Caps

	// Probe asks the server what its settings promise.
	Probe(ctx context.Context) []Finding

	// Close releases everything; leases of this process end as if it had died, but
	// nothing becomes a suspect that was settled or released before.
	Close() error
}

// A Store is a Source and a Sink that can be looked into, and that keeps small
// records.
type Store interface {
	Source
	redrive.Sink

	// Apply carries out a batch in one atomic step. The first result has an element
	// for each of Publish, then each of Put (nil: all succeeded, or ErrDuplicate and
	// the like for single items, which do not undo the rest). The error is not nil
	// when nothing was done: [redrive.ErrVersion] on a version conflict of a record, or a
	// fault.
	Apply(ctx context.Context, b Batch) ([]error, error)

	// Get returns the entries of the given names with bodies and histories; an
	// element is nil where there is none.
	Get(ctx context.Context, refs []redrive.Ref) ([]*redrive.Entry, error)

	// Recall returns what is remembered of ids that callers chose; an element is nil
	// where nothing is.
	Recall(ctx context.Context, refs []redrive.Ref) ([]*Remembered, error)

	// Find returns one page of the entries that match, in a stable order.
	Find(ctx context.Context, q redrive.Query) (Page, error)

	// Causes counts the dead letters that match by queue, reason and signature,
	// largest first, at most q.Limit causes. It reports whether that is all. A query by
	// queue, reason and signature only is answered from counters, without a look at the
	// dead letters, and with an After of [CauseCursor] in pages (see [AllCauses]); others
	// look at [redrive.Examined] of them at most.
	Causes(ctx context.Context, q redrive.Query) (causes []Cause, complete bool, err error)

	// Count counts the entries that match. A query of dead letters by queue, reason,
	// signature, and a cutoff (Until) is answered from counters, less what died after
	// the cutoff; others look at [redrive.Examined] entries at most, from the query's After.
	Count(ctx context.Context, q redrive.Query) (Count, error)

	// Deaths returns when messages died of the causes that match by queue, reason and
	// signature, since q.Since, in order of queue, reason and signature; other fields of the query
	// are ignored. An entry that is put dead counts at its DiedAt.
	Deaths(ctx context.Context, q redrive.Query) ([]Deaths, error)

	// Update changes single messages or those that match a query, at most limit of
	// them in one call and one atomic step, in the order of Find and from the query's
	// After, and returns what became of each. With a query the caller repeats until a
	// call changes nothing: what was refused still matches, and is returned again.
	Update(ctx context.Context, sel Selection, c Change, limit int) ([]Updated, error)

	// Counts returns the counts of the named queues, or of all. It is O(1) a queue:
	// due messages are counted up to DueCounted, then Due says so.
	Counts(ctx context.Context, queues ...string) ([]Counts, error)

	// Configure stores what the store itself must know about a queue, for all
	// processes. It applies to what is published afterwards.
	Configure(ctx context.Context, queue string, s QueueSettings) error

	// Now returns the store's clock, by which leases, delays and expiry are decided.
	Now(ctx context.Context) (time.Time, error)

	// Verify compares the ledger and the counters of causes with a scan of what is there, in
	// one snapshot, and messages with their checksums. With no queue named it covers all.
	Verify(ctx context.Context, queues ...string) ([]Audit, error)

	// Trim removes what retention no longer keeps, at most limit items, and returns
	// how many of each kind it removed. It is repeated until it removes nothing. It also adds
	// up the buckets of [Store.Deaths] that became too old for their width.
	Trim(ctx context.Context, r Retention, limit int) (Trimmed, error)

	// Backup writes a consistent copy of the store in its own format.
	Backup(ctx context.Context, w io.Writer) error

	// GetRecord returns a record, or [redrive.ErrNotFound].
	GetRecord(ctx context.Context, space, key string) (Record, error)

	// ListRecords returns the records of a space in order of their keys, from the
	// first key greater than after.
	ListRecords(ctx context.Context, space, after string, limit int) ([]Record, error)
}

// Watch asks for changes of a queue since a version; 0 means any.
type Watch struct {
	Queue string
	Since uint64
}

// Never is the NextDueIn of a queue in which nothing waits.
const Never time.Duration = math.MaxInt64

// Event says that a queue changed.
type Event struct {
	Queue   string
	Version uint64 // for the next Watch
	// NextDueIn is the time until something may be claimed: 0 now, [Never] if
	// nothing waits. A backend that does not know says 0.
	NextDueIn time.Duration
	Lanes     LaneSet // lanes that may have something due now
	Suspects  bool    // something may be claimed in isolation
}

// ClaimRequest asks for messages of one queue and lane.
type ClaimRequest struct {
	Queue       string
	Lane        redrive.Lane
	Kinds       []string      // only these kinds, if any are named
	ExceptKinds []string      // not these kinds
	ExceptIDs   []string      // not these messages
	Max         int           // at most so many; at least 1
	Lease       time.Duration // how long the claim holds; at least 10 ms
	Instance    string        // who claims; unique per process start

	// Dead claims dead letters instead of waiting messages, whatever the lane.
	// Settled Done or Drop they are gone, Repeat they are redriven, Retry after a while
	// they are claimable again, Release and Dead leave them where they are. A source
	// without Caps.Browsable returns none for Dead and Expired, and for Isolated only if
	// it has Caps.RecordsClaims.
	Dead bool
	// Isolated claims suspects instead of unsuspected messages, whatever the lane, in
	// rotating order. The engine asks for one at a time.
	Isolated bool
	// Expired claims only messages whose ExpiresAt has passed, or that were published
	// longer than MaxAge ago if that is not 0, whatever the lane, the due time or
	// the order of keys.
	Expired bool
	MaxAge  time.Duration
}

// Transfer is what makes "dead-letter and acknowledge" safe.
type Transfer uint8

// The transfers.
const (
	TransferNone        Transfer = iota // two steps; parking under a derived id makes it safe
	TransferOneStep                     // one command or script
	TransferTransaction                 // one transaction
)

// Caps is what a Source does natively. What it cannot do, the engine does by
// parking in a Store.
type Caps struct {
	Name          string           // "sqlite", "kafka"
	MaxDelay      time.Duration    // longest delay of Retry and Release with their failure kept, and of Message.Delay; 0: none, [Never]: any
	DeadLetters   bool             // Settle takes Dead
	KeepsHistory  bool             // failures survive Retry and Dead
	Repeats       bool             // Settle takes Repeat
	Emits         bool             // Settle publishes Emit in the same atomic step
	Fenced        bool             // a stale token is refused
	Filters       bool             // Claim filters by Kinds, ExceptKinds and ExceptIDs; else it ignores them
	RecordsClaims bool             // a claim's record survives the process; else the engine keeps it as a record
	KeepsLeases   bool             // a lease outlives the process that claimed: another settles and extends it by its token
	Remembers     bool             // Publish knows ids that callers chose
	Expires       bool             // ExpiresAt is kept
	Ordered       bool             // order by key
	Browsable     bool             // it is a Store
	Texts         bool             // Find, Causes and Count look for the Query.Text of dead letters in an index, as Query.Shown says
	ReadOnly      bool             // nothing can be published to it: it is another program's
	Exclusive     bool             // one process has it open at a time, so what a dead one held is taken over at once
	Identity      redrive.Identity // of most messages; see Delivery.Identity
	Transfer      Transfer
	MaxBatch      int // most items a call; 0: no limit
}

// Most is n, or MaxBatch if that is less.
func (c Caps) Most(n int) int {
	if c.MaxBatch > 0 {
		return min(n, c.MaxBatch)
	}
	return n
}

// Finding is one finding of Probe.
type Finding struct {
	Level   Level
	Setting string // the server's setting, or what was looked at: "appendfsync"
	Value   string // what it is
	Promise string // what that means, in plain words
	Hint    string // what to change, if anything
}

// Level is how serious a finding is.
type Level uint8

// The levels.
const (
	LevelOK      Level = iota + 1
	LevelWarn          // acknowledged messages may be lost in a named case
	LevelRefused       // the store does not start like this
)

var levelNames = []string{"", "ok", "warn", "refused"}

// String returns the level in lower case.
func (l Level) String() string { return text.Enum(levelNames, l) }

// MarshalText implements encoding.TextMarshaler.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Batch is what [Store.Apply] carries out in one step.
type Batch struct {
	Publish []redrive.Message // as by Publish
	// Put holds entries as they are: waiting or dead, with attempts and history. A
	// zero Due means now plus the message's Delay, a zero DiedAt or PublishedAt means
	// now, by the store's clock. A dead one may be what Publish would refuse.
	Put     []redrive.Entry
	Records []RecordWrite // compare-and-set
	Delete  []Range       // results of a session that were acknowledged
	// Entered says how the Put entries came in.
	Entered Entered
	// Restore puts entries back that an export or the archive holds: an id that is remembered
	// only as archived or dropped is free for them.
	Restore bool
	// Relaxed allows the step to be lost with the power, though not with the
	// process: claim records, announcements, and who folds what use it.
	Relaxed bool
}

// Entered is how Put entries came in, for the ledger.
type Entered uint8

// The ways in.
const (
	EnteredParked   Entered = iota // from another source, by the engine
	EnteredImported                // from an export
	EnteredMoved                   // from another queue or store
)

// Range names the waiting messages of one key up to and including an id, in order
// of publication, which is not that of their commits where several processes publish.
// They are counted as done.
type Range struct {
	Queue, Key, UpTo string
	Single           bool // only the message UpTo itself
}

// MaxRecordSize is the largest value of a record, in bytes.
const MaxRecordSize = 64 << 10

// AnyVersion lets a RecordWrite happen whatever the version.
const AnyVersion int64 = -1

// RecordWrite sets or deletes one record.
type RecordWrite struct {
	Space, Key string
	Value      []byte        // nil deletes
	Version    int64         // the version it must have: 0 not there, AnyVersion any
	Expires    time.Duration // from now, by the store's clock; 0: never
}

// Record is a small value that all processes of a store share.
type Record struct {
	Space, Key string
	Value      []byte
	Version    int64     // rises with every write, also across a deletion
	ExpiresAt  time.Time // zero: never; an expired record is not there
}

// QueueSettings is what the store itself must know about a queue.
type QueueSettings struct {
	OrderByKey  bool          // messages of one key are handled one after the other
	DeadRelease bool          // with order by key: a dead head lets its followers go
	Remember    time.Duration // how long ids that callers chose are remembered; 0: 24 h
}

// DefaultRemember is how long ids that callers chose are remembered by default.
const DefaultRemember = 24 * time.Hour

// DueCounted is how far due messages are counted.
const DueCounted = 10_000

// Counts is what a queue holds and what went through it.
type Counts struct {
	Queue    string
	Waiting  [Lanes]int64 // by lane; includes leased and blocked
	Leased   int64
	Blocked  int64
	Suspects int64
	Due      int64 // due now, exact up to DueCounted
	DueMore  bool  // there are more than DueCounted due
	Dead     map[redrive.Reason]int64
	Bytes    int64 // of waiting messages
	Ledger   Ledger

	OldestDue     [Lanes]time.Time // when the oldest due message of each lane became due, suspects apart; zero: none
	OldestSuspect time.Time        // when the oldest due suspect became due; zero: none
	OldestDead    time.Time        // when the oldest dead letter died; zero: none
}

// Oldest returns when the oldest of all due messages became due; zero: none is due.
func (c *Counts) Oldest() time.Time {
	oldest := c.OldestSuspect
	for _, due := range c.OldestDue {
		if oldest.IsZero() || !due.IsZero() && due.Before(oldest) {
			oldest = due
		}
	}
	return oldest
}

// AllWaiting returns the number of waiting messages of all lanes.
func (c *Counts) AllWaiting() (n int64) {
	for _, w := range c.Waiting {
		n += w
	}
	return n
}

// AllDead returns the number of dead letters of all reasons.
func (c *Counts) AllDead() (n int64) {
	for _, d := range c.Dead {
		n += d
	}
	return n
}

// Ledger is the ledger of a queue: what came in and what went out since the store
// was made. Its entries are written in the transaction that moves the messages.
type Ledger struct {
	Published, Parked, Imported, MovedIn, Repeated int64
	Done, Dropped, Archived, MovedOut              int64
}

// Entered is the sum of what came in. A redrive within a queue is neither in nor
// out: the message was counted when it came.
func (b *Ledger) Entered() int64 { return b.Published + b.Parked + b.Imported + b.MovedIn + b.Repeated }

// Left is the sum of what went out.
func (b *Ledger) Left() int64 { return b.Done + b.Dropped + b.Archived + b.MovedOut }

// Audit compares the ledger of a queue with a scan.
type Audit struct {
	Queue         string
	Ledger        Ledger
	Waiting, Dead int64    // as scanned
	Corrupt       int64    // of the dead, those of the reason corrupt that do not match their checksum: they are known, and no problem
	Problems      []string // what does not fit, in plain words; empty: all is well
}

// Imbalance is entered - left - waiting - dead; it must be 0.
func (a *Audit) Imbalance() int64 { return a.Ledger.Entered() - a.Ledger.Left() - a.Waiting - a.Dead }

// Retention says what is no longer kept. The zero value removes only what expired
// by itself: remembered ids and records.
type Retention struct {
	Queue    string        // of one queue; "": all
	DeadAge  time.Duration // dead letters older than this go; 0: none
	DeadKeep int64         // dead letters beyond this number go, oldest first; 0: none
	Archived bool          // what goes was archived before; else it is counted as dropped
}

// Trimmed is what Trim removed.
type Trimmed struct{ Dead, Remembered, Records int64 }
