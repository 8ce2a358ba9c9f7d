package wire

import (
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// Queue is what a queue holds, what went through it, and what the engine does
// with it.
type Queue struct {
	Queue      string `json:"queue"`
	Configured bool   `json:"configured"`        // the daemon's configuration names it
	Deliver    string `json:"deliver,omitempty"` // where it is delivered to
	// Level is "ok", "warn" above the soft limit, "refused" above the hard one.
	Level string `json:"level,omitempty"`

	Waiting   Waiting    `json:"waiting"`
	Leased    int64      `json:"leased"`
	Blocked   int64      `json:"blocked"`
	Suspects  int64      `json:"suspects"`
	Due       int64      `json:"due"`
	DueMore   bool       `json:"due_more,omitempty"` // there are more than that
	OldestDue *time.Time `json:"oldest_due,omitempty"`
	Dead      int64      `json:"dead"`
	// OldestDead is when the oldest dead letter died.
	OldestDead *time.Time               `json:"oldest_dead,omitempty"`
	DeadBy     map[redrive.Reason]int64 `json:"dead_by_reason,omitempty"`
	Bytes      int64                    `json:"bytes"`
	Ledger     Ledger                   `json:"ledger"`

	// Source is absent where the queue takes messages from the store only.
	Source *QueueSource `json:"source,omitempty"`
	// HeldBy is what holds it, as this process sees it; empty: nothing does.
	HeldBy []Hold `json:"held_by"`

	// Engine is absent where nothing consumes the queue in this process.
	Engine *QueueEngine `json:"engine,omitempty"`
	// PolledAt is when somebody last waited for a message of it by its id, as who asks for
	// results does; absent where nobody did in this process.
	PolledAt *time.Time `json:"polled_at,omitempty"`
	// Pull is absent where no worker has claimed from the queue in this process.
	Pull *QueuePull `json:"pull,omitempty"`
}

// QueueSource counts what came from the source of a queue and ended in this process since it
// started. The ledger counts what was parked in the store instead.
type QueueSource struct {
	Done    int64 `json:"done"`
	Dropped int64 `json:"dropped"`
	Dead    int64 `json:"dead"` // kept by the source, with dead_letters: native
}

// Done returns how many messages are finished: by the ledger of the store, and of a source in this
// process.
func (q *Queue) Done() int64 {
	if q.Source != nil {
		return q.Ledger.Done + q.Source.Done
	}
	return q.Ledger.Done
}

// Waiting counts waiting messages, leased and blocked ones included, by lane.
type Waiting struct {
	All     int64 `json:"all"`
	Fresh   int64 `json:"fresh"`
	Retry   int64 `json:"retry"`
	Redrive int64 `json:"redrive"`
}

// Ledger counts what entered and left a queue: entered = waiting + dead + left.
type Ledger struct {
	Entered   int64 `json:"entered"`
	Published int64 `json:"published"`
	Parked    int64 `json:"parked"`
	Imported  int64 `json:"imported"`
	MovedIn   int64 `json:"moved_in"`
	Repeated  int64 `json:"repeated"`
	Left      int64 `json:"left"`
	Done      int64 `json:"done"`
	Dropped   int64 `json:"dropped"`
	Archived  int64 `json:"archived"`
	MovedOut  int64 `json:"moved_out"`
}

// QueueEngine is what an engine is doing with a queue.
type QueueEngine struct {
	Slots    int       `json:"slots"`
	Busy     int       `json:"busy"`
	Stuck    int       `json:"stuck"`
	Settling int       `json:"settling"`
	Breakers []Breaker `json:"breakers,omitempty"`
	Paused   []Paused  `json:"paused,omitempty"`
	Refused  string    `json:"refused,omitempty"` // why nothing can be claimed now
	// since when every delivery was refused for its message (400, 413, 415, 422), after a minute
	AllRefusedSince *time.Time  `json:"all_refused_since,omitempty"`
	Unhandled       []Unhandled `json:"unhandled,omitempty"` // kinds of the last day without a handler; of many only some
}

// Unhandled is a kind of messages that came to a queue and that nobody there knows.
type Unhandled struct {
	Kind     string    `json:"kind"`
	Attempts int64     `json:"attempts"` // that failed for it
	Last     time.Time `json:"last"`
}

// Breaker is the breaker of a target or kind.
type Breaker struct {
	Key       string     `json:"key"`
	State     string     `json:"state"`
	Reason    string     `json:"reason,omitempty"`
	Since     *time.Time `json:"since,omitempty"`
	NextProbe *time.Time `json:"next_probe,omitempty"`
}

// Paused is one pause of a queue.
type Paused struct {
	Target string     `json:"target,omitempty"` // absent: the whole queue
	Reason string     `json:"reason"`
	By     string     `json:"by,omitempty"` // absent: its handler asked for it
	Since  time.Time  `json:"since"`
	Until  *time.Time `json:"until,omitempty"` // absent: until it is resumed
}

// PauseRequest asks to stop claiming. Every field is optional.
type PauseRequest struct {
	Target string   `json:"target,omitempty"` // a target or kind; absent: the whole queue
	Reason string   `json:"reason,omitempty"`
	For    Duration `json:"for,omitempty"` // absent: until it is resumed
}

// QueueOf returns counts as they go over the wire.
func QueueOf(c *driver.Counts) Queue {
	q := Queue{
		Queue:  c.Queue,
		Leased: c.Leased, Blocked: c.Blocked, Suspects: c.Suspects, Due: c.Due, DueMore: c.DueMore, OldestDue: moment(c.Oldest()), OldestDead: moment(c.OldestDead),
		Waiting: Waiting{
			All: c.AllWaiting(), Fresh: c.Waiting[redrive.LaneFresh], Retry: c.Waiting[redrive.LaneRetry], Redrive: c.Waiting[redrive.LaneRedrive],
		},
		Dead: c.AllDead(), Bytes: c.Bytes, Ledger: LedgerOf(&c.Ledger),
	}
	for reason, n := range c.Dead {
		if n == 0 {
			continue
		}
		if q.DeadBy == nil {
			q.DeadBy = make(map[redrive.Reason]int64)
		}
		q.DeadBy[reason] = n
	}
	return q
}

// LedgerOf returns a ledger as it goes over the wire.
func LedgerOf(b *driver.Ledger) Ledger {
	return Ledger{
		Entered: b.Entered(), Published: b.Published, Parked: b.Parked, Imported: b.Imported, MovedIn: b.MovedIn, Repeated: b.Repeated,
		Left: b.Left(), Done: b.Done, Dropped: b.Dropped, Archived: b.Archived, MovedOut: b.MovedOut,
	}
}

// EngineOf returns a status as it goes over the wire.
func EngineOf(s *engine.QueueStatus) *QueueEngine {
	return &QueueEngine{Slots: s.Slots, Busy: s.Busy, Stuck: s.Stuck, Settling: s.Settling, Refused: s.Refused, AllRefusedSince: moment(s.AllRefusedSince), Unhandled: unhandledOf(s.Unhandled),
		Breakers: breakersOf(s.Breakers), Paused: pausesOf(s.Paused)}
}

func unhandledOf(list []engine.UnhandledKind) (out []Unhandled) {
	for _, k := range list {
		out = append(out, Unhandled{Kind: k.Kind, Attempts: k.Attempts, Last: k.Last})
	}
	return out
}

func breakersOf(list []engine.BreakerStatus) (out []Breaker) {
	for _, b := range list {
		out = append(out, Breaker{Key: b.Key, State: b.State, Reason: b.Reason, Since: moment(b.Since), NextProbe: moment(b.NextProbe)})
	}
	return out
}

func pausesOf(list []engine.PauseStatus) (out []Paused) {
	for _, p := range list {
		out = append(out, Paused{Target: p.Target, Reason: p.Reason, Since: p.Since.UTC(), Until: moment(p.Until)})
	}
	return out
}

// Verified compares the ledger with what is there.
type Verified struct {
	Balanced bool    `json:"balanced"`
	Queues   []Audit `json:"queues"`
	Hint     string  `json:"hint,omitempty"` // what to do where they do not balance
}

// AcknowledgeRequest counts what is missing from a queue, or from all, as dropped.
type AcknowledgeRequest struct {
	Queue  string `json:"queue,omitempty"`
	Reason string `json:"reason"`
}

// Audit compares the ledger of a queue with a scan.
type Audit struct {
	Queue     string   `json:"queue"`
	Balanced  bool     `json:"balanced"`
	Imbalance int64    `json:"imbalance"`
	Waiting   int64    `json:"waiting"`
	Dead      int64    `json:"dead"`
	Ledger    Ledger   `json:"ledger"`
	Problems  []string `json:"problems,omitempty"`
}

// VerifiedOf returns audits as they go over the wire.
func VerifiedOf(audits []driver.Audit) Verified {
	v := Verified{Balanced: true, Queues: make([]Audit, len(audits))}
	for i := range audits {
		a := &audits[i]
		v.Queues[i] = Audit{
			Queue: a.Queue, Imbalance: a.Imbalance(), Waiting: a.Waiting, Dead: a.Dead, Ledger: LedgerOf(&a.Ledger), Problems: a.Problems,
			Balanced: a.Imbalance() == 0 && len(a.Problems) == 0,
		}
		v.Balanced = v.Balanced && v.Queues[i].Balanced
	}
	return v
}

// Series is what one daemon published and delivered of a queue, by minute, in its memory.
type Series struct {
	Queue   string    `json:"queue"`
	Since   time.Time `json:"since"`   // nothing before is counted: the daemon's start, or later
	Counted bool      `json:"counted"` // false: there was no room, as more than 1,000 queues were used within an hour
	Minutes []Minute  `json:"minutes"` // the oldest first, without gaps, the present one last; at most 60
}

// Minute is what happened in one minute.
type Minute struct {
	Start     time.Time `json:"start"`
	Published int64     `json:"published"`     // accepted into the queue by the daemon
	Delivered int64     `json:"delivered"`     // messages that ended as done
	Failed    int64     `json:"failed"`        // attempts
	Dead      int64     `json:"dead"`          // messages that an attempt dead-lettered
	P95       Duration  `json:"p95,omitempty"` // 95 of 100 attempts that delivered took at most this, which is at most 19 % too much
}

// Finding is what a setting of the store promises.
type Finding struct {
	Level   string `json:"level"` // ok, warn or refused
	Setting string `json:"setting"`
	Value   string `json:"value"`
	Promise string `json:"promise"`
	Hint    string `json:"hint,omitempty"`
}
