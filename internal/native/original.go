package native

import (
	"strconv"
	"time"

	"github.com/redrive/redrive"
)

// Names of the headers that say where a dead letter came from at its broker, so that it
// can be published there again. They stay with the message in every store.
const (
	HeaderOriginalTopic      = "redrive-original-topic"     // Kafka
	HeaderOriginalPartition  = "redrive-original-partition" // Kafka
	HeaderOriginalOffset     = "redrive-original-offset"    // Kafka; JetStream's stream sequence
	HeaderOriginalGroup      = "redrive-original-group"     // the consumer group or durable consumer
	HeaderOriginalExchange   = "redrive-original-exchange"  // RabbitMQ; empty is the default exchange
	HeaderOriginalRoutingKey = "redrive-original-routing-key"
	HeaderOriginalQueue      = "redrive-original-queue"  // RabbitMQ
	HeaderOriginalStream     = "redrive-original-stream" // JetStream, Redis
	HeaderOriginalSubject    = "redrive-original-subject"
	HeaderOriginalTimestamp  = "redrive-original-timestamp"

	// What a broker knows of a message beside headers and body.
	HeaderOriginalNoBody = "redrive-original-no-body" // Kafka: its value is null, not empty
	// HeaderOriginalNoHeaders says why the record's own headers could not be had: Kafka.
	HeaderOriginalNoHeaders = "redrive-original-no-headers"
	HeaderOriginalForm      = "redrive-original-form" // RabbitMQ: properties and types of headers; Redis: the body's field
)

// Original is where a message was at its broker. Of the places only those of its own
// broker are set.
type Original struct {
	Topic      string
	Partition  int32 // -1: not known
	Offset     int64 // -1: not known
	Group      string
	Exchange   string
	RoutingKey string
	Queue      string
	Stream     string
	Subject    string
	At         time.Time // when it was published there
}

// NewOriginal returns a place of which nothing is known.
func NewOriginal() Original { return Original{Partition: -1, Offset: -1} }

// Headers returns the place as headers. What is not known has none.
func (o *Original) Headers() redrive.Headers {
	h := make(writer, 0, 6)
	h.text(HeaderOriginalTopic, o.Topic)
	if o.Partition >= 0 {
		h.text(HeaderOriginalPartition, strconv.Itoa(int(o.Partition)))
	}
	if o.Offset >= 0 {
		h.text(HeaderOriginalOffset, strconv.FormatInt(o.Offset, 10))
	}
	h.text(HeaderOriginalGroup, o.Group)
	h.text(HeaderOriginalExchange, o.Exchange)
	h.text(HeaderOriginalRoutingKey, o.RoutingKey)
	h.text(HeaderOriginalQueue, o.Queue)
	h.text(HeaderOriginalStream, o.Stream)
	h.text(HeaderOriginalSubject, o.Subject)
	h.time(HeaderOriginalTimestamp, o.At)
	return redrive.Headers(h)
}

// ReadOriginal returns the place that headers name, the first of each name, and whether
// they name one to publish to.
func ReadOriginal(h redrive.Headers) (Original, bool) {
	o := NewOriginal()
	text := func(name string, to *string) {
		*to, _ = h.Get(name)
	}
	text(HeaderOriginalTopic, &o.Topic)
	text(HeaderOriginalGroup, &o.Group)
	text(HeaderOriginalExchange, &o.Exchange)
	text(HeaderOriginalRoutingKey, &o.RoutingKey)
	text(HeaderOriginalQueue, &o.Queue)
	text(HeaderOriginalStream, &o.Stream)
	text(HeaderOriginalSubject, &o.Subject)
	if value, ok := h.Get(HeaderOriginalPartition); ok {
		if n, err := strconv.ParseInt(value, 10, 32); err == nil {
			o.Partition = int32(n)
		}
	}
	if value, ok := h.Get(HeaderOriginalOffset); ok {
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			o.Offset = n
		}
	}
	if value, ok := h.Get(HeaderOriginalTimestamp); ok {
		readTime(value, &o.At)
	}
	return o, o.Topic != "" || o.Exchange != "" || o.RoutingKey != "" || o.Queue != "" || o.Stream != "" || o.Subject != ""
}

// IsOriginal reports whether a header says where a message was at its broker.
func IsOriginal(name string) bool {
	switch name {
	case HeaderOriginalTopic, HeaderOriginalPartition, HeaderOriginalOffset, HeaderOriginalGroup, HeaderOriginalExchange,
		HeaderOriginalRoutingKey, HeaderOriginalQueue, HeaderOriginalStream, HeaderOriginalSubject, HeaderOriginalTimestamp,
		HeaderOriginalNoBody, HeaderOriginalNoHeaders, HeaderOriginalForm:
		return true
	}
	return false
}

// PlaceName names the place to publish to in one word: the topic, queue, stream's subject or
// stream, or "exchange/routing key" where no queue is known; "" if none is.
func PlaceName(o *Original) string {
	switch {
	case o.Topic != "":
		return o.Topic
	case o.Queue != "":
		return o.Queue
	case o.Subject != "":
		return o.Subject
	case o.Exchange != "":
		return o.Exchange + "/" + o.RoutingKey
	case o.RoutingKey != "": // of the default exchange: a queue
		return o.RoutingKey
	}
	return o.Stream
}
