package delivery

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/headername"
)

// Bounds of an exchange.
const (
	dialTimeout       = 10 * time.Second
	idleTimeout       = 30 * time.Second // of a connection in the pool
	maxResponseHeader = 64 << 10         // bytes
	maxDrain          = 64 << 10         // bytes read of an answer nobody needs, to keep the connection
	maxFailureBody    = 16 << 10         // bytes read of a failure's answer
	excerptHead       = 2 << 10          // bytes kept of it
	excerptTail       = 1 << 10
	bodyPatience      = time.Second // how long such a body may take
)

// Headers of a result that is the answer of a target.
const (
	HeaderStatus    = headername.Status    // its HTTP status
	HeaderTruncated = headername.Truncated // "true": it was longer than MaxResponse
)

// HeaderDelivery is a header of an answer that is not 2xx, by which a receiver says what
// becomes of the message, whatever the status and the target's table of statuses:
// "abort-message" dead-letters it at once, "disable" turns the target off as 410 does. Svix
// understands the same. Other values are ignored.
const HeaderDelivery = "Webhook-Delivery"

// The values of HeaderDelivery.
const (
	deliveryAbort   = "abort-message"
	deliveryDisable = "disable"
)

// Handler delivers to one target. It is safe for concurrent use.
type Handler struct {
	url       *url.URL
	shown     string
	userAgent string
	timeout   time.Duration
	maxAnswer int
	statuses  redrive.Table
	lookup    func(string) (string, error)
	transport *http.Transport
	gates     []driver.Gate
	pause     *holdGate
	dropped   atomic.Uint64

	secrets  []string       // as configured
	static   []staticHeader // as configured
	password string         // of the URL
	refers   bool           // some secrets or headers are references
	ready    *credentials   // resolved once, if none is
}

var _ redrive.Handler = (*Handler)(nil)

// New returns a handler for a target. Its errors wrap [redrive.ErrInvalid], say what
// to do, and contain no secrets. Call [Handler.Close] when it is no longer used.
func New(t Target, o Options) (*Handler, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	u, user, err := parseURL(t.URL)
	if err != nil {
		return nil, err
	}
	h := &Handler{
		url:       u,
		shown:     show(u),
		userAgent: "redrive/devel",
		timeout:   t.Timeout,
		maxAnswer: t.MaxResponse,
		statuses:  t.Statuses,
		lookup:    o.Lookup,
		pause:     new(holdGate),
	}
	if o.Version != "" {
		h.userAgent = "redrive/" + o.Version
	}
	if h.timeout == 0 {
		h.timeout = DefaultTimeout
	}
	if h.maxAnswer == 0 {
		h.maxAnswer = DefaultMaxResponse
	}
	if h.lookup == nil {
		h.lookup = lookup
	}
	if err := h.newCredentials(&t, user); err != nil {
		return nil, err
	}
	h.gates = []driver.Gate{h.pause}
	if t.Concurrency > 0 {
		h.gates = append(h.gates, NewConcurrencyGate(t.Concurrency))
	}
	if t.Rate > 0 {
		h.gates = append(h.gates, NewRateGate(t.Rate, t.Burst))
	}
	h.transport = newTransport(&t, &o, h.timeout)
	return h, nil
}

// Dialer returns what connects only to the addresses that a target allows, for servers of other
// protocols. The target's URL does not matter. Its errors wrap [redrive.ErrInvalid].
func Dialer(t Target, o Options) (*net.Dialer, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	return newDialer(&t, &o, cmp.Or(t.Timeout, DefaultTimeout)), nil
}

func newDialer(t *Target, o *Options, timeout time.Duration) *net.Dialer {
	resolver := o.Resolver
	if resolver == nil {
		resolver = &net.Resolver{PreferGo: true}
	}
	return &net.Dialer{Timeout: min(dialTimeout, timeout), Resolver: resolver, ControlContext: newGuard(t).control}
}

