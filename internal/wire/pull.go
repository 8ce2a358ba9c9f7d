package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/engine"
)

// ClaimRequest asks for messages of a queue. Every field is optional.
type ClaimRequest struct {
	Max   int      `json:"max,omitempty"`   // messages at most, 1 to 1000; 1
	Lease Duration `json:"lease,omitempty"` // how long the claim holds, 1s to 12h; 30s
	Wait  Duration `json:"wait,omitempty"`  // for something to become due, up to 1m; 0s
	Kinds []string `json:"kinds,omitempty"` // only these kinds
	// Worker names the process that handles the messages. A message that may have
	// killed a process is delivered only to a worker that holds nothing else.
	Worker string `json:"worker,omitempty"`
}

// Claims answers a claim. Items is empty if nothing was due.
type Claims struct {
	Items []Claimed `json:"items"`
}

// Claimed is a message in flight at a worker.
type Claimed struct {
	Receipt string `json:"receipt"` // settles or extends this claim
	Queue   string `json:"queue"`
	ID      string `json:"id"`
	Kind    string `json:"kind,omitempty"`
	Key     string `json:"key,omitempty"`

	Headers    []Header `json:"headers,omitempty"`
	Body       *string  `json:"body,omitempty"` // if it is text
	BodyBase64 []byte   `json:"body_base64,omitempty"`

	Attempt  int      `json:"attempt"`            // from 1
	Failures int      `json:"failures,omitempty"` // recorded before this attempt
	Crashes  int      `json:"crashes,omitempty"`
	Suspect  bool     `json:"suspect,omitempty"` // a claim of it ended without a settlement
	Lease    Duration `json:"lease"`             // how long the claim holds

	PublishedAt *time.Time `json:"published_at,omitempty"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
	ReplyTo     string     `json:"reply_to,omitempty"`
	Generation  int        `json:"generation,omitempty"`
	Redrives    int        `json:"redrives,omitempty"`
}

// ExtendRequest makes leases run for another lease from now.
type ExtendRequest struct {
	Receipts []string `json:"receipts"`
	Lease    Duration `json:"lease,omitempty"` // 30s
}

// SettleRequest tells what became of messages.
type SettleRequest struct {
	Settlements []Settlement `json:"settlements"`
}

// Settlement is what became of one message.
type Settlement struct {
	Receipt string `json:"receipt"`
	// Outcome is done, retry, release, dead or repeat. A retry is dead when the
	// queue's policy allows no more.
	Outcome string          `json:"outcome"`
	After   Duration        `json:"after,omitempty"`  // floor of a retry's backoff; delay of release and repeat
	Reason  *redrive.Reason `json:"reason,omitempty"` // of dead; permanent
	Failure *WorkerFailure  `json:"failure,omitempty"`
	// Emit is published in the same step, for done and repeat.
	Emit []Emit `json:"emit,omitempty"`
	// Reply is the result of a message with reply_to, as a line of NDJSON has it:
	// headers, and body or body_base64.
	Reply json.RawMessage `json:"reply,omitempty"`
}

// Emit is a message to publish with a settlement.
type Emit struct {
	Queue   string          `json:"queue"`
	Message json.RawMessage `json:"message"` // as a line of NDJSON has it
}

// WorkerFailure is what a worker tells of a failed attempt. Every field is optional.
type WorkerFailure struct {
	Type    string            `json:"type,omitempty"` // "ValueError"; see classify
	Types   []string          `json:"types,omitempty"`
	Message string            `json:"message,omitempty"`
	Stack   string            `json:"stack,omitempty"`
	Status  int               `json:"status,omitempty"`  // HTTP status behind it
	Timeout bool              `json:"timeout,omitempty"` // it ran out of time
	Details map[string]string `json:"details,omitempty"`
	Host    string            `json:"host,omitempty"`
	IP      string            `json:"ip,omitempty"`
	PID     int               `json:"pid,omitempty"`
	Service string            `json:"service,omitempty"`
	Version string            `json:"version,omitempty"`
}

// The states of a result.
const (
	ResultSettled  = "settled"
	ResultExtended = "extended"
	ResultError    = "error"
)

// Results answers each receipt, in order.
type Results struct {
	Items []Result `json:"items"`
}

// Result is what became of one settlement or extension.
type Result struct {
	Status  string          `json:"status"`
	Outcome string          `json:"outcome,omitempty"` // as settled
	Reason  *redrive.Reason `json:"reason,omitempty"`
	After   Duration        `json:"after,omitempty"` // until it is due again
	Error   *Problem        `json:"error,omitempty"`
}

// ClaimedOf returns a delivery as it goes over the wire.
func ClaimedOf(d *redrive.Delivery) (Claimed, error) {
	receipt, err := d.Receipt.MarshalText()
	if err != nil {
		return Claimed{}, err
	}
	c := Claimed{
		Receipt: string(receipt), Queue: d.Queue, ID: d.ID, Kind: d.Kind, Key: d.Key, Headers: headersOf(d.Headers),
		Attempt: d.Attempt, Failures: d.Failures, Crashes: d.Crashes, Suspect: d.Suspect, Lease: Duration(d.Lease),
		PublishedAt: moment(d.PublishedAt), ExpiresAt: moment(d.ExpiresAt), ReplyTo: d.ReplyTo, Generation: d.Generation, Redrives: d.Redrives,
	}
	if isText(d.Body) {
		s := string(d.Body)
		c.Body = &s
	} else {
		c.BodyBase64 = d.Body
	}
	return c, nil
}

// Std returns the settlement without what it emits, as the root package has it.
func (s *Settlement) Std() (engine.PullResult, error) {
	r := engine.PullResult{After: s.After.Std()}
	if err := r.Receipt.UnmarshalText([]byte(s.Receipt)); err != nil {
		return r, err
	}
	if err := r.Outcome.UnmarshalText([]byte(s.Outcome)); err != nil || r.Outcome > redrive.OutcomeRepeat || r.Outcome == 0 {
		return r, fmt.Errorf("%w outcome %q: use done, retry, release, dead or repeat", redrive.ErrInvalid, s.Outcome)
	}
	if s.Reason != nil {
		r.Reason = *s.Reason
	}
	if f := s.Failure; f != nil {
		r.Failure = f.std()
	}
	return r, nil
}

func (f *WorkerFailure) std() *redrive.Failure {
	out := &redrive.Failure{
		Types: f.Types, Message: f.Message, Stack: f.Stack, Details: maps.Clone(f.Details), Host: f.Host, IP: f.IP, PID: f.PID,
		Service: f.Service, Version: f.Version,
	}
	if f.Type != "" {
		out.Types = append([]string{f.Type}, out.Types...)
	}
	add := func(name, value string) {
		if out.Details == nil {
			out.Details = make(map[string]string)
		}
		out.Details[name] = value
	}
	if f.Status != 0 {
		add("http.status", strconv.Itoa(f.Status))
	}
	if f.Timeout {
		add("timeout", "true")
	}
	return out
}

// ResultOf returns what became of a settlement as it goes over the wire.
func ResultOf(p *engine.Pulled) Result {
	return Result{Status: ResultSettled, Outcome: p.Outcome.String(), Reason: reason(p.Reason), After: Duration(p.After)}
}

// QueuePull is what pull workers do with a queue.
type QueuePull struct {
	Polls    int       `json:"polls"`             // claims that wait
	Held     int       `json:"held"`              // messages in flight at workers
	Workers  int       `json:"workers"`           // named ones that hold something
	Refused  string    `json:"refused,omitempty"` // why nothing can be claimed now
	Breakers []Breaker `json:"breakers,omitempty"`
	Paused   []Paused  `json:"paused,omitempty"`
	// AllRefusedSince is that of QueueEngine.
	AllRefusedSince *time.Time `json:"all_refused_since,omitempty"`
	// Unhandled is the kinds of the last day that no worker asks for; of many only some.
	Unhandled []Unhandled `json:"unhandled,omitempty"`
}

// PullOf returns a status as it goes over the wire.
func PullOf(s *engine.PullStatus) *QueuePull {
	return &QueuePull{Polls: s.Polls, Held: s.Held, Workers: s.Workers, Refused: s.Refused, AllRefusedSince: moment(s.AllRefusedSince),
		Breakers: breakersOf(s.Breakers), Paused: pausesOf(s.Paused), Unhandled: unhandledOf(s.Unhandled)}
}
