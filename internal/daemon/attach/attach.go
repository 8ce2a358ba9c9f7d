// Package attach brings the messages of a dead-letter topic, queue or stream that others
// keep at a broker into a store, as dead letters with the failure history that their headers tell
// (see package dialect): so that they can be looked into, grouped, repaired and redriven.
//
// Guarantees. A message is acknowledged at its broker, with [Options.Move], only after it
// is durable in the store; nothing is acknowledged that the store refused. Its id is
// derived from its position, so that whatever is read twice is stored once: an
// interrupted run is simply repeated.
//
//   - Kafka: cluster, topic (with the number that tells topics of one name apart),
//     partition and offset. Move commits the offsets of a consumer group, from which the next
//     run goes on; records are deleted only with [Options.Delete].
//     A dead letter that a share group wrote (KIP-1191) has the group and the place of
//     its record in the place of its own partition and offset. Where the broker wrote no
//     copy, the record is read; one that is gone has [redrive.HeaderBodyGone].
//   - JetStream: stream, its time of creation, sequence. Move deletes the message.
//   - Redis: server and database as the address names them, stream, entry id. Move
//     acknowledges the entry in all groups and deletes it.
//   - Redis lists know no positions either. Move gives an element its id in the step that
//     takes it from the list into a hash beside it, where it stays until the store has it.
//     Copy derives the id from the element's bytes and the number of equal ones before it:
//     an equal element that comes where one was taken away counts as the same.
//   - RabbitMQ knows no positions: vhost, queue, message id and what x-death says. A message
//     without a message id that is delivered again, as after a crash between store and
//     acknowledgement, may be stored twice; it then carries redrive-possible-duplicate.
//
// What was redriven and delivered since is recognised as long as the store remembers its
// id (remember, 24 h by default): a copy that is repeated later brings it back.
package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/broker"
	"github.com/redrive/redrive/internal/dialect"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/native"
	"github.com/redrive/redrive/internal/text"
)

// Options configures an attachment. Queue is needed.
type Options struct {
	// Queue is where the dead letters go in the store.
	Queue string
	// Move acknowledges at the broker what the store has. Defaults to leaving
	// everything as it is.
	Move bool
	// Delete lets Move delete the records of Kafka up to the committed offset.
	Delete bool
	// Follow goes on after the end, until the context ends. Defaults to ending with
	// what was there at the start.
	Follow bool
	// Place is where messages belong whose headers name no place: a topic, queue, subject or
	// stream of the broker. Optional.
	Place string
}

// Put makes entries durable and returns what became of each: nil, [redrive.ErrDuplicate],
// [redrive.ErrConflict], or why it is refused. A nil slice means that all succeeded, an
// error that nothing is known.
type Put func(ctx context.Context, entries []redrive.Entry) ([]error, error)

// Summary counts what a run did.
type Summary struct {
	Read       int64            `json:"read"`
	Imported   int64            `json:"imported"`
	Duplicates int64            `json:"duplicates"` // were in the store, or are remembered there
	Failed     int64            `json:"failed"`
	Unread     int64            `json:"unread,omitempty"` // positions before the end that hold nothing
	Places     map[string]int64 `json:"places"`           // where they belong; "" is not known
	Dialects   map[string]int64 `json:"dialects"`
	Problems   []string         `json:"problems,omitempty"` // the first of those that failed
}

// maxProblems bounds how many are reported, maxPlaces how many are counted apart.
const (
	maxProblems = 20
	maxPlaces   = 1000
)

// letter is one message as it stands at the broker.
type letter struct {
	position string // for people: "orders-dlt/0/17"
	id       string
	certain  bool   // the id names the position: another message cannot have it
	again    bool   // it was handed to somebody before
	other    string // its id if id turns out to be that of another message; "": there is none
	message  redrive.Message
	extra    redrive.Headers // what the broker knows beside headers and body
	handle   any
	at       time.Time // when it came to its place; zero: not known
	source   *pointer  // where the record is, if the message only points to it
	gone     string    // why its body cannot be had any more
	refused  error     // why it cannot be read now
}

// origin is one topic, queue or stream.
type origin interface {
	// next returns what comes next, nothing if there is nothing now, and io.EOF if what was
	// there at the start is read.
	next(ctx context.Context) ([]letter, error)
	// settle acknowledges what is durable; what was refused stays, and so does, where the
	// broker has but a committed offset, everything behind it.
	settle(ctx context.Context, durable, refused []letter) error
	// name completes a place with a name that is given for all.
	name(p *dialect.Place, name string)
	unread() int64
	close() error
}

// Attachment reads one topic, queue or stream. It is for one goroutine.
type Attachment struct {
	o       Options
	origin  origin
	address *broker.Address
}

// batch is how many messages are put in one step, batchBytes how large they are together.
const (
	batch      = 100
	batchBytes = 4 << 20
)

