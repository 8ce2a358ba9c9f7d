package dialect

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/native"
)

// Bounds of what is written of a failure: brokers limit headers.
const (
	maxText  = 1 << 10
	maxStack = 8 << 10
)

// Names of brokers, as their sources call them in [redrive.Caps].
const (
	kafkaBroker     = "kafka"
	rabbitMQBroker  = "rabbitmq"
	jetStreamBroker = "jetstream"
)

// scribe writes one dialect, at the brokers where somebody reads it.
type scribe struct {
	write func(e *redrive.Entry, o *Place) redrive.Headers
	at    []string
}

var writers = map[Dialect]scribe{
	SpringKafka:  {writeSpringKafka, []string{kafkaBroker}},
	KafkaConnect: {writeKafkaConnect, []string{kafkaBroker}},
	ShareGroup:   {writeShareGroup, []string{kafkaBroker}},
	SpringStream: {writeSpringStream, []string{kafkaBroker, rabbitMQBroker}},
	NServiceBus:  {writeNServiceBus, []string{kafkaBroker, rabbitMQBroker, jetStreamBroker}},
	MassTransit:  {writeMassTransit, []string{kafkaBroker, rabbitMQBroker, jetStreamBroker}},
}

// CheckWrite reports why dead letters cannot be told in a dialect at a broker, which is
// named as its source's [redrive.Caps] name it. None can be told everywhere.
func CheckWrite(d Dialect, broker string) error {
	if d == None || slices.Contains(writers[d].at, broker) {
		return nil
	}
	var there []string
	for other := range Dialect(len(names)) { //nolint:gosec // one of a few
		if slices.Contains(writers[other].at, broker) {
			there = append(there, other.String())
		}
	}
	hint := "leave the dialect out: nothing reads one there"
	if len(there) > 0 {
		hint = "write one of " + strings.Join(there, ", ")
	}
	return &redrive.Error{Op: "open", Err: fmt.Errorf("dead letters at %s in the dialect %s: %w", broker, d, redrive.ErrUnsupported), Hint: hint}
}

// Tell has a story told in a dialect, too, which [CheckWrite] allows at its broker.
func Tell(d Dialect, s *native.Story, at Place) {
	if w, ok := writers[d]; ok {
		s.Others = w.write(&redrive.Entry{Reason: s.Reason, Attempts: s.Attempts, Crashes: s.Crashes, DiedAt: s.DiedAt, History: s.History}, &at)
	}
}

// CanWrite reports whether a dialect can be written. RabbitMQ's x-death is the broker's
// alone, and Azure's properties are the service's.
func CanWrite(d Dialect) bool { return writers[d].write != nil }

// Write returns the headers in which a dialect tells of a dead letter, without the
// message's own. Texts are cut to what brokers take. It fails for a dialect that cannot
// be written; None has no headers.
func Write(d Dialect, e *redrive.Entry, o Place) (redrive.Headers, error) {
	if d == None {
		return nil, nil
	}
	w, ok := writers[d]
	if !ok {
		return nil, fmt.Errorf("dialect %s cannot be written: %w", d, redrive.ErrUnsupported)
	}
	return w.write(e, &o), nil
}

// writer collects headers; what is empty is none.
type writer struct{ h *redrive.Headers }

func (w writer) text(name, value string) {
	if value == "" {
		return
	}
	most := maxText
	if strings.Contains(strings.ToLower(name), "stack") {
		most = maxStack
	}
	if len(value) > most {
		value = value[:most]
		for !utf8.ValidString(value) && len(value) > most-utf8.UTFMax {
			value = value[:len(value)-1]
		}
	}
	w.h.Add(name, value)
}

func (w writer) bytes(name string, value []byte) {
	*w.h = append(*w.h, redrive.Header{Name: name, Value: value})
}

// position writes partition and offset as text.
func (w writer) position(prefix string, o *Place) {
	if o.Partition >= 0 {
		w.text(prefix+"partition", itoa(int64(o.Partition)))
	}
	if o.Offset >= 0 {
		w.text(prefix+"offset", itoa(o.Offset))
	}
}

// outer and cause are the outermost and the innermost type of an error.
func outer(f *redrive.Failure) string {
	if len(f.Types) == 0 {
		return ""
	}
	return f.Types[0]
}

func cause(f *redrive.Failure) string {
	if len(f.Types) < 2 {
		return ""
	}
	return f.Types[len(f.Types)-1]
}

// whereQueue names a place as one queue.
func whereQueue(o *Place) string {
	for _, name := range []string{o.Queue, o.Topic, o.Subject, o.Stream, o.RoutingKey} {
		if name != "" {
			return name
		}
	}
	return ""
}
