package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/problem"
)

// Names of request headers in canonical form, by which net/http keeps them.
var (
	headerID        = textproto.CanonicalMIMEHeaderKey(headername.ID)
	headerKind      = textproto.CanonicalMIMEHeaderKey(headername.Kind)
	headerKey       = textproto.CanonicalMIMEHeaderKey(headername.Key)
	headerDelay     = textproto.CanonicalMIMEHeaderKey(headername.Delay)
	headerDeliverAt = textproto.CanonicalMIMEHeaderKey(headername.DeliverAt)
	headerExpiresAt = textproto.CanonicalMIMEHeaderKey(headername.ExpiresAt)
	headerReplyTo   = textproto.CanonicalMIMEHeaderKey(headername.ReplyTo)
	headerPrefix    = textproto.CanonicalMIMEHeaderKey(headername.Own)
	ownPrefix       = textproto.CanonicalMIMEHeaderKey(reserved)
)

// kept are the request headers that travel with the message under their own names.
var kept = []struct{ from, to string }{
	{"Content-Type", "content-type"}, {"Traceparent", "traceparent"}, {"Tracestate", "tracestate"},
}

var jsonType = []string{"application/json"}

// single publishes the body as one message.
func (g *Gateway) single(w http.ResponseWriter, r *http.Request, queue string, mode eventMode) {
	msgs := make([]redrive.Message, 1) // not pooled: a sink may look at it after a cancelled call
	m := &msgs[0]
	m.Queue = queue
	if err := FromHeaders(m, r.Header); err != nil {
		Drain(w, r)
		g.refuse(w, r, invalidHeader(err))
		return
	}
	body, held, p := g.readBody(w, r)
	defer g.inFlight.release(held)
	if p != nil {
		g.refuse(w, r, p)
		return
	}
	m.Body = body
	if mode != noEvent {
		p = readEvent(m, mode, r.Header, body)
	}
	if p == nil {
		p = g.check(r, m)
	}
	if p != nil {
		g.refuse(w, r, p)
		return
	}
	err := driver.FirstError(g.sink.Publish(Lasting(r.Context()), msgs))
	duplicate := errors.Is(err, redrive.ErrDuplicate)
	if err != nil && !duplicate {
		p := g.publishProblem(queue, err)
		if errors.Is(err, redrive.ErrConflict) && first(r.Header, headerID) == "" && len(r.Header["Idempotency-Key"]) > 0 {
			p = keyReused()
		}
		g.refuse(w, r, p)
		return
	}
	g.accepted(r, m, duplicate)
	g.tellRoom(w.Header(), queue)
	writeAccepted(w, m, duplicate)
}

// readEvent makes the message that an event stands for.
func readEvent(m *redrive.Message, mode eventMode, h http.Header, body []byte) *problem.Problem {
	if mode == structuredEvent {
		m.Body = nil
		m.Headers.Del("content-type") // of the event
		return structured(body, m)
	}
	e, p := binary(h)
	if p != nil {
		return p
	}
	return e.apply(m)
}

func invalidHeader(err error) *problem.Problem {
	return problem.New(http.StatusBadRequest, "invalid-header", "A request header is not valid", err.Error(), "")
}

// keyReused is what the draft standard of Idempotency-Key asks for.
func keyReused() *problem.Problem {
	return problem.New(http.StatusUnprocessableEntity, "idempotency-key-reused", "The Idempotency-Key was used for another message",
		"", "use a key for one message only; keys are remembered for the queue's time of remember, 24h by default")
}

func (g *Gateway) accepted(r *http.Request, m *redrive.Message, duplicate bool) {
	if !duplicate {
		g.o.Accepted(m.Queue, 1)
	}
	if g.o.Logger.Enabled(r.Context(), slog.LevelDebug) {
		g.o.Logger.LogAttrs(r.Context(), slog.LevelDebug, "accepted", slog.String("queue", m.Queue), slog.String("id", m.ID),
			slog.String("kind", m.Kind), slog.Int("bytes", m.Size()), slog.Bool("duplicate", duplicate))
	}
}

// answers holds buffers for answers: they do not outlive their request.
var answers = sync.Pool{New: func() any { b := make([]byte, 0, 512); return &b }}

// writeAccepted answers 202. Queue and id need no escaping: their alphabets are
// small.
func writeAccepted(w http.ResponseWriter, m *redrive.Message, duplicate bool) {
	buffer := answers.Get().(*[]byte)
	defer answers.Put(buffer)
	h := w.Header()
	h["Content-Type"] = jsonType
	h["Location"] = []string{"/v1/queues/" + m.Queue + "/messages/" + m.ID}
	w.WriteHeader(http.StatusAccepted)
	b := append((*buffer)[:0], `{"queue":"`...)
	b = append(b, m.Queue...)
	b = append(b, `","id":"`...)
	b = append(b, m.ID...)
	b = append(b, '"')
	if duplicate {
		b = append(b, `,"duplicate":true`...)
	}
	if m.ReplyTo != "" && driver.CheckQueue(m.ReplyTo) == nil {
		b = append(b, `,"result":"/v1/queues/`...)
		b = append(b, m.ReplyTo...)
		b = append(b, `/messages/`...)
		b = append(b, driver.ResultID(m)...)
		b = append(b, '"')
	}
	b = append(b, "}\n"...)
	_, _ = w.Write(b) // the caller is gone if this fails; the message is safe
	*buffer = b
}