// newTransport returns a transport that dials through the guard. Redirects, cookies
// and the URL in error texts are the business of http.Client, which is not used.
func newTransport(t *Target, o *Options, timeout time.Duration) *http.Transport {
	dialer := newDialer(t, o, timeout)
	pool := t.Concurrency
	if pool == 0 {
		pool = DefaultConnections
	}
	tlsConfig := o.TLS.Clone()
	if tlsConfig == nil {
		tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return &http.Transport{
		Proxy:                  nil, // a proxy of the environment would dial past the guard
		DialContext:            dialer.DialContext,
		TLSClientConfig:        tlsConfig,
		TLSHandshakeTimeout:    min(dialTimeout, timeout),
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // a bomb stays as small as it was sent
		MaxIdleConns:           pool,
		MaxIdleConnsPerHost:    pool,
		IdleConnTimeout:        idleTimeout,
		ResponseHeaderTimeout:  timeout,
		MaxResponseHeaderBytes: maxResponseHeader,
	}
}

// Target returns scheme and host of the URL, as any other part may be a secret: a name for
// [engine.QueueOptions.Target], logs and metrics.
func (h *Handler) Target() string { return h.shown }

// Gates returns the gates that keep the target's concurrency and rate, and that
// obey its Retry-After, for [engine.QueueOptions.Gates].
func (h *Handler) Gates() []driver.Gate { return h.gates }

// DroppedHeaders returns how many headers of messages were left out since the start
// because HTTP does not allow their name or value.
func (h *Handler) DroppedHeaders() uint64 { return h.dropped.Load() }

// Close closes idle connections. Deliveries under way go on.
func (h *Handler) Close() { h.transport.CloseIdleConnections() }

// ServeDelivery posts the message once. It returns nil if the target answered 2xx; the
// answer of a message with ReplyTo becomes its result.
func (h *Handler) ServeDelivery(parent context.Context, d *redrive.Delivery) error {
	began := time.Now()
	if err := driver.CheckID(d.ID); err != nil {
		return redrive.Permanent(err) // an id with a point could forge the signed text
	}
	creds, err := h.credentials()
	if err != nil {
		return redrive.TargetDown(err, refusalPause)
	}
	ctx, cancel := context.WithTimeout(parent, h.timeout)
	defer cancel()
	req, dropped := h.request(ctx, d, creds, began)
	attempt := func() Attempt {
		return Attempt{Target: h.shown, Duration: time.Since(began), Timeout: h.timeout, Dropped: dropped}
	}
	resp, err := h.transport.RoundTrip(req)
	if err != nil {
		return h.transportFailure(parent, attempt(), creds, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode/100 == 2 {
		err := h.accept(ctx, cancel, d, resp)
		if err != nil {
			return h.transportFailure(parent, attempt(), creds, err)
		}
		return nil
	}
	return h.refuse(attempt, cancel, creds, resp)
}

// request builds the request of one attempt. It has no GetBody, so that net/http
// cannot send it again.
func (h *Handler) request(ctx context.Context, d *redrive.Delivery, c *credentials, at time.Time) (req *http.Request, dropped int) {
	header, dropped := h.buildHeader(d, at)
	if dropped > 0 {
		h.dropped.Add(uint64(dropped))
	}
	if s := h.signature(d, at, c.keys); s != "" {
		header["Webhook-Signature"] = []string{s}
	}
	for _, s := range c.header {
		header[s.key] = []string{s.value}
	}
	req = &http.Request{
		Method:     http.MethodPost,
		URL:        h.url,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     header,
		Host:       h.url.Host,
		Body:       http.NoBody,
	}
	if len(d.Body) > 0 {
		req.Body = io.NopCloser(bytes.NewReader(d.Body))
		req.ContentLength = int64(len(d.Body))
	}
	return req.WithContext(ctx), dropped
}

// accept reads a good answer: as the result where one is wanted, else a little of
// it, so that the connection can be used again.
func (h *Handler) accept(ctx context.Context, cancel func(), d *redrive.Delivery, resp *http.Response) error {
	if d.ReplyTo == "" {
		if resp.ContentLength != 0 && resp.ContentLength <= maxDrain {
			defer time.AfterFunc(bodyPatience, cancel).Stop()
			_, _ = io.CopyN(io.Discard, resp.Body, maxDrain+1) // the message is delivered whatever comes
		}
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(h.maxAnswer)+1))
	if err != nil {
		return err // half a result is none; the target knows the id when it is asked again
	}
	var headers redrive.Headers
	if ct := resp.Header.Get("Content-Type"); ct != "" {
		headers.Add("content-type", ct)
	}
	if ce := resp.Header.Get("Content-Encoding"); ce != "" {
		headers.Add("content-encoding", ce)
	}
	headers.Add(HeaderStatus, strconv.Itoa(resp.StatusCode))
	if len(body) > h.maxAnswer {
		body = body[:h.maxAnswer]
		headers.Add(HeaderTruncated, "true")
	}
	redrive.Reply(ctx, body, headers)
	return nil
}

// refuse turns an answer that is not 2xx into a failure.
func (h *Handler) refuse(attempt func() Attempt, cancel func(), c *credentials, resp *http.Response) error {
	now := time.Now()
	e := &ResponseError{Status: resp.StatusCode}
	// After 101 the body is the bare connection, whose reads no context ends.
	if resp.StatusCode != http.StatusSwitchingProtocols {
		defer time.AfterFunc(bodyPatience, cancel).Stop()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxFailureBody)) // as much as came
		e.Excerpt = excerpt(redact(string(body), c.hide), excerptHead, excerptTail)
	}
	if to, err := resp.Location(); err == nil {
		to.User = nil
		e.Location = excerpt(redact(show(to), c.hide), 512, 0)
	}
	e.Attempt = attempt()
	switch strings.ToLower(resp.Header.Get(HeaderDelivery)) {
	case deliveryAbort:
		return redrive.Permanent(e)
	case deliveryDisable:
		return redrive.TargetGone(e)
	}
	after, asked := time.Duration(0), false
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		if after, asked = retryAfter(resp.Header, now); asked {
			e.RetryAfter = after
			h.pause.hold(now, after)
		}
	}
	return h.classify(e, after, asked)
}
