package dialect

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/redrive/redrive"
)

// Bounds of what is written of a failure: brokers limit headers.
const (
	maxText  = 1 << 10
	maxStack = 8 << 10
)

var writers = map[Dialect]func(e *redrive.Entry, o *Place) redrive.Headers{
	SpringKafka: writeSpringKafka, KafkaConnect: writeKafkaConnect, ShareGroup: writeShareGroup, SpringStream: writeSpringStream,
	NServiceBus: writeNServiceBus, MassTransit: writeMassTransit,
}

// CanWrite reports whether a dialect can be written. RabbitMQ's x-death is the broker's
// alone, and Azure's properties are the service's.
func CanWrite(d Dialect) bool { return writers[d] != nil }

// Write returns the headers in which a dialect tells of a dead letter, without the
// message's own. Texts are cut to what brokers take. It fails for a dialect that cannot
// be written; None has no headers.
func Write(d Dialect, e *redrive.Entry, o Place) (redrive.Headers, error) {
	if d == None {
		return nil, nil
	}
	w := writers[d]
	if w == nil {
		return nil, fmt.Errorf("dialect %s cannot be written: %w", d, redrive.ErrUnsupported)
	}
	return w(e, &o), nil
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
