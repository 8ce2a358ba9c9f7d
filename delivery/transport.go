package delivery

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/headername"
)

// Transport returns an [http.RoundTripper] that sends requests as deliveries to this
// target are sent: only to addresses that are allowed, with the target's own headers,
// and signed under the id in the header webhook-id. Other headers that belong to a
// delivery are dropped. Its errors are [RefusedError] and [TransportError]. Use it in a
// client that follows no redirects.
func (h *Handler) Transport() http.RoundTripper { return roundTripper{h} }

// Header returns the headers that a message is delivered with but its signature and the
// target's own.
func (h *Handler) Header(d *redrive.Delivery) http.Header {
	header, dropped := h.buildHeader(d, time.Now())
	h.dropped.Add(uint64(dropped)) //nolint:gosec // a count
	return header
}

type roundTripper struct{ h *Handler }

// kept are reserved headers that a request brings along.
var kept = map[string]bool{"webhook-id": true, headername.Attempt: true, headername.Queue: true, headername.Kind: true}

// RoundTrip implements http.RoundTripper.
func (t roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	h, began := t.h, time.Now()
	var body []byte
	if req.Body != nil {
		var err error
		body, err = io.ReadAll(req.Body)
		_ = req.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	creds, err := h.credentials()
	if err != nil {
		return nil, err
	}
	out := req.Clone(req.Context())
	out.GetBody = nil // net/http must not send it again
	out.Body, out.ContentLength = http.NoBody, 0
	if len(body) > 0 {
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	}
	out.Host = ""
	out.Header = h.outgoing(req.Header, creds, began, body)
	resp, err := h.transport.RoundTrip(out)
	if err != nil {
		return nil, h.transportError(req.Context(), Attempt{Target: h.shown, Duration: time.Since(began), Timeout: h.timeout}, creds, err)
	}
	return resp, nil
}

// outgoing returns the headers of one attempt.
func (h *Handler) outgoing(from http.Header, c *credentials, at time.Time, body []byte) http.Header {
	header := make(http.Header, len(from)+4)
	for name, values := range from {
		if lower := strings.ToLower(name); !reserved(lower) || forwardedOurs[lower] || kept[lower] {
			header[headerKey(name)] = values
		}
	}
	header["User-Agent"] = []string{h.userAgent}
	if id := from.Get("Webhook-Id"); redrive.CheckID(id) == nil {
		header["Webhook-Timestamp"] = []string{strconv.FormatInt(at.Unix(), 10)}
		if s := h.signature(&redrive.Delivery{Message: redrive.Message{ID: id, Body: body}}, at, c.keys); s != "" {
			header["Webhook-Signature"] = []string{s}
		}
	}
	for _, s := range c.header {
		header[s.key] = []string{s.value}
	}
	return header
}