// idle is how long following waits before it looks again.
const idle = 200 * time.Millisecond

// Open connects to what an address names: kafka://host:9092/TOPIC?group=GROUP,
// rabbitmq://user:password@host/VHOST?queue=QUEUE, nats://host:4222/STREAM, or
// redis://host:6379/0?stream=STREAM&body=FIELD or redis://host:6379/0?list=KEY. Its errors show no password.
func Open(ctx context.Context, address string, o Options) (*Attachment, error) {
	a, err := broker.Parse(address)
	if err != nil {
		return nil, err
	}
	if a.Name == "" {
		return nil, failed(a, fmt.Errorf("%w address: it names nothing to read", redrive.ErrInvalid), "write "+a.Kind.Form())
	}
	if err := driver.CheckQueue(o.Queue); err != nil {
		return nil, failed(a, err, "name the queue in the store with --queue")
	}
	open := map[broker.Kind]func(context.Context, *broker.Address, *Options) (origin, error){
		broker.Kafka: openKafka, broker.RabbitMQ: openRabbitMQ, broker.JetStream: openJetStream, broker.Redis: openRedis,
	}[a.Kind]
	if a.List {
		open = openRedisList
	}
	from, err := open(ctx, a, &o)
	if err != nil {
		return nil, err
	}
	return &Attachment{o: o, origin: from, address: a}, nil
}

func failed(a *broker.Address, err error, hint string) error {
	return &redrive.Error{Op: "attach", Err: fmt.Errorf("%s: %w", a, err), Hint: hint}
}

// Close gives back what was read and not acknowledged.
func (a *Attachment) Close() error { return a.origin.close() }