// FromHeaders fills in what the headers of a request say of a message: everything but
// its queue and body. Its errors are for the caller of the request.
func FromHeaders(m *redrive.Message, h http.Header) (err error) {
	if m.ID, err = idFromHeaders(h); err != nil {
		return err
	}
	m.Kind, m.Key, m.ReplyTo = first(h, headerKind), first(h, headerKey), first(h, headerReplyTo)
	if s := first(h, headerDelay); s != "" {
		if m.Delay, err = parseDelay(headername.Delay, s); err != nil {
			return err
		}
	}
	if s := first(h, headerDeliverAt); s != "" {
		if m.DeliverAt, err = parseTime(headername.DeliverAt, s); err != nil {
			return err
		}
	}
	if s := first(h, headerExpiresAt); s != "" {
		if m.ExpiresAt, err = parseTime(headername.ExpiresAt, s); err != nil {
			return err
		}
	}
	if err := ownHeaders(m, h); err != nil {
		return err
	}
	for _, k := range kept {
		if v := first(h, k.from); v != "" && !hasHeader(m.Headers, k.to) {
			m.Headers.Add(k.to, v)
		}
	}
	return nil
}

// ownHeaders takes redrive-header-NAME as header NAME, in lower case as HTTP does
// not keep the case, sorted as net/http does not keep the order. An unknown name of
// ours is refused: "redrive-dealy" must not be lost in silence.
func ownHeaders(m *redrive.Message, h http.Header) error {
	for name, values := range h {
		if !strings.HasPrefix(name, ownPrefix) {
			continue
		}
		rest, ok := strings.CutPrefix(name, headerPrefix)
		if !ok {
			if !slices.Contains([]string{headerID, headerKind, headerKey, headerDelay, headerDeliverAt, headerExpiresAt, headerReplyTo}, name) {
				return fmt.Errorf("unknown header %s: a header of the message is redrive-header-NAME", strings.ToLower(name))
			}
			if len(values) > 1 {
				return fmt.Errorf("header %s stands in the request %d times", strings.ToLower(name), len(values))
			}
			continue
		}
		for _, v := range values {
			if err := addHeader(m, strings.ToLower(rest), v); err != nil {
				return err
			}
		}
	}
	slices.SortStableFunc(m.Headers, func(a, b redrive.Header) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// idFromHeaders returns the id that the caller chose, or "". An Idempotency-Key
// that is no id as it stands names one that is derived from it.
func idFromHeaders(h http.Header) (string, error) {
	if id := first(h, headerID); id != "" {
		return id, nil
	}
	key, err := idempotencyKey(h)
	if err != nil || key == "" || driver.CheckID(key) == nil {
		return key, err
	}
	return driver.DeriveID("idempotency-key", key), nil
}

// idempotencyKey reads the header, quoted as the draft standard has it or not.
func idempotencyKey(h http.Header) (string, error) {
	values := h["Idempotency-Key"]
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	if len(values) > 1 {
		return "", errors.New("duplicate Idempotency-Key header")
	}
	if len(key) >= 2 && key[0] == '"' && key[len(key)-1] == '"' {
		key = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(key[1 : len(key)-1])
	}
	if key == "" || len(key) > 256 {
		return "", fmt.Errorf("Idempotency-Key of %d bytes: use 1-256", len(key))
	}
	return key, nil
}

// first is http.Header.Get for a name that is canonical already.
func first(h http.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// firstRead is how much room a body gets before it has come: a client that only
// announces a large body holds no memory.
const firstRead = 64 << 10

// growth is by how much the room of a body grows: what was read before is garbage then, a
// third of the body in all.
const growth = 4

// readBody reads the whole body within its limits. The second result is what the
// caller releases from the budget.
func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request) (body []byte, held int64, p *problem.Problem) {
	if r.ContentLength > g.o.MaxBody {
		Drain(w, r)
		return nil, 0, g.oversize()
	}
	if r.ContentLength == 0 {
		return nil, 0, nil
	}
	size := int64(firstRead)
	if r.ContentLength > 0 {
		size = min(size, r.ContentLength)
	}
	src := g.o.Pace.wrap(w, r)
	refused := func(p *problem.Problem) ([]byte, int64, *problem.Problem) {
		body = nil
		g.inFlight.release(held) // what follows is not kept
		discard(src)
		return nil, 0, p
	}
	for {
		if p := g.inFlight.reserve(size - int64(cap(body))); p != nil {
			return refused(p)
		}
		held = size
		grown := make([]byte, len(body), size)
		copy(grown, body)
		body = grown
		n, err := io.ReadFull(src, body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > g.o.MaxBody:
			return refused(g.oversize())
		case err == io.EOF || err == io.ErrUnexpectedEOF && src.ended.Load(), err == nil && int64(len(body)) == r.ContentLength:
			return clip(body), held, nil
		case err != nil:
			return nil, held, g.readProblem(err)
		}
		size = min(growth*size, g.o.MaxBody+1) // one more tells a full body from one over the limit
		if r.ContentLength > 0 {
			size = min(size, r.ContentLength)
		}
	}
}

// clip gives back room that the body of unknown length did not need, as a store may
// keep it for long.
func clip(b []byte) []byte {
	if cap(b)-len(b) > 4<<10 {
		return bytes.Clone(b)
	}
	return b
}

func (g *Gateway) oversize() *problem.Problem {
	return problem.New(http.StatusRequestEntityTooLarge, "oversize", "The body is too large",
		fmt.Sprintf("the limit is %d bytes", g.o.MaxBody), "keep large data elsewhere and send a reference")
}

// readProblem says why the body could not be read.
func (g *Gateway) readProblem(err error) *problem.Problem {
	var p *problem.Problem
	if errors.As(err, &p) {
		return p
	}
	return problem.New(http.StatusBadRequest, "broken-body", "The body broke off", err.Error(), "send it again")
}
