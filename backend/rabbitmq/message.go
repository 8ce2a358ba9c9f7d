package rabbitmq

import (
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/amqpform"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/native"
	"github.com/redrive/redrive/internal/text"
)

// Names of the headers in which properties of AMQP stand that are no part of a message
// of ours. Those of the first group are properties again when the message is published.
const (
	headerContentType     = "content-type"
	headerContentEncoding = "content-encoding"
	headerCorrelationID   = "amqp-correlation-id"
	headerAppID           = "amqp-app-id"
	headerPriority        = "amqp-priority"

	headerReplyTo    = "amqp-reply-to"
	headerExpiration = "amqp-expiration" // it would run again where the message waits
	headerUserID     = "amqp-user-id"    // the broker refuses that of another
	headerMessageID  = "amqp-message-id" // one that cannot be an id of ours
	headerType       = "amqp-type"       // one that cannot be a kind of ours
)

// headerOrder names the headers in their order, a line each: a table of AMQP has neither
// an order nor a name twice. A name that repeats has an array of its values.
const headerOrder = headername.Order

// escape stands before names that mean something to the broker, which would act on them:
// CC and BCC send copies, x-death and its like are the broker's own.
const escape = headername.NativeAMQP

func brokers(name string) bool {
	return name == "CC" || name == "BCC" || strings.HasPrefix(name, "x-") || strings.HasPrefix(name, escape)
}

// write returns a message as AMQP carries it, with more headers than its own.
func write(m *redrive.Message, more ...redrive.Header) amqp.Publishing {
	return compose(m, func(names []string) bool { return !increasing(names) }, more)
}

// deadLetter is [write] for the queue of dead letters, whose readers are other programs: the order
// of headers is only told where a name repeats, which could not be read else.
func deadLetter(m *redrive.Message, more ...redrive.Header) amqp.Publishing {
	return compose(m, func(names []string) bool { return !increasing(slices.Sorted(slices.Values(names))) }, more)
}

func compose(m *redrive.Message, tellsOrder func(names []string) bool, more []redrive.Header) amqp.Publishing {
	p := amqp.Publishing{DeliveryMode: amqp.Persistent, MessageId: m.ID, Type: m.Kind, Body: m.Body, Timestamp: m.PublishedAt}
	if p.Timestamp.IsZero() {
		p.Timestamp = time.Now()
	}
	bare := *m
	bare.ID, bare.Kind, bare.Headers = "", "", nil
	ours := native.Headers(&bare, true)
	if len(ours)+len(m.Headers)+len(more) == 0 {
		return p
	}
	p.Headers = make(amqp.Table, len(ours)+len(m.Headers)+len(more)+1)
	for _, h := range append(ours, more...) {
		p.Headers[h.Name] = string(h.Value)
	}
	form := formOf(m)
	own := make(redrive.Headers, 0, len(m.Headers))
	names := make([]string, 0, len(m.Headers))
	for _, h := range m.Headers {
		h = native.Outside(h)
		if h.Name == headername.OriginalForm && form != nil || property(&p, h.Name, string(h.Value)) {
			continue
		}
		name := h.Name
		if _, taken := p.Headers[name]; taken || brokers(name) { // a result has headers of the names of a failure history's
			name = escape + name
		}
		own, names = append(own, h), append(names, name)
	}
	ordered := tellsOrder(names)
	for i := range own {
		value := form.value(&own[i])
		if _, list := value.([]any); list && ordered { // the order would make of it a name that repeats
			value = string(own[i].Value)
		}
		add(p.Headers, names[i], value)
	}
	if ordered {
		p.Headers[headerOrder] = strings.Join(names, "\n")
	}
	form.complete(&p)
	return p
}

// increasing reports whether names are sorted and none is there twice: then it is the order in
// which they are read.
func increasing(names []string) bool {
	for i := 1; i < len(names); i++ {
		if names[i-1] >= names[i] {
			return false
		}
	}
	return true
}

// form is what a message has beside headers and body that are text: noted when it came from a
// broker, and kept with it in every store. nil: it has nothing else.
type form amqpform.Form

func formOf(m *redrive.Message) *form {
	text, there := m.Headers.Get(headername.OriginalForm)
	if !there {
		return nil
	}
	f, ok := amqpform.Parse(text)
	if !ok { // that of another kind of broker
		return nil
	}
	return (*form)(&f)
}

// value returns the value of a header in the type that it came with.
func (f *form) value(h *redrive.Header) any {
	if f != nil {
		if kind, there := f.Types[h.Name]; there {
			return amqpform.Value(h.Value, kind)
		}
	}
	return string(h.Value)
}

// complete gives a message the properties that are not among its headers, as where it was
// attached.
func (f *form) complete(p *amqp.Publishing) {
	if f == nil {
		return
	}
	for _, s := range [...]struct {
		to   *string
		from string
	}{{&p.Type, f.Type}, {&p.CorrelationId, f.CorrelationID}, {&p.AppId, f.AppID}, {&p.ContentEncoding, f.Encoding}, {&p.ReplyTo, f.ReplyTo}} {
		if *s.to == "" && len(s.from) <= maxShort {
			*s.to = s.from
		}
	}
	if p.Priority == 0 {
		p.Priority = f.Priority
	}
}

