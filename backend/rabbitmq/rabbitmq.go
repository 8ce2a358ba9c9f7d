// Package rabbitmq is a source and sink on one queue of RabbitMQ, by AMQP 0-9-1. It is
// no store: what is to be delayed, looked into, edited or redriven is parked in one
// beside it, unless [Options.Native] keeps it at the broker.
//
// Guarantees. Publish returns when the broker has confirmed the message, and fails if
// no queue took it. A message is acknowledged only when it is settled; what was claimed
// and not settled comes again when the channel ends, whatever the reason. A receipt
// names the channel that it is of: a settlement of another channel is refused by us
// (ErrLeaseLost), so that an old delivery tag is never used on a new channel. AMQP does
// not confirm acknowledgements. Settle therefore ends with a round trip on the same
// channel: nil says that the broker's channel has taken them, so that a cut of the
// connection undoes nothing. The death of the node may: the messages then come again.
//
// Native limits. The broker pushes messages ahead, up to [Options.Prefetch]; they count
// as claimed only when Claim delivers them. The broker counts those as redelivered too
// (x-delivery-count) and cannot tell them from what crashed a process: its counts are
// never used to count attempts, only to look for the engine's claim records, and a queue that is
// declared here has no delivery limit that one could reach by mistake. x-death is not
// read: anyone can forge it.
//
// Messages of others are messages too: message-id is the id (one that cannot be an id is
// made into one), type the kind; other properties become headers. Without a message-id
// nothing names a message across redeliveries.
//
// Caps. Fences, expiry, identity by the message's id. With [Options.Native] also delays
// up to [MaxDelay] and dead letters, by strategy; see [Dead].
package rabbitmq

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Defaults.
const (
	DefaultPrefetch = 256
	// unlimited is a delivery limit that nothing reaches. Without one, servers from 4.0
	// on drop a message after 20 deliveries, whoever died of them.
	unlimited = 1_000_000_000
)

// Options configures a [Source]. Every field has a default.
type Options struct {
	// Queue is what the queue is called in Redrive. Defaults to its name at the broker.
	Queue string
	// Native keeps at the broker what failed: retries wait in queues of delays, dead
	// letters go where the address says; see [Dead].
	Native bool
}

// Source is a source and sink on one queue. It is safe for concurrent use.
type Source struct {
	o     Options
	a     address
	out   *publisher
	alive context.Context //nolint:containedctx // of the loop that keeps the channel
	stop  context.CancelFunc
	ended chan struct{} // closed when that loop has ended
	once  sync.Once

	settling chan struct{} // holds a value while acknowledgements are written

	mu       sync.Mutex
	session  *session // nil: there is no channel
	epoch    uint64
	token    uint64
	buffer   [driver.Lanes][]*item // pushed and not claimed
	inflight map[uint64]*item      // claimed, by delivery tag
	connects int64
	version  uint64
	changed  chan struct{} // closed at a change; nil: nobody waits for one
	fault    error         // the newest of the connection
	closed   bool
}

// item is a message that the broker pushed.
type item struct {
	d     amqp.Delivery
	id    string      // made up for a message without an id
	ref   redrive.Ref // under which it was claimed
	token uint64      // of the claim; 0: it is in the buffer
}

var (
	_ driver.Source         = (*Source)(nil)
	_ redrive.Sink          = (*Source)(nil)
	_ driver.DeadLetterSink = (*Source)(nil)
)

