package httpguard

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/redrive/redrive/guard"
	"github.com/redrive/redrive/internal/headername"
)

// Transport is a guard as an http.RoundTripper: code that has an [http.Client] gets a
// guard by its Transport field. A request that was put off is answered 202 with a
// Location and a Retry-After; its body, and the answer's, are held in memory, at most
// MaxBody bytes. It is safe for concurrent use.
type Transport struct {
	Guard *guard.Guard[Request, Response]
	// Location returns where the later result can be had. Defaults to
	// /v1/queues/QUEUE/messages/ID.
	Location func(queue, id string) string
	// RetryAfter is when to look there. Defaults to 5 s.
	RetryAfter time.Duration
}

// HeaderTicket carries the id of a request that was put off.
const HeaderTicket = headername.ID

var _ http.RoundTripper = (*Transport)(nil)

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	r := Request{Method: req.Method, URL: req.URL.String(), Header: req.Header.Clone()}
	if req.Body != nil {
		body, err := io.ReadAll(io.LimitReader(req.Body, MaxBody+1))
		_ = req.Body.Close()
		if err != nil {
			return nil, err
		}
		if len(body) > MaxBody {
			return nil, permanent(fmt.Errorf("%w: the request has more than %d bytes", ErrTooLarge, MaxBody))
		}
		r.Body = body
	}
	res, err := t.Guard.Do(req.Context(), r)
	if err != nil {
		return nil, err
	}
	if res.Deferred() {
		return t.accepted(req, res.Ticket.Queue, res.Ticket.ID), nil
	}
	return response(req, res.Value), nil
}

func (t *Transport) accepted(req *http.Request, queue, id string) *http.Response {
	after := t.RetryAfter
	if after <= 0 {
		after = 5 * time.Second
	}
	location := "/v1/queues/" + queue + "/messages/" + id
	if t.Location != nil {
		location = t.Location(queue, id)
	}
	h := make(http.Header)
	h.Set("Location", location)
	h.Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	h.Set(HeaderTicket, id)
	return response(req, Response{Status: http.StatusAccepted, Header: h})
}

func response(req *http.Request, r Response) *http.Response {
	h := r.Header
	if h == nil {
		h = make(http.Header)
	}
	return &http.Response{Status: strconv.Itoa(r.Status) + " " + http.StatusText(r.Status), StatusCode: r.Status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: h, Body: io.NopCloser(bytes.NewReader(r.Body)),
		ContentLength: int64(len(r.Body)), Request: req}
}
