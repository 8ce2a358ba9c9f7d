// Package gateway takes messages in over HTTP and publishes them to a
// [redrive.Sink]: one message a request, or a stream of NDJSON with a result for
// each line.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/problem"
)

// Options configures a [Gateway]. Every field has a default.
type Options struct {
	// MaxBody is the largest body of a message, in bytes. Defaults to
	// [redrive.MaxBodySize], which is also its bound.
	MaxBody int64
	// MaxInFlight bounds the bytes of bodies in memory over all requests; what
	// exceeds it is answered 503. Defaults to 256 MiB.
	MaxInFlight int64
	// BatchCount and BatchBytes bound what is read ahead of a commit, for each
	// NDJSON stream. They default to 1000 messages and 1 MiB.
	BatchCount int
	BatchBytes int
	// WriteTimeout bounds how long a client may leave results of a stream unread.
	// Defaults to 60 s.
	WriteTimeout time.Duration
	// Pace bounds how slowly a body may come.
	Pace Pace
	// AllowQueue refuses queues, best with a [problem.Problem]. Defaults to allowing
	// every valid name.
	AllowQueue func(queue string) error
	// AllowReply refuses where the result of a request's message shall go. Defaults to
	// allowing everything.
	AllowReply func(r *http.Request, replyTo string) error
	// Accepted receives that n messages of a queue were made durable, and Shed that n
	// were refused for lack of room or time. Both are on the hot path. Optional.
	Accepted func(queue string, n int)
	Shed     func(reason string, n int)
	// Logger gets accepted messages at debug level and faults. Defaults to
	// [slog.Default].
	Logger *slog.Logger
}

// Gateway is an http.Handler for POST requests. It takes the queue's name from the
// path value "queue", so it is mounted under a pattern such as
// "POST /v1/queues/{queue}/messages". It is safe for concurrent use.
type Gateway struct {
	sink     redrive.Sink
	limits   driver.LimitedSink // nil: none
	o        Options
	maxLine  int
	inFlight budget
	refusing atomic.Bool
	draining context.Context //nolint:containedctx // it ends with Drain, not with a request
	drain    context.CancelFunc
}

// New returns a Gateway that publishes to sink.
func New(sink redrive.Sink, o Options) *Gateway {
	if o.MaxBody <= 0 || o.MaxBody > redrive.MaxBodySize {
		o.MaxBody = redrive.MaxBodySize
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = 256 << 20
	}
	if o.BatchCount <= 0 {
		o.BatchCount = 1000
	}
	if o.BatchBytes <= 0 {
		o.BatchBytes = 1 << 20
	}
	if o.WriteTimeout <= 0 {
		o.WriteTimeout = time.Minute
	}
	o.Pace = o.Pace.withDefaults()
	if o.AllowQueue == nil {
		o.AllowQueue = func(string) error { return nil }
	}
	if o.AllowReply == nil {
		o.AllowReply = func(*http.Request, string) error { return nil }
	}
	if o.Accepted == nil {
		o.Accepted = func(string, int) {}
	}
	if o.Shed == nil {
		o.Shed = func(string, int) {}
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	g := &Gateway{sink: sink, o: o, inFlight: budget{limit: o.MaxInFlight}}
	g.limits, _ = driver.As[driver.LimitedSink](sink)
	// A body in base64 takes a third more, the rest of the line has room beside it.
	g.maxLine = int(o.MaxBody)/3*4 + 2*redrive.MaxHeaderSize
	g.draining, g.drain = context.WithCancel(context.Background())
	return g
}

// Drain lets streams end at the line they have come to; what was read is still
// committed and answered. New requests are refused. It returns at once.
func (g *Gateway) Drain() {
	g.refusing.Store(true)
	g.drain()
}

// EndStreams is Drain without the refusal of new requests: for a caller that keeps the sink
// open until all have been answered.
func (g *Gateway) EndStreams() { g.drain() }

// Draining is closed by Drain and EndStreams.
func (g *Gateway) Draining() <-chan struct{} { return g.draining.Done() }

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		problem.New(http.StatusMethodNotAllowed, "method", "Messages are published with POST", r.Method, "use POST").Write(w, r)
		return
	}
	queue := r.PathValue("queue")
	if p := g.admit(queue, r); p != nil {
		Drain(w, r)
		g.refuse(w, r, p)
		return
	}
	if isNDJSON(r.Header.Get("Content-Type")) {
		g.stream(w, r, queue)
		return
	}
	mode, p := modeOf(r.Header)
	switch {
	case p != nil:
		Drain(w, r)
		g.refuse(w, r, p)
	case mode == batchedEvents:
		g.batched(w, r, queue)
	default:
		g.single(w, r, queue, mode)
	}
}

