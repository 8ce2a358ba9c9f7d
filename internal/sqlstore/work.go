package sqlstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Rows are the statements of a store's transaction.
type Rows interface {
	// ReadClock reads the server's clock.
	ReadClock(ctx context.Context) (time.Time, error)
	// ReadSettings reads what is known of queues into the map.
	ReadSettings(ctx context.Context, queues []string, into map[string]driver.QueueSettings) error
	// LockKeys locks the keys that messages stand in line in. It comes before anything
	// else, so that what is read afterwards is what the last holder left.
	LockKeys(ctx context.Context, refs []redrive.Ref) error
	// LockRows locks and reads the messages that are there, first the waiting ones, then the
	// dead ones.
	LockRows(ctx context.Context, refs []redrive.Ref, found func(*Message)) error
	// EnterKey gives a message the next turn of its key.
	EnterKey(ctx context.Context, m *Message) error
	// Reserve remembers an item's id, or has its result say why not.
	Reserve(ctx context.Context, it *Item) error
	// ForgetRemoved forgets an id whose message was archived or dropped.
	ForgetRemoved(ctx context.Context, m *Message) error
	// Fit makes of the names of a foreign message what the columns hold.
	Fit(m *Message)
	// Number gives a message a seq, if its row has to come with one.
	Number(ctx context.Context, m *Message) error
	// Relax lets the commit be lost in a crash, if the server can.
	Relax(ctx context.Context) error
	// WriteRecord carries out the write of a record, or fails with ErrVersion.
	WriteRecord(ctx context.Context, write *driver.RecordWrite) error
	// Publish stores items, and gives those that are refused their results.
	Publish(ctx context.Context, items []*Item) error
	// Range returns the waiting messages of a range.
	Range(ctx context.Context, g *driver.Range) ([]redrive.Ref, error)
	// Nonce returns the nonce in a receipt's position.
	Nonce(position string) int64
	// LockLines is LockKeys for settlements, whose positions may name their keys.
	LockLines(ctx context.Context, items []driver.Settlement, which []int) error
	// SettleLive settles waiting messages, and returns those whose claim did not hold.
	SettleLive(ctx context.Context, items []driver.Settlement, which []int) (lost []int, err error)
	// TrimExpired removes remembered ids and records that expired, and what Once remembers for
	// longer than inbox.
	TrimExpired(ctx context.Context, all *driver.Trimmed, limit int64, inbox time.Duration) error
	// Trimmable names dead letters that are too old or too many; none that is leased.
	Trimmable(ctx context.Context, queue string, age time.Duration, limit, excess int64) ([]redrive.Ref, error)
	// ReadQueueNames returns the names of all queues.
	ReadQueueNames(ctx context.Context) ([]string, error)
	// DrainCauses removes at most so many rows of differences, and returns what they add to
	// each cause and bucket.
	DrainCauses(ctx context.Context, limit int) (counts []CauseCount, rows int, err error)
	// Series returns which causes have a series of their own, and how many have one in their
	// queues.
	Series(ctx context.Context, causes []Cause) (has map[Cause]bool, number map[string]int, err error)
	// AddCauses and AddBuckets add to counters, in their order.
	AddCauses(ctx context.Context, counts []CauseCount) error
	AddBuckets(ctx context.Context, counts []CauseCount) error
	// DrainBuckets removes at most so many buckets of a width that begin until then, and
	// returns them.
	DrainBuckets(ctx context.Context, width time.Duration, until time.Time, limit int) ([]CauseCount, error)
	// TrimCauses ends series without buckets, and removes causes without either.
	TrimCauses(ctx context.Context) error
	// Audit has the auditor take in the ledger and rows of its queue.
	Audit(ctx context.Context, a *Auditor) error
	// Flush writes what the work has collected.
	Flush(ctx context.Context) error
}

// Work is what one transaction changes: whole messages are read under locks, changed
// here, and written back together.
type Work struct {
	Rows  Rows
	Masks *driver.Masks
	Texts *Texts // nil: the store has no index of texts

	Clock    time.Time
	Settings map[string]driver.QueueSettings

	Gone         []Gone // waiting messages that go
	GoneDead     []redrive.Ref
	Insert, Bury []*Message
	Memories     []Memory
	Results      []*Item
	Leavers      []Leaving
	Heads        []LineKey // keys whose heads may have to be freed
	Ledger       map[string]*Ledger
	Causes       map[CauseBucket]CauseCount
}

// Gone is a waiting message that goes.
type Gone struct {
	redrive.Ref
	Seq int64
}

// LineKey is a key of a queue with order.
type LineKey struct{ Queue, Key string }

// Compare orders keys as they are locked.
func (k LineKey) Compare(o LineKey) int {
	if c := strings.Compare(k.Queue, o.Queue); c != 0 {
		return c
	}
	return strings.Compare(k.Key, o.Key)
}

// Leaving is a message that leaves the order of its key.
type Leaving struct {
	LineKey
	ID   string
	Back bool // to line up again at the end
}

// Memory is what is noted about a remembered id.
type Memory struct {
	redrive.Ref
	Fate
}

// Fate is what became of a message.
type Fate struct {
	Outcome redrive.Outcome
	Reason  redrive.Reason
	Ended   bool
}

// Now is the server's clock, the same for all of the work.
func (w *Work) Now(ctx context.Context) (time.Time, error) {
	if !w.Clock.IsZero() {
		return w.Clock, nil
	}
	var err error
	w.Clock, err = w.Rows.ReadClock(ctx)
	return w.Clock, err
}

// lockPasses is how often what was not found is looked for: a message may move from one
// table to the other while we wait for its row in the first.
const lockPasses = 3

