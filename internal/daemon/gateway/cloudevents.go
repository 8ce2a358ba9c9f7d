package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/problem"
)

// CloudEvents 1.0 over HTTP. An event of any mode becomes the same message, in the form
// of the binary mode: the data is the body, each attribute a header "ce-NAME", and
// datacontenttype the content type. Its type is the message's kind, its source and id
// together the message's id, so that an event that is sent again is recognised; the
// extensions partitionkey, expirytime, traceparent and tracestate mean what they say.
const (
	mediaEvent = "application/cloudevents+json"
	mediaBatch = "application/cloudevents-batch+json"

	eventPrefix = "ce-"
	maxBatch    = 1000 // events of a batch
)

// eventMode is how a request carries events.
type eventMode uint8

const (
	noEvent eventMode = iota
	binaryEvent
	structuredEvent
	batchedEvents
)

// modeOf tells how a request carries events.
func modeOf(h http.Header) (eventMode, *problem.Problem) {
	if t := first(h, "Content-Type"); strings.Contains(t, "cloudevents") {
		switch media, _, err := mime.ParseMediaType(t); {
		case err != nil:
		case media == mediaEvent:
			return structuredEvent, nil
		case media == mediaBatch:
			return batchedEvents, nil
		}
		return noEvent, problem.New(http.StatusUnsupportedMediaType, "content-type", "The format of events is not supported", "Content-Type: "+t,
			"send "+mediaEvent+", "+mediaBatch+", or the attributes as ce- headers")
	}
	if len(h["Ce-Specversion"]) > 0 {
		return binaryEvent, nil
	}
	return noEvent, nil
}

func badEvent(format string, args ...any) *problem.Problem {
	return problem.New(http.StatusBadRequest, "invalid-event", "The request is not a CloudEvent", fmt.Sprintf(format, args...), "see https://github.com/cloudevents/spec (version 1.0)")
}

// event is the attributes of an event, in lower case.
type event map[string]string

// apply puts an event into a message, where the request's own headers have not said
// otherwise.
func (e event) apply(m *redrive.Message) *problem.Problem {
	if v := e["specversion"]; v != "1.0" {
		return badEvent("specversion %q: only 1.0 is supported", v)
	}
	for _, name := range []string{"id", "source", "type"} {
		if e[name] == "" {
			return badEvent("the attribute %s is missing or empty", name)
		}
	}
	if m.ID == "" {
		m.ID = driver.DeriveID("cloudevent", e["source"], e["id"])
	}
	if m.Kind == "" {
		m.Kind = e["type"]
	}
	if m.Key == "" {
		m.Key = e["partitionkey"]
	}
	if t := e["expirytime"]; t != "" && m.ExpiresAt.IsZero() {
		at, err := time.Parse(time.RFC3339Nano, t)
		if err != nil {
			return badEvent("expirytime %q is not a time of RFC 3339", t)
		}
		m.ExpiresAt = at
	}
	if t := e["time"]; t != "" {
		if _, err := time.Parse(time.RFC3339Nano, t); err != nil {
			return badEvent("time %q is not a time of RFC 3339", t)
		}
	}
	names := make([]string, 0, len(e))
	for name := range e {
		if !attributeName(name) {
			return badEvent("attribute %q: names are lower-case letters and digits", name)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch name {
		case "datacontenttype":
			m.Headers.Set("content-type", e[name])
		case "traceparent", "tracestate":
			m.Headers.Set(name, e[name])
		default:
			m.Headers.Add(eventPrefix+name, e[name])
		}
	}
	return nil
}

func attributeName(name string) bool {
	return name != "" && len(name) <= 64 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// binary reads the attributes of the binary mode from a request's headers.
func binary(h http.Header) (event, *problem.Problem) {
	e := make(event)
	for name, values := range h {
		attribute, ok := strings.CutPrefix(name, "Ce-")
		if !ok {
			continue
		}
		if len(values) > 1 {
			return nil, badEvent("the attribute %s stands in the request %d times", strings.ToLower(attribute), len(values))
		}
		value, err := url.PathUnescape(values[0])
		if err != nil {
			return nil, badEvent("the value of %s is not percent-encoded", strings.ToLower(name))
		}
		e[strings.ToLower(attribute)] = value
	}
	return e, nil
}

// ReadStructuredEvent fills in what a CloudEvent in structured JSON says of a message,
// where the message has not said otherwise. The error, if any, is a [problem.Problem].
func ReadStructuredEvent(m *redrive.Message, raw []byte) error {
	p := structured(raw, m)
	if p == nil { // a nil *Problem would be an error that is not nil
		return nil
	}
	return p
}

// structured reads an event in JSON into a message.
func structured(raw []byte, m *redrive.Message) *problem.Problem {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return badEvent("not a JSON object")
	}
	w := walker{b: raw}
	w.space()
	if err := w.object(func(string) error { _, err := w.value(); return err }); err != nil { // data is the user's own
		return badEvent("%v", err)
	}
	e := make(event, len(fields))
	for name, value := range fields {
		var p *problem.Problem
		switch name {
		case "data":
		case "data_base64":
			var text string
			if json.Unmarshal(value, &text) != nil {
				return badEvent("data_base64 is not a string")
			}
			data, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				return badEvent("data_base64: %v", err)
			}
			m.Body = data
		default:
			e[name], p = attribute(name, value)
		}
		if p != nil {
			return p
		}
		if string(value) == "null" {
			delete(e, name)
		}
	}
	data, ok := fields["data"]
	if _, both := fields["data_base64"]; ok && both {
		return badEvent("both data and data_base64")
	}
	if ok {
		m.Body = eventData(data, e["datacontenttype"])
	}
	if e["datacontenttype"] == "" && ok {
		e["datacontenttype"] = "application/json"
	}
	return e.apply(m)
}