// check refuses a message that no store would take, or whose result may not go where
// it asks for, and any message when the life of its request is over (see [Within]).
func (g *Gateway) check(r *http.Request, m *redrive.Message) *problem.Problem {
	if p := Ended(r.Context()); p != nil {
		return p
	}
	if int64(len(m.Body)) > g.o.MaxBody {
		return g.oversize()
	}
	if err := m.Validate(); err != nil {
		return problem.Of(err)
	}
	if m.ReplyTo != "" {
		if err := g.o.AllowReply(r, m.ReplyTo); err != nil {
			return problem.Of(err)
		}
	}
	return nil
}

// admit checks what can be checked before the body is read.
func (g *Gateway) admit(queue string, r *http.Request) *problem.Problem {
	if g.refusing.Load() {
		return problem.Of(redrive.ErrClosed)
	}
	if err := driver.CheckQueue(queue); err != nil {
		return problem.Of(err)
	}
	if strings.HasPrefix(queue, "_") {
		return problem.New(http.StatusForbidden, "system-queue", "The queue belongs to the system", queue, "choose a name that does not begin with an underscore")
	}
	if err := g.o.AllowQueue(queue); err != nil {
		return problem.Of(err)
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return problem.New(http.StatusUnsupportedMediaType, "content-encoding", "The body is compressed", "Content-Encoding: "+e, "send it uncompressed")
	}
	return nil
}

// refuse answers with a problem, counted and logged where that is due.
func (g *Gateway) refuse(w http.ResponseWriter, r *http.Request, p *problem.Problem) {
	queue := r.PathValue("queue")
	g.note(r.Context(), queue, "", p)
	if p.Status == http.StatusTooManyRequests {
		g.tellRoom(w.Header(), queue)
	}
	p.Write(w, r)
}

// tellRoom tells, above the soft limit, how many messages still have room, by the draft
// standard (draft-ietf-httpapi-ratelimit-headers). Below it nothing needs to slow down.
func (g *Gateway) tellRoom(h http.Header, queue string) {
	if g.limits == nil {
		return
	}
	left, limit, reset := g.limits.Room(queue)
	if limit == 0 {
		return
	}
	h.Add("RateLimit-Policy", fmt.Sprintf(`"backlog";q=%d`, limit))
	h.Add("RateLimit", fmt.Sprintf(`"backlog";r=%d;t=%d`, left, int64(math.Ceil(reset.Seconds()))))
}

// note counts what was shed and logs faults of ours.
func (g *Gateway) note(ctx context.Context, queue, id string, p *problem.Problem) {
	switch p.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInsufficientStorage:
		g.o.Shed(p.Name(), 1)
		if errors.Is(p, redrive.ErrUnavailable) {
			g.o.Logger.LogAttrs(ctx, slog.LevelWarn, "publish failed", slog.String("queue", queue), slog.Any("error", p.Unwrap()))
		}
	case http.StatusInternalServerError:
		g.o.Logger.LogAttrs(ctx, slog.LevelError, "publish failed", slog.String("queue", queue), slog.String("id", id), slog.Any("error", p.Unwrap()))
	}
}

// publishProblem turns an item's error into a problem with a computed Retry-After.
func (g *Gateway) publishProblem(queue string, err error) *problem.Problem {
	p := problem.Of(err)
	if p.Status == http.StatusTooManyRequests && p.RetryAfter == 0 {
		p.After(g.retryAfter(queue))
	}
	return p
}

func (g *Gateway) retryAfter(queue string) time.Duration {
	if g.limits != nil {
		if _, after := g.limits.Level(queue); after > 0 {
			return after
		}
	}
	return time.Second
}

func isNDJSON(contentType string) bool {
	if !strings.Contains(contentType, "ndjson") {
		return false
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == "application/x-ndjson"
}
