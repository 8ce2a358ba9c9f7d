// Package jetstream is a source and sink on one stream of NATS JetStream. It is no store:
// what is to be delayed, looked into, edited or redriven is parked in one beside it.
//
// Layout. A durable pull consumer with explicit acknowledgements hands the stream's
// messages to any number of processes. What is fetched waits in a buffer that grows with
// the demand, up to 4,096 messages or 16 MB, and counts as claimed only when Claim delivers
// it. A keeper tells the server, by a third of AckWait, that what is in the buffer or
// in flight is being worked on; what nobody claims for two AckWaits is given back, and so is
// everything at Close. A lease is only ours: it ends when nobody extends it, and then the
// keeper stops.
//
// Guarantees. Publish returns after the stream has acknowledged the message, under its id
// as Nats-Msg-Id; within the stream's window of duplicates a repetition is recognised.
// Settle acknowledges and waits for the server's answer, a batch at once. With several
// replicas a majority has it then. A single server writes acknowledgements to disk within
// 100 ms: those that it forgets when it is killed come again, and are answered without a
// handler as long as this process remembers them (the last 16,384). Nothing that was not
// acknowledged is ever skipped.
//
// Native limits. The server accepts the acknowledgement of an older delivery: it fences
// nothing. What can be done here is done: a receipt names stream sequence, delivery and
// token; it is refused when the message was claimed again by this process, and when
// AckWait has passed without an answer of the server. What another process was given
// meanwhile cannot be seen. Deliveries that the server counts are no attempts, as its
// count falls back when it crashes; messages that it delivers again are marked as perhaps
// claimed before, as are the first ones after a connection was made, so that the engine
// looks for the claim records of a process that crashed. MaxDeliver must be unlimited, and delays
// are never left to the server: a message that waits there counts in MaxAckPending.
//
// Messages of others are messages too: their id is their Nats-Msg-Id, or derived from
// stream and sequence.
//
// Caps. Expiry, identity; native dead letters with [Options.Native]. Retries, delays and
// repeats are parked, emits published before their settlement.
package jetstream

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// DefaultAckWait is how long the server waits for a sign of life of a delivered message.
const DefaultAckWait = 30 * time.Second

const (
	minAckWait     = 100 * time.Millisecond
	connectTimeout = 10 * time.Second
	reconnectWait  = 250 * time.Millisecond
	pingInterval   = 10 * time.Second
	closeWait      = 2 * time.Second
)

// Options configures a [Source]. Every field has a default.
type Options struct {
	// Queue is what the stream is called in Redrive. Defaults to the stream's name in
	// lower case.
	Queue string
	// Native keeps dead letters in a stream; see the parameter dlq of [Open] and
	// [Source.DeadLetter]. Otherwise the engine parks them in its store.
	Native bool
	// Log tells of advisories of the server and of a consumer that was made again.
	// Defaults to slog.Default.
	Log *slog.Logger
	// Client adds options of the client. Optional.
	Client []nats.Option
}

// Source is a source and sink on one stream, by a durable consumer that it may share
// with other processes. It is safe for concurrent use.
type Source struct {
	o  Options
	at *place
	nc *nats.Conn
	js jetstream.JetStream

	acks    *acks
	pulls   *nats.Subscription
	inbox   string // of the pulls; their number follows
	next    string // subject to ask for messages
	publish string // subject to publish to
	buried  string // subject of native dead letters; "": there are none

	alive    context.Context //nolint:containedctx // of the goroutines
	stop     context.CancelFunc
	running  sync.WaitGroup
	once     sync.Once
	checkNow chan struct{} // the consumer is to be looked at
	advised  advisories

	mu       sync.Mutex
	consumer consumerState
	buffer   []*item          // to be claimed, first come first
	items    map[uint64]*item // buffered or in flight, by stream sequence
	settled  *recent
	bytes    int // buffered
	inFlight int
	target   int       // how many may be buffered
	asked    int       // asked for and not come
	pullNo   uint64    // of the last request
	heard    time.Time // when the server last said anything to a pull
	claimed  time.Time // when somebody last asked for messages
	resting  bool      // nobody claims, so nothing is fetched; so it begins
	checked  int       // deliveries that are marked as perhaps claimed before
	token    uint64
	version  uint64
	changed  chan struct{} // closed at a change; nil: nobody waits
	fault    error         // why nothing comes
	closed   bool
}

var (
	_ driver.Source         = (*Source)(nil)
	_ redrive.Sink          = (*Source)(nil)
	_ driver.DeadLetterSink = (*Source)(nil)
)