// Lock reads messages for a change, wherever they are.
func (w *Work) Lock(ctx context.Context, refs []redrive.Ref) (map[redrive.Ref]*Message, error) {
	found := make(map[redrive.Ref]*Message, len(refs))
	for pass := 0; pass < lockPasses && len(refs) > 0; pass++ {
		if err := w.Rows.LockRows(ctx, refs, func(m *Message) { found[m.Ref()] = m }); err != nil {
			return nil, err
		}
		refs = slices.DeleteFunc(slices.Clone(refs), func(r redrive.Ref) bool { return found[r] != nil })
	}
	return found, nil
}

// Know reads the settings of queues.
func (w *Work) Know(ctx context.Context, queues ...string) error {
	if w.Settings == nil {
		w.Settings = make(map[string]driver.QueueSettings)
	}
	var missing []string
	for _, q := range queues {
		if _, ok := w.Settings[q]; !ok {
			w.Settings[q] = driver.QueueSettings{Remember: driver.DefaultRemember}
			missing = append(missing, q)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return w.Rows.ReadSettings(ctx, missing, w.Settings)
}

// EnterLine gives a message a place at the end of its key, where there is order.
func (w *Work) EnterLine(ctx context.Context, m *Message) error {
	m.Turn = 0
	if m.Key == "" || !w.Settings[m.Queue].OrderByKey {
		return nil
	}
	return w.Rows.EnterKey(ctx, m)
}

// reserve remembers an id for a message. It fails with ErrDuplicate or ErrConflict.
func (w *Work) reserve(ctx context.Context, m *Message) error {
	it := NewItem(&m.Message, w.Masks, new(error))
	m.Chosen = true
	if err := w.Rows.Reserve(ctx, it); err != nil {
		return err
	}
	return *it.Result
}

// Count adds to an account of a queue.
func (w *Work) Count(queue string, b Account, n int64) {
	if w.Ledger == nil {
		w.Ledger = make(map[string]*Ledger)
	}
	if w.Ledger[queue] == nil {
		w.Ledger[queue] = new(Ledger)
	}
	w.Ledger[queue][b] += n
}

// AddWaiting stores a message as waiting. One that stands in line is blocked until the
// head of its key is freed.
func (w *Work) AddWaiting(m *Message) {
	m.Dead, m.Leased, m.Isolated, m.Instance = false, false, false, ""
	m.Bytes = m.Size()
	m.Class = m.OpenClass()
	if m.Turn > 0 {
		m.Class = ClassBlocked
		w.Heads = append(w.Heads, LineKey{m.Queue, m.Key})
	}
	w.Count(m.Queue, Account(m.Lane), 1)
	w.Count(m.Queue, AccountBytes, int64(m.Bytes))
	w.Insert = append(w.Insert, m)
}

// RemoveWaiting takes a waiting message away.
func (w *Work) RemoveWaiting(m *Message) {
	w.Count(m.Queue, Account(m.Lane), -1)
	w.Count(m.Queue, AccountBytes, -int64(m.Bytes))
	w.Gone = append(w.Gone, Gone{m.Ref(), m.Seq})
}

// AddDead stores a message as dead. Where dead letters let go, it leaves its key.
func (w *Work) AddDead(m *Message) {
	m.Dead, m.Suspect, m.Leased, m.Instance = true, false, false, ""
	m.Bytes = m.Size()
	if w.Texts != nil {
		m.Text = w.Texts.Of(w.Masks, m.Queue, m.LatestFailure())
	}
	if m.Turn > 0 && w.Settings[m.Queue].DeadRelease {
		w.LeaveLine(m)
	}
	w.Count(m.Queue, DeadAccount(m.Reason), 1)
	w.CountDeath(m.cause(), m.Died)
	w.Note(m, Fate{Outcome: redrive.OutcomeDead, Reason: m.Reason})
	w.Bury = append(w.Bury, m)
}

// RemoveDead takes a dead letter away.
func (w *Work) RemoveDead(m *Message) {
	w.Count(m.Queue, DeadAccount(m.Reason), -1)
	w.countCause(CauseBucket{Cause: m.cause()}, -1, 0)
	w.GoneDead = append(w.GoneDead, m.Ref())
}

// PublishResults publishes the results that ended messages asked for. One that is there
// already is as good.
func (w *Work) PublishResults(ctx context.Context) error {
	list := w.Results
	w.Results = nil
	if err := w.Rows.Publish(ctx, list); err != nil {
		return err
	}
	for _, it := range list {
		if err := *it.Result; err != nil && !IsRepeated(err) {
			return err
		}
	}
	return nil
}

// LeaveLine takes a message out of the order of its key.
func (w *Work) LeaveLine(m *Message) {
	if m.Turn > 0 {
		w.Leavers = append(w.Leavers, Leaving{LineKey: LineKey{m.Queue, m.Key}, ID: m.ID})
		m.Turn = 0
	}
}

// Note keeps in mind what became of a message whose id is remembered.
func (w *Work) Note(m *Message, f Fate) {
	if m.Chosen {
		w.Memories = append(w.Memories, Memory{Ref: m.Ref(), Fate: f})
	}
}

// IsRepeated reports that an id was accepted before.
func IsRepeated(err error) bool {
	return errors.Is(err, redrive.ErrDuplicate) || errors.Is(err, redrive.ErrConflict)
}

// IsOutcome reports an error that is what became of one message, not a fault.
func IsOutcome(err error) bool {
	for _, known := range []error{redrive.ErrState, redrive.ErrNotFound, redrive.ErrUncertain, redrive.ErrLoop, redrive.ErrBodyGone, redrive.ErrBodyCorrupt, redrive.ErrDuplicate,
		redrive.ErrConflict, redrive.ErrInvalid} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}
