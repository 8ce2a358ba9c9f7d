package native

import (
	"strconv"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/headername"
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
	h.text(headername.OriginalTopic, o.Topic)
	if o.Partition >= 0 {
		h.text(headername.OriginalPartition, strconv.Itoa(int(o.Partition)))
	}
	if o.Offset >= 0 {
		h.text(headername.OriginalOffset, strconv.FormatInt(o.Offset, 10))
	}
	h.text(headername.OriginalGroup, o.Group)
	h.text(headername.OriginalExchange, o.Exchange)
	h.text(headername.OriginalRoutingKey, o.RoutingKey)
	h.text(headername.OriginalQueue, o.Queue)
	h.text(headername.OriginalStream, o.Stream)
	h.text(headername.OriginalSubject, o.Subject)
	h.time(headername.OriginalTimestamp, o.At)
	return redrive.Headers(h)
}

// ReadOriginal returns the place that headers name, the first of each name, and whether
// they name one to publish to.
func ReadOriginal(h redrive.Headers) (Original, bool) {
	o := NewOriginal()
	text := func(name string, to *string) {
		*to, _ = h.Get(name)
	}
	text(headername.OriginalTopic, &o.Topic)
	text(headername.OriginalGroup, &o.Group)
	text(headername.OriginalExchange, &o.Exchange)
	text(headername.OriginalRoutingKey, &o.RoutingKey)
	text(headername.OriginalQueue, &o.Queue)
	text(headername.OriginalStream, &o.Stream)
	text(headername.OriginalSubject, &o.Subject)
	if value, ok := h.Get(headername.OriginalPartition); ok {
		if n, err := strconv.ParseInt(value, 10, 32); err == nil {
			o.Partition = int32(n)
		}
	}
	if value, ok := h.Get(headername.OriginalOffset); ok {
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			o.Offset = n
		}
	}
	if value, ok := h.Get(headername.OriginalTimestamp); ok {
		readTime(value, &o.At)
	}
	return o, o.Topic != "" || o.Exchange != "" || o.RoutingKey != "" || o.Queue != "" || o.Stream != "" || o.Subject != ""
}

// IsOriginal reports whether a header says where a message was at its broker.
func IsOriginal(name string) bool {
	switch name {
	case headername.OriginalTopic, headername.OriginalPartition, headername.OriginalOffset, headername.OriginalGroup, headername.OriginalExchange,
		headername.OriginalRoutingKey, headername.OriginalQueue, headername.OriginalStream, headername.OriginalSubject, headername.OriginalTimestamp,
		headername.OriginalNoBody, headername.OriginalNoHeaders, headername.OriginalForm:
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