// Open connects to the stream that an address names,
// nats://host:4222,host:4222/STREAM?consumer=NAME, and makes the consumer if it is not
// there; it then begins at the stream's start. See docs/jetstream.md for the parameters.
// It fails if no server answers before ctx ends, if there is no such stream, or if the
// consumer cannot be used.
func Open(ctx context.Context, address string, o Options) (*Source, error) {
	at, err := parse(address)
	if err == nil {
		err = at.checkNames()
	}
	if err != nil {
		return nil, openError(err, "write it as nats://host:4222/STREAM?consumer=redrive")
	}
	o.Queue = cmp.Or(o.Queue, strings.ToLower(at.stream))
	if err := driver.CheckQueue(o.Queue); err != nil {
		return nil, openError(err, "give the queue another name than the stream's")
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	s := &Source{o: o, at: at, checkNow: make(chan struct{}, 1), items: make(map[uint64]*item),
		settled: newRecent(settledKept), target: bufferLeast, checked: suspectFirst, resting: true}
	s.alive, s.stop = context.WithCancel(context.Background())
	if err := s.open(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Source) open(ctx context.Context) (err error) {
	client := append([]nats.Option{nats.ReconnectHandler(s.reconnected), nats.DisconnectErrHandler(s.disconnected), nats.ErrorHandler(s.asyncError)}, s.o.Client...)
	if s.nc, err = s.at.connect(ctx, client...); err != nil {
		return err
	}
	if s.js, err = s.at.api(s.nc); err != nil {
		return openError(err, "")
	}
	prefix := "$JS.API."
	if s.at.domain != "" {
		prefix = "$JS." + s.at.domain + ".API."
	}
	s.next = prefix + "CONSUMER.MSG.NEXT." + s.at.stream + "." + s.at.consumer
	if err := s.declare(ctx); err != nil {
		return err
	}
	if s.acks, err = newAcks(s.nc); err != nil {
		return openError(err, "")
	}
	s.inbox = s.nc.NewInbox() + "."
	if s.pulls, err = s.nc.Subscribe(s.inbox+"*", s.arrived); err != nil {
		return openError(err, "")
	}
	if err = s.pulls.SetPendingLimits(-1, -1); err != nil { // what comes was asked for
		return openError(err, "")
	}
	if err = s.observe(); err != nil {
		return openError(err, "")
	}
	s.running.Go(s.keep)
	s.running.Go(s.tend)
	return nil
}

// Caps implements driver.Source.
func (s *Source) Caps() driver.Caps {
	return driver.Caps{Name: "jetstream", DeadLetters: s.o.Native, KeepsHistory: s.o.Native, Expires: true,
		Identity: redrive.IdentityMessage, Transfer: driver.TransferNone}
}

// Close gives back what is buffered and what is in flight, and disconnects.
func (s *Source) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.changeLocked()
		s.mu.Unlock()
		s.stop()
		s.running.Wait()
		if s.pulls != nil {
			s.giveAllBack()
		}
		if s.acks != nil {
			s.acks.close()
		}
		if s.nc != nil {
			s.nc.Close()
		}
	})
	return nil
}

// giveAllBack ends the pulls and lets others have what this process has.
func (s *Source) giveAllBack() {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	_ = s.pulls.Drain()
	_ = s.nc.FlushWithContext(ctx) // what the server sent before it knew has arrived then
	s.awaitDrained(ctx)
	s.mu.Lock()
	var back []ack
	for _, sequence := range slices.Sorted(maps.Keys(s.items)) { // they come in this order
		back = append(back, ack{s.items[sequence].reply, nak})
	}
	clear(s.items)
	s.buffer = nil
	s.mu.Unlock()
	s.acks.send(ctx, back) // if that fails, AckWait passes
}

// awaitDrained waits until what has arrived for the pulls is in the buffer.
func (s *Source) awaitDrained(ctx context.Context) {
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for s.pulls.IsValid() {
		select {
		case <-poll.C:
		case <-ctx.Done():
			return
		}
	}
}

// reconnected is called by the client when it has a connection again.
func (s *Source) reconnected(*nats.Conn) {
	s.mu.Lock()
	s.asked, s.checked, s.fault = 0, suspectFirst, nil
	s.pullLocked()
	s.mu.Unlock()
	s.check()
}

// disconnected is called by the client when the connection broke.
func (s *Source) disconnected(_ *nats.Conn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && !s.closed {
		s.fault = err
		s.changeLocked()
	}
}

// asyncError is called by the client with what it has nobody to return to.
func (s *Source) asyncError(_ *nats.Conn, _ *nats.Subscription, err error) {
	s.mu.Lock()
	s.fault = err
	s.mu.Unlock()
	s.check()
}

// check has the consumer looked at soon.
func (s *Source) check() {
	select {
	case s.checkNow <- struct{}{}:
	default:
	}
}

// changeLocked wakes everyone who waits for something.
func (s *Source) changeLocked() {
	s.version++
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// position names a delivery: stream and consumer sequence.
func position(m *nats.MsgMetadata) string {
	return strconv.FormatUint(m.Sequence.Stream, 36) + "/" + strconv.FormatUint(m.Sequence.Consumer, 36)
}

// readPosition returns the stream sequence of a position.
func readPosition(text string) (uint64, bool) {
	sequence, _, _ := strings.Cut(text, "/")
	n, err := strconv.ParseUint(sequence, 36, 64)
	return n, err == nil
}