// add puts a value into a table, beside those of the same name.
func add(t amqp.Table, name string, value any) {
	there, taken := t[name]
	switch list, ok := there.([]any); {
	case !taken:
		t[name] = value
	case ok:
		t[name] = append(list, value)
	default:
		t[name] = []any{there, value}
	}
}

// maxShort is how long a property of AMQP can be.
const maxShort = 255

// property makes a header a property of AMQP, if it is one.
func property(p *amqp.Publishing, name, value string) bool {
	to := (*string)(nil)
	switch name {
	case headerContentType:
		to = &p.ContentType
	case headerContentEncoding:
		to = &p.ContentEncoding
	case headerCorrelationID:
		to = &p.CorrelationId
	case headerAppID:
		to = &p.AppId
	case headerPriority:
		n, err := strconv.ParseUint(value, 10, 8)
		if err != nil || p.Priority != 0 {
			return false
		}
		p.Priority = uint8(n)
		return n > 0
	}
	if to == nil || *to != "" || value == "" || len(value) > maxShort {
		return false
	}
	*to = value
	return true
}

// read makes a message of what the broker pushed.
func (s *Source) read(it *item, d *redrive.Delivery) {
	in := &it.d
	d.Message = redrive.Message{Queue: s.o.Queue, Body: in.Body}
	if text.Dated(in.Timestamp) {
		d.PublishedAt = in.Timestamp
	}
	if len(in.Headers) > 0 {
		d.Headers = make(redrive.Headers, 0, len(in.Headers)+2)
	}
	readID(&d.Message, in.MessageId)
	if in.Type != "" {
		if probe := (redrive.Message{Queue: "q", Kind: in.Type}); probe.Validate() == nil {
			d.Kind = in.Type
		} else {
			d.Headers.Add(headerType, in.Type)
		}
	}
	for _, p := range [...]struct{ name, value string }{
		{headerContentType, in.ContentType}, {headerContentEncoding, in.ContentEncoding}, {headerCorrelationID, in.CorrelationId},
		{headerAppID, in.AppId}, {headerReplyTo, in.ReplyTo}, {headerExpiration, in.Expiration}, {headerUserID, in.UserId},
	} {
		if p.value != "" {
			d.Headers.Add(p.name, p.value)
		}
	}
	if in.Priority > 0 {
		d.Headers.Add(headerPriority, strconv.Itoa(int(in.Priority)))
	}
	readTable(&d.Message, in.Headers)
	history, ok := native.TakeHistory(&d.Message)
	d.Attempt = 1
	if ok {
		d.Attempt, d.Crashes, d.Failures, d.History = history.Attempts+1, history.Crashes, history.History.Count, &history.History
	}
	if len(d.Headers) == 0 {
		d.Headers = nil
	}
	d.Identity = redrive.IdentityMessage
	if d.ID == "" {
		if it.id == "" {
			it.id = redrive.NewID()
		}
		d.ID, d.Identity = it.id, redrive.IdentityNone
	}
	if d.Origin == "" {
		d.Origin = s.a.queue
	}
}

// readID takes the id of a publisher. What cannot be an id of ours is made into one.
func readID(m *redrive.Message, id string) {
	switch {
	case id == "":
	case driver.CheckID(id) == nil:
		m.ID = id
	default:
		m.ID = driver.DeriveID("amqp", id)
		m.Headers.Add(headerMessageID, id)
	}
}

// readTable puts the headers of AMQP into a message: those that are ours where they
// belong, the others in their order, as far as that is known, and the types of those that are no
// text in one more. What the broker itself noted is not the message's.
func readTable(m *redrive.Message, t amqp.Table) {
	if len(t) == 0 {
		return
	}
	order, _ := t[headerOrder].(string)
	var types amqpform.Form
	next := make(map[string]int) // of a name, which value comes next
	read := func(name string) {
		values, repeated := t[name].([]any)
		i := next[name]
		if next[name]++; repeated && order != "" {
			if i < len(values) {
				native.Read(m, plainName(name), types.Text(plainName(name), values[i]))
			}
			return
		}
		if i == 0 {
			native.Read(m, plainName(name), types.Text(plainName(name), t[name]))
		}
	}
	if order != "" {
		for name := range strings.SplitSeq(order, "\n") {
			if _, there := t[name]; there {
				read(name)
			}
		}
	}
	rest := make([]string, 0, len(t))
	for name := range t {
		if next[name] == 0 && name != headerOrder && name != "" && !noted(name) {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	for _, name := range rest {
		read(name)
	}
	if types.Types != nil {
		m.Headers.Add(headername.OriginalForm, types.String())
	}
}

// noted reports whether the broker writes the header itself, at every delivery or dead
// letter. A message that came back through queues of delays has x-death of each.
func noted(name string) bool {
	switch name {
	case "x-death", "x-delivery-count", "x-acquired-count", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason",
		"x-last-death-exchange", "x-last-death-queue", "x-last-death-reason":
		return true
	}
	return false
}

func plainName(name string) string { return strings.TrimPrefix(name, escape) }
