// Package dialect reads the headers in which other systems write down why a message is
// a dead letter: Redrive's own at a broker, Spring Kafka, Kafka
// Connect, Kafka's share groups (KIP-1191), Spring Cloud Stream and Spring AMQP,
// NServiceBus, MassTransit, Azure Service Bus, and RabbitMQ's x-death.
//
// A dialect is recognised by nothing but its headers. Where a message carries several, the
// outermost wins: Redrive's own before all others; else the one whose header stands
// last, as each system appends its own; RabbitMQ's x-death only if nobody else speaks,
// as the broker knows less than the program that failed. What an inner dialect says
// stays among the message's headers, as it did before the failure outside.
//
// Headers are what others wrote, and may be wrong or forged: nothing of them is trusted
// but as a text to show. Numbers that make no sense are left out, texts are bounded.
// x-death never counts attempts, since clients can write it and brokers count on.
package dialect

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/native"
)

// Dialect is one way to write a dead letter's failure history in headers.
type Dialect uint8

// The dialects.
const (
	None            Dialect = iota // nobody wrote down anything
	Redrive                        // Redrive's own, at a broker
	SpringKafka                    // kafka_dlt-*, and retry_topic-* of its retry topics
	KafkaConnect                   // __connect.errors.*
	ShareGroup                     // __dlq.errors.* of KIP-1191
	SpringStream                   // x-original-*, x-exception-* of Spring Cloud Stream and Spring AMQP
	NServiceBus                    // NServiceBus.FailedQ, NServiceBus.ExceptionInfo.*
	MassTransit                    // MT-Fault-*, MT-Reason
	AzureServiceBus                // DeadLetterReason, DeadLetterErrorDescription
	RabbitMQ                       // x-death
)

var names = []string{"none", "redrive", "spring", "connect", "share-group", "spring-stream", "nservicebus", "masstransit", "azure", "rabbitmq"}

// String returns the name by which commands know the dialect.
func (d Dialect) String() string {
	if int(d) < len(names) {
		return names[d]
	}
	return fmt.Sprintf("dialect(%d)", d)
}

// Place is where a message was at its broker.
type Place = native.Original

// NewPlace returns a place of which nothing is known.
func NewPlace() Place { return native.NewOriginal() }

// Letter is what headers tell of a dead letter.
type Letter struct {
	Dialect  Dialect
	Reason   redrive.Reason // rejected, if nothing tells
	Attempts int            // 0: not known
	Crashes  int
	DiedAt   time.Time // zero: not known
	History  redrive.History
	Place    Place           // where it was when it failed
	Kind     string          // what our own dialect calls its kind
	Headers  redrive.Headers // those of the message itself
}

// reader is one dialect.
type reader struct {
	dialect Dialect
	shows   func(name string) bool // a header that shows that it is this dialect
	owns    func(name string) bool // a header of it, with those of shows
	read    func(n notes, l *Letter)
}

// readers of others' dialects; our own is read by its own package.
var readers = []reader{springKafka, kafkaConnect, shareGroup, springStream, nserviceBus, massTransit, azureServiceBus}

// errUnknown is the failure of a message that stands among dead letters without a word.
var errUnknown = errors.New("it stood among dead letters, and no header of a known dialect says why")

// Read returns what headers tell, with the headers that are the message's own. It
// reports whether a dialect was recognised; if not, the letter is rejected, with a
// failure that says so. It keeps the values of headers, and changes none.
func Read(h redrive.Headers) (Letter, bool) {
	l := Letter{Place: NewPlace(), Reason: redrive.ReasonRejected}
	m := redrive.Message{Headers: slices.Clone(h)}
	if history, ok := native.TakeHistory(&m); ok {
		readOwn(&history, m.Headers, &l)
		return l, true
	}
	own, broker := outermost(h)
	if own == nil {
		own = broker
	}
	l.Headers = make(redrive.Headers, 0, len(h))
	var said notes
	for _, v := range h {
		switch {
		case own != nil && (own.shows(v.Name) || own.owns(v.Name)):
			said = append(said, v)
		case brokers(v.Name):
		default:
			l.Headers = append(l.Headers, v)
		}
	}
	if own == nil {
		l.fail(&redrive.Failure{Types: []string{"dialect.Unknown"}, Message: errUnknown.Error()})
		l.place()
		return l, false
	}
	l.Dialect = own.dialect
	own.read(said, &l)
	l.place()
	return l, true
}

// outermost returns the dialect that shows last, and apart from that RabbitMQ's.
func outermost(h redrive.Headers) (own, broker *reader) {
	for _, v := range slices.Backward(h) {
		if broker == nil && rabbitMQ.shows(v.Name) {
			broker = &rabbitMQ
		}
		for i := range readers {
			if readers[i].shows(v.Name) {
				return &readers[i], broker
			}
		}
	}
	return nil, broker
}

func readOwn(s *native.History, rest redrive.Headers, l *Letter) {
	l.Dialect = Redrive
	l.Attempts, l.Crashes, l.History, l.DiedAt = s.Attempts, s.Crashes, s.History, s.DiedAt
	if s.Reason != 0 {
		l.Reason = s.Reason
	}
	for _, f := range []*redrive.Failure{l.History.First, l.History.Last} {
		if f != nil {
			f.Clean()
		}
	}
	l.Kind, _ = rest.Get(headername.Kind)
	l.Headers = slices.DeleteFunc(rest, func(v redrive.Header) bool { return brokers(v.Name) })
	l.place()
}

// brokers reports what RabbitMQ writes down: a message that is published again has died
// nowhere yet.
func brokers(name string) bool { return rabbitMQ.shows(name) || rabbitMQ.owns(name) }

// place takes the headers of a place out of the message's own: ours are the place if
// the dialect names none. What another names is older, or forged.
func (l *Letter) place() {
	if o, ok := native.ReadOriginal(l.Headers); ok && !l.placed() {
		l.Place = o
	}
	l.Headers = slices.DeleteFunc(l.Headers, func(v redrive.Header) bool { return native.IsOriginal(v.Name) })
}

func (l *Letter) placed() bool {
	p := &l.Place
	return p.Topic != "" || p.Queue != "" || p.Exchange != "" || p.RoutingKey != "" || p.Stream != "" || p.Subject != ""
}

// fail sets the one failure that is known.
func (l *Letter) fail(f *redrive.Failure) {
	f.Attempt = max(l.Attempts, 1)
	f.Reason = l.Reason
	if f.At.IsZero() {
		f.At = l.DiedAt
	}
	for name, value := range f.Details {
		if value == "" {
			delete(f.Details, name)
		}
	}
	if len(f.Details) == 0 {
		f.Details = nil
	}
	f.Types = slices.DeleteFunc(f.Types, func(s string) bool { return s == "" })
	f.Clean()
	f.Signature = driver.Signature(f)
	l.History = redrive.History{Count: max(l.Attempts, 1), First: f}
}

// Entry returns the dead letter as a store takes it: the message with its own headers,
// those that say where it was, and the failure history.
func (l *Letter) Entry(m redrive.Message) redrive.Entry {
	m.Headers = append(slices.Clip(l.Headers), l.Place.Headers()...)
	if m.Kind == "" {
		probe := redrive.Message{Queue: "q", Kind: l.Kind}
		if probe.Validate() == nil {
			m.Kind = l.Kind
		}
	}
	return redrive.Entry{
		Message: m, State: redrive.StateDead, Reason: l.Reason, Attempts: l.Attempts, Crashes: l.Crashes, DiedAt: l.DiedAt, History: l.History,
	}
}