// Open consumes a queue: rabbitmq://user@host:5672/VHOST?queue=NAME (rabbitmqs with TLS).
// Without a path the virtual host is "/". Parameters: queue; type (quorum or classic, the
// default is quorum) and declare=true, with which a queue that is not there is made, else
// it must be; exchange and key, for publishing (default: straight to the queue); prefetch
// (default 256); dead (confirm, tx or dlx) and dead_queue (default NAME.dead), with
// [Options.Native]. It fails if no broker answers before ctx ends, or if what the address
// names is not there.
func Open(ctx context.Context, url string, o Options) (*Source, error) {
	a, err := parse(url)
	if err != nil {
		return nil, openError(err, "write it as rabbitmq://user@host:5672/vhost?queue=name")
	}
	if o.Queue == "" {
		o.Queue = a.queue
	}
	if err := driver.CheckQueue(o.Queue); err != nil {
		return nil, openError(err, "give the queue another name than the broker's")
	}
	if a.dead != "" && !o.Native {
		return nil, openError(fmt.Errorf("%w parameter dead: dead letters are parked in the store", redrive.ErrInvalid), "remove it, or write dead_letters: native")
	}
	s := &Source{
		o: o, a: a, out: &publisher{a: a, lock: make(chan struct{}, 1)}, ended: make(chan struct{}), settling: make(chan struct{}, 1),
		inflight: make(map[uint64]*item),
	}
	s.alive, s.stop = context.WithCancel(context.Background())
	first, err := s.connect(ctx, true)
	if err != nil {
		s.stop()
		return nil, openError(err, hintOf(err))
	}
	s.begin(first)
	go s.keep(first)
	return s, nil
}

func openError(err error, hint string) error {
	return &redrive.Error{Op: "open", Err: fmt.Errorf("source in RabbitMQ: %w", err), Hint: hint}
}

func hintOf(err error) string {
	if a, ok := errors.AsType[*amqp.Error](err); ok {
		switch a.Code {
		case amqp.NotFound:
			return "make it first, or add declare=true"
		case amqp.PreconditionFailed:
			return "it is there with other arguments: leave out declare, or name its type"
		case amqp.AccessRefused:
			return "check the user, the password and the permissions"
		}
	}
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); unknown {
		return "name the authority's certificate with tls_ca=FILE"
	}
	return "is a broker running there?"
}

// Caps implements driver.Source.
func (s *Source) Caps() driver.Caps {
	c := driver.Caps{Name: "rabbitmq", Fenced: true, Expires: true, Identity: redrive.IdentityMessage, Transfer: driver.TransferNone}
	if s.o.Native {
		s.a.dead.caps(&c)
	}
	return c
}

// Close ends the channel. What is in flight comes again, to whoever consumes the queue.
func (s *Source) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.stop()
		<-s.ended
		s.out.close()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changeLocked()
	})
	return nil
}

// changeLocked wakes everyone who waits for something.
func (s *Source) changeLocked() {
	s.version++
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// position names a claim: the channel's number and the delivery tag.
type position struct{ epoch, tag uint64 }

func (p position) String() string {
	var text [34]byte // 13 digits, a slash and 20 digits
	b := append(strconv.AppendUint(text[:0], p.epoch, 36), '/')
	return string(strconv.AppendUint(b, p.tag, 10))
}

func readPosition(text string) (p position, ok bool) {
	epoch, tag, _ := strings.Cut(text, "/")
	var errs [2]error
	p.epoch, errs[0] = strconv.ParseUint(epoch, 36, 64)
	p.tag, errs[1] = strconv.ParseUint(tag, 10, 64)
	return p, errs == [2]error{}
}

// SourceStats tells what is known of the queue, for metrics.
func (s *Source) SourceStats(ctx context.Context) (driver.SourceStats, error) {
	s.mu.Lock()
	stats := driver.SourceStats{Lag: driver.Unknown, Dead: driver.Unknown, Unacked: int64(len(s.inflight)), OldestUnacked: driver.Unknown, Reconnects: max(s.connects-1, 0)}
	for _, b := range s.buffer {
		stats.Buffered += int64(len(b))
	}
	s.mu.Unlock()
	err := s.look(ctx, func(ch *amqp.Channel) error {
		ready, err := count(ch, s.a.queue)
		if err != nil {
			return err
		}
		stats.Lag = ready
		if s.o.Native {
			stats.Dead, err = count(ch, s.a.deadQueue)
		}
		return err
	})
	return stats, err
}

// count returns the messages of a queue that nobody has taken.
func count(ch *amqp.Channel, queue string) (int64, error) {
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	return int64(q.Messages), err
}

// patience bounds single exchanges with the broker for which the caller set no bound.
const patience = 30 * time.Second