// attribute returns a value in its canonical form: a string, a number or a boolean.
func attribute(name string, value json.RawMessage) (string, *problem.Problem) {
	switch {
	case len(value) > 0 && value[0] == '"':
		var text string
		if json.Unmarshal(value, &text) == nil {
			return text, nil
		}
	case string(value) == "true", string(value) == "false", string(value) == "null":
		return string(value), nil
	case len(value) > 0 && (value[0] == '-' || value[0] >= '0' && value[0] <= '9'):
		return string(value), nil
	}
	return "", badEvent("the attribute %s is neither a string, a number nor a boolean", name)
}

// eventData is the body that data stands for: as JSON, or the text itself where the
// content type says that it is not JSON.
func eventData(data json.RawMessage, contentType string) []byte {
	var text string
	if contentType != "" && !isJSON(contentType) && json.Unmarshal(data, &text) == nil {
		return []byte(text)
	}
	return bytes.Clone(data)
}

func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err != nil || strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json")
}

// batched publishes a batch of events. It succeeds as a whole; as the events' ids make
// a repetition harmless, the sender repeats what failed as a whole, too.
func (g *Gateway) batched(w http.ResponseWriter, r *http.Request, queue string) {
	body, held, p := g.readBody(w, r)
	defer g.inFlight.release(held)
	if p != nil {
		g.refuse(w, r, p)
		return
	}
	msgs, p := g.batchMessages(r, queue, body)
	if p != nil {
		g.refuse(w, r, p)
		return
	}
	if len(msgs) == 0 {
		g.writeBatch(w, nil, nil)
		return
	}
	errs := g.sink.Publish(Lasting(r.Context()), msgs)
	stored := 0
	var failed error
	for i := range msgs {
		var err error
		if errs != nil {
			err = errs[i]
		}
		switch {
		case err == nil, errors.Is(err, redrive.ErrDuplicate):
			g.accepted(r, &msgs[i], err != nil)
			stored++
		case failed == nil:
			failed = err
		}
	}
	if failed != nil {
		p := *g.publishProblem(queue, failed)
		p.Detail = strings.TrimPrefix(fmt.Sprintf("%s; %d of %d events were stored, and are recognised when the batch is sent again", p.Detail, stored, len(msgs)), "; ")
		g.refuse(w, r, &p)
		return
	}
	g.tellRoom(w.Header(), queue)
	g.writeBatch(w, msgs, errs)
}

// batchMessages makes messages of the events of a batch, all or none.
func (g *Gateway) batchMessages(r *http.Request, queue string, body []byte) ([]redrive.Message, *problem.Problem) {
	var events []json.RawMessage
	if err := json.Unmarshal(body, &events); err != nil || events == nil {
		return nil, badEvent("the batch is not a JSON array")
	}
	if len(events) > maxBatch {
		return nil, problem.New(http.StatusRequestEntityTooLarge, "oversize", "The batch is too large", fmt.Sprintf("%d events; the limit is %d", len(events), maxBatch), "send several batches")
	}
	msgs := make([]redrive.Message, len(events))
	for i, raw := range events {
		m := &msgs[i]
		if err := FromHeaders(m, r.Header); err != nil {
			return nil, invalidHeader(err)
		}
		m.Queue = queue
		m.Headers.Del("content-type") // of the batch
		if m.ID != "" {
			return nil, invalidHeader(errors.New("a batch takes its ids from its events"))
		}
		p := structured(raw, m)
		if p == nil {
			p = g.check(r, m)
		}
		if p != nil {
			q := *p
			q.Detail = fmt.Sprintf("event %d: %s", i+1, p.Detail)
			return nil, &q
		}
	}
	return msgs, nil
}

// writeBatch answers 202 with the ids, in order.
func (g *Gateway) writeBatch(w http.ResponseWriter, msgs []redrive.Message, errs []error) {
	type accepted struct {
		Queue     string `json:"queue"`
		ID        string `json:"id"`
		Duplicate bool   `json:"duplicate,omitempty"`
	}
	items := make([]accepted, len(msgs))
	for i := range msgs {
		items[i] = accepted{msgs[i].Queue, msgs[i].ID, errs != nil && errs[i] != nil}
	}
	body, err := json.Marshal(map[string][]accepted{"items": items})
	if err != nil { // no field can fail to encode
		g.o.Logger.Error("batch answer", slog.Any("error", err))
	}
	w.Header()["Content-Type"] = jsonType
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write(append(body, '\n')) // the caller is gone if this fails; the messages are safe
}