// Run reads until the end as it was when the attachment was opened, or, following, until
// ctx ends. It calls each with the counts after every step. What put cannot carry out is
// repeated when following, and ends the run else.
func (a *Attachment) Run(ctx context.Context, put Put, each func(Summary)) (Summary, error) {
	s := Summary{Places: make(map[string]int64), Dialects: make(map[string]int64)}
	for {
		letters, err := a.origin.next(ctx)
		if err == nil && len(letters) > 0 {
			s.Read += int64(len(letters))
			err = a.store(ctx, put, letters, &s)
		}
		s.Unread = a.origin.unread()
		each(s)
		switch {
		case ctx.Err() != nil && a.o.Follow:
			return s, nil
		case errors.Is(err, io.EOF):
			return s, nil
		case err != nil:
			return s, failed(a.address, err, "run it again: what is in the store already is recognised")
		case len(letters) == 0 && !wait(ctx, idle) && !a.o.Follow:
			return s, ctx.Err()
		}
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// store puts letters into the store and acknowledges them.
func (a *Attachment) store(ctx context.Context, put Put, letters []letter, s *Summary) error {
	for len(letters) > 0 {
		n, size := 0, 0
		for n < min(len(letters), batch) && (n == 0 || size < batchBytes) {
			size += letters[n].message.Size()
			n++
		}
		if err := a.storeBatch(ctx, put, letters[:n], s); err != nil {
			return err
		}
		letters = letters[n:]
	}
	return nil
}

func (a *Attachment) storeBatch(ctx context.Context, put Put, letters []letter, s *Summary) error {
	var durable, refused []letter
	letters = slices.DeleteFunc(slices.Clone(letters), func(l letter) bool {
		if l.refused != nil {
			s.fail(&l, l.refused)
			refused = append(refused, l)
		}
		return l.refused != nil
	})
	entries := make([]redrive.Entry, len(letters))
	for i := range letters {
		entries[i] = a.entry(&letters[i], s)
	}
	var results []error
	if len(letters) > 0 {
		var err error
		if results, err = a.patiently(ctx, put, entries); err != nil {
			return err
		}
	}
	for i := range letters {
		result := resultOf(results, i)
		if other := otherID(&letters[i], result); other != "" {
			entries[i].ID = other
			one, err := a.patiently(ctx, put, entries[i:i+1])
			if err != nil {
				return err
			}
			result = resultOf(one, 0)
		}
		switch {
		case result == nil:
			s.Imported++
		case errors.Is(result, redrive.ErrDuplicate), errors.Is(result, redrive.ErrConflict): // it was edited since
			s.Duplicates++
		default:
			s.fail(&letters[i], result)
			refused = append(refused, letters[i])
			continue
		}
		durable = append(durable, letters[i])
	}
	if !a.o.Move {
		return nil
	}
	begun, cancel := finishing(ctx)
	defer cancel()
	return a.origin.settle(begun, durable, refused)
}

// otherID returns the id under which a letter is brought in whose own id belongs to
// another message, going by the result; "" if it does not.
func otherID(l *letter, result error) string {
	conflict := errors.Is(result, redrive.ErrConflict)
	switch {
	case l.other != "" && conflict: // the place that it points to had another message, or that one was edited
		return l.other
	case !l.certain && (conflict || errors.Is(result, redrive.ErrDuplicate) && !l.again): // nobody was handed it before, so it is not in the store
		return redrive.NewID()
	}
	return ""
}

// fail counts a message that was not brought in.
func (s *Summary) fail(l *letter, err error) {
	s.Failed++
	if len(s.Problems) < maxProblems {
		s.Problems = append(s.Problems, l.position+": "+err.Error())
	}
}

// grace is how long what was read may take to be stored and acknowledged after the end.
const grace = 10 * time.Second

// finishing returns a context that ends a while after ctx.
func finishing(ctx context.Context) (context.Context, context.CancelFunc) {
	begun, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	return begun, func() {
		stop()
		cancel()
	}
}

func resultOf(results []error, i int) error {
	if results == nil {
		return nil
	}
	return results[i]
}

// maxPatience bounds the pause before a put is repeated.
const maxPatience = 10 * time.Second

// patiently repeats a put while following: a daemon that restarts does not end it.
func (a *Attachment) patiently(ctx context.Context, put Put, entries []redrive.Entry) ([]error, error) {
	for pause := idle; ; pause = min(2*pause, maxPatience) {
		begun, cancel := finishing(ctx)
		results, err := put(begun, entries)
		cancel()
		if err == nil && results != nil && len(results) != len(entries) {
			err = fmt.Errorf("%d answers for %d dead letters", len(results), len(entries))
		}
		if err == nil || !a.o.Follow || ctx.Err() != nil || !wait(ctx, pause) {
			return results, err
		}
	}
}

// entry makes the dead letter of a message.
func (a *Attachment) entry(l *letter, s *Summary) redrive.Entry {
	read, _ := dialect.Read(l.message.Headers)
	where := a.address.Kind.Place(&read.Place)
	if where == "" && a.o.Place != "" {
		where = a.o.Place
		a.origin.name(&read.Place, where)
	}
	m := l.message
	e := read.Entry(m)
	e.Queue, e.ID = a.o.Queue, l.id
	if e.Origin == "" {
		e.Origin = l.position
	}
	if l.gone != "" {
		noteGone(&e, l.gone)
	}
	if key, ok := e.Headers.Get(headername.Key); ok && e.Key == "" {
		native.ReadKey(&e.Message, []byte(key))
	}
	if v, ok := e.Headers.Get(headername.Redrives); ok {
		if n, err := strconv.ParseUint(v, 10, 31); err == nil {
			e.Redrives = int(n)
		}
	}
	if v, ok := e.Headers.Get(headername.Plan); ok && driver.CheckID(v) == nil {
		e.Plan = v
	}
	e.Headers = append(e.Headers, l.extra...)
	if !l.certain && l.again {
		e.Headers.Set(redrive.HeaderPossibleDuplicate, "true")
	}
	if e.PublishedAt.IsZero() {
		e.PublishedAt = read.Place.At
	}
	if e.DiedAt.IsZero() {
		e.DiedAt = l.at
	}
	fit(&e)
	s.Dialects[read.Dialect.String()]++
	if _, ok := s.Places[where]; ok || len(s.Places) < maxPlaces {
		s.Places[where]++
	}
	return e
}

// fit makes of a letter what an import takes: a broker's messages have names, moments and
// sizes that those of ours have not, and none is left behind for it. Names of headers come back
// when the letter is published again (see [native.Outside]).
func fit(e *redrive.Entry) {
	for i := range e.Headers {
		e.Headers[i] = native.Inside(e.Headers[i])
	}
	e.Origin = text.Clean(strings.Map(func(r rune) rune {
		if !text.Printable(string(r)) {
			return '?'
		}
		return r
	}, e.Origin), 1<<10)
	for _, f := range []*redrive.Failure{e.History.First, e.History.Last} {
		if f != nil {
			forget(&f.At)
		}
	}
	forget(&e.PublishedAt)
	forget(&e.DiedAt)
	if len(e.Body) > redrive.MaxBodySize || len(e.Headers) > redrive.MaxHeaders || e.Headers.Size() > redrive.MaxHeaderSize {
		e.Reason = redrive.ReasonOversize // an import takes it for no other
	}
}

// forget clears a moment that a broker has and nobody can mean.
func forget(at *time.Time) {
	if !text.Dated(*at) {
		*at = time.Time{}
	}
}

// noteGone says in the failure that the body is gone, so that it is a cause of its own.
func noteGone(e *redrive.Entry, why string) {
	f := *e.History.Latest()
	f.Types = []string{driver.TypeBodyGone}
	f.Message = "body gone: " + why + "; " + f.Message
	f.Clean()
	f.Signature = driver.Signature(&f)
	e.History = redrive.History{Count: e.History.Count, First: &f}
}
