// Package problem is the one shape of errors over HTTP: problem+json (RFC 9457),
// with a hint that tells the caller what to do.
package problem

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
)

// ContentType is the media type of a problem.
const ContentType = "application/problem+json"

// TypePrefix begins every type; the rest is a stable name such as "backlogged".
const TypePrefix = "urn:redrive:problem:"

// Problem is an error as it goes over the wire. It is itself an error, so that a
// handler can return it and a client can unwrap it.
type Problem struct {
	Type     string   `json:"type"`               // TypePrefix and a stable name
	Title    string   `json:"title"`              // what kind of problem it is
	Status   int      `json:"status"`             // the HTTP status
	Detail   string   `json:"detail,omitempty"`   // what was wrong this time
	Instance string   `json:"instance,omitempty"` // the path that was asked for
	Hint     string   `json:"hint,omitempty"`     // what to do about it
	Queues   []string `json:"queues,omitempty"`   // the queues there are, when an unknown one was named
	// ViolatedPolicies names the limits that were reached, as in the header RateLimit.
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
	// RetryAfter is the number of seconds after which repeating may help; 0: not
	// known. It is also sent as the header Retry-After.
	RetryAfter int `json:"retry_after,omitempty"`

	cause error
}

// New returns a problem of the given name.
func New(status int, name, title, detail, hint string) *Problem {
	return &Problem{Type: TypePrefix + name, Title: title, Status: status, Detail: detail, Hint: hint}
}

// Name returns the type without its prefix, of a registered type its name.
func (p *Problem) Name() string {
	return strings.TrimPrefix(p.Type[strings.LastIndexByte(p.Type, '#')+1:], TypePrefix)
}

// Error joins title, detail and hint into one line.
func (p *Problem) Error() string {
	s := p.Title
	if p.Detail != "" {
		s += ": " + p.Detail
	}
	if p.Hint != "" {
		s += " (" + p.Hint + ")"
	}
	return s
}

// ErrorName implements [redrive.NamedError].
func (*Problem) ErrorName() string { return "redrive.Problem" }

// Unwrap returns the error that the problem was made of, if any.
func (p *Problem) Unwrap() error { return p.cause }

// Known returns the error of the root package that has the problem's name, so that a
// client may tell by [errors.Is] what a server meant; nil if none has.
func (p *Problem) Known() error {
	name := p.Name()
	for _, k := range kinds {
		if k.name == name && k.err != context.DeadlineExceeded && k.err != context.Canceled { //nolint:errorlint // those would be the client's own
			return k.err
		}
	}
	return nil
}

// After sets RetryAfter, rounded up to whole seconds and at least one, and returns
// the problem.
func (p *Problem) After(d time.Duration) *Problem {
	p.RetryAfter = max(1, int(min(math.Ceil(d.Seconds()), 86_400)))
	return p
}

// Internal reports whether the cause is a fault of ours, whose text is for the log
// and not for the caller.
func (p *Problem) Internal() bool { return p.Status == http.StatusInternalServerError }

// kinds maps the errors of the root package. The first that matches decides.
var kinds = []struct {
	err    error
	status int
	name   string
	title  string
	hint   string
}{
	{redrive.ErrBacklogged, http.StatusTooManyRequests, "backlogged", "The queue is above its limit", "nothing was stored; repeat after the time in Retry-After"},
	{redrive.ErrConflict, http.StatusConflict, "conflict", "Another message has this id", "use another id, or send the same body, kind and key again"},
	{redrive.ErrFull, http.StatusInsufficientStorage, "store-full", "The store is full", "nothing was stored; free disk space or raise the limit, then repeat"},
	{redrive.ErrClosed, http.StatusServiceUnavailable, "shutting-down", "The service is shutting down", "nothing was stored; repeat after the time in Retry-After"},
	{redrive.ErrUnknown, http.StatusServiceUnavailable, "outcome-unknown", "The outcome is not known", "repeat it under the same id"},
	{redrive.ErrCorrupt, http.StatusServiceUnavailable, "corrupt", "The store is corrupt", "run: redrive store check"},
	{redrive.ErrInvalid, http.StatusBadRequest, "invalid", "The request is not valid", ""},
	{redrive.ErrNotFound, http.StatusNotFound, "not-found", "There is no such thing", ""},
	{redrive.ErrLoop, http.StatusConflict, "loop", "The message was redriven too often", "raise max_redrives to redrive it again"},
	{redrive.ErrUncertain, http.StatusConflict, "uncertain", "The effect of the message is not known", "confirm with confirm_uncertain (--confirm-uncertain) when it is safe to repeat"},
	{redrive.ErrBodyGone, http.StatusConflict, "body-gone", "The dead letter has no body", "give it a body with an edit, or drop it"},
	{redrive.ErrState, http.StatusConflict, "state", "The state does not allow this", "a message that is being handled can be changed when its attempt has ended"},
	{redrive.ErrLeaseLost, http.StatusConflict, "lease-lost", "The lease is lost", ""},
	{redrive.ErrVersion, http.StatusConflict, "version", "It was changed by another", "repeat it"},
	{redrive.ErrUnsupported, http.StatusNotImplemented, "unsupported", "The store cannot do this", ""},
	{context.DeadlineExceeded, http.StatusGatewayTimeout, "timeout", "It took too long", "repeat it under the same id"},
	{context.Canceled, http.StatusServiceUnavailable, "cancelled", "The request was cancelled", "repeat it under the same id"},
}

// Of turns an error into a problem. The text of an error that is not one of
// Redrive's own does not reach the caller; it is in Unwrap for the log.
func Of(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		return p
	}
	detail, hint := err.Error(), ""
	var e *redrive.Error
	if errors.As(err, &e) {
		detail, hint = e.Err.Error(), e.Hint
		if e.ID != "" {
			detail = redrive.Ref{Queue: e.Queue, ID: e.ID}.String() + ": " + detail
		}
	}
	for _, k := range kinds {
		if !errors.Is(err, k.err) {
			continue
		}
		p = New(k.status, k.name, k.title, detail, hint)
		if hint == "" {
			p.Hint = k.hint
		}
		if k.status == http.StatusServiceUnavailable || k.status == http.StatusInsufficientStorage {
			p.After(time.Second)
		}
		p.cause = err
		return p
	}
	p = New(http.StatusInternalServerError, "internal", "An internal error", "", "look for the request id in the log of the daemon")
	p.cause = err
	return p
}

// Write answers a request with the problem.
func (p *Problem) Write(w http.ResponseWriter, r *http.Request) {
	q := *p
	if q.Instance == "" && r != nil {
		q.Instance = r.URL.EscapedPath()
	}
	h := w.Header()
	h.Set("Content-Type", ContentType)
	h.Set("X-Content-Type-Options", "nosniff")
	if q.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(q.RetryAfter))
	}
	w.WriteHeader(q.Status)
	_, _ = w.Write(append(q.AppendJSON(nil), '\n')) // the caller is gone if this fails
}

// AppendJSON appends the problem as a JSON object.
func (p *Problem) AppendJSON(b []byte) []byte {
	body, err := json.Marshal(p)
	if err != nil { // no field can fail to encode
		panic(err)
	}
	return append(b, body...)
}
