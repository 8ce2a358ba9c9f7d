// Package problem is the one shape of errors over HTTP: problem+json (RFC 9457),
// with a hint that tells the caller what to do.
package problem

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
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

// Unwrap returns the error that the problem was made of: of one that came over the wire
// the one that its name stands for, so that errors.Is finds redrive.ErrNotFound and the
// like on both sides. It is nil where there is none.
func (p *Problem) Unwrap() error {
	if p.cause == nil {
		return driver.ErrorNamed(p.Name())
	}
	return p.cause
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

// kinds are what problems say of the errors that have a name (see [driver.ErrorName]).
var kinds = map[string]struct {
	status int
	title  string
	hint   string
}{
	"backlogged":        {http.StatusTooManyRequests, "The queue is above its limit", "nothing was stored; repeat after the time in Retry-After"},
	"conflict":          {http.StatusConflict, "Another message has this id", "use another id, or send the same body, kind and key again"},
	"duplicate":         {http.StatusConflict, "The message was accepted before", "its result goes to whoever published it first"},
	"store-full":        {http.StatusInsufficientStorage, "The store is full", "nothing was stored; free disk space or raise the limit, then repeat"},
	"shutting-down":     {http.StatusServiceUnavailable, "The service is shutting down", "nothing was stored; repeat after the time in Retry-After"},
	"outcome-unknown":   {http.StatusServiceUnavailable, "The outcome is not known", "repeat it under the same id"},
	"corrupt":           {http.StatusServiceUnavailable, "The store is corrupt", "redrive verify --scan tells which messages; of a folder, redrive store check"},
	"store-unavailable": {http.StatusServiceUnavailable, "The store cannot be reached", "nothing was changed; repeat after the time in Retry-After"},
	"in-use":            {http.StatusConflict, "Another process has the store", "stop that process, or talk to it"},
	"invalid":           {http.StatusBadRequest, "The request is not valid", ""},
	"not-found":         {http.StatusNotFound, "Not found", ""},
	"loop":              {http.StatusConflict, "The message was redriven too often", "raise max_redrives to redrive it again"},
	"uncertain":         {http.StatusConflict, "The effect of the message is not known", "confirm with confirm_uncertain (--confirm-uncertain) when it is safe to repeat"},
	"body-corrupt":      {http.StatusConflict, "The message does not match its checksum", "look at its bytes; redrive it with confirm_corrupt (--confirm-corrupt) or with a new body, or drop it"},
	"body-gone":         {http.StatusConflict, "The dead letter has no body", "give it a body with an edit, or drop it"},
	"state":             {http.StatusConflict, "The state does not allow this", "a message that is in flight can be changed when its attempt has ended"},
	"lease-lost":        {http.StatusConflict, "Lease lost", ""},
	"version":           {http.StatusConflict, "It was changed by another", "repeat it"},
	"unsupported":       {http.StatusNotImplemented, "The store cannot do this", ""},
	"timeout":           {http.StatusGatewayTimeout, "Timeout", "repeat it under the same id"},
	"cancelled":         {http.StatusServiceUnavailable, "The request was cancelled", "repeat it under the same id"},
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
	name := driver.ErrorName(err)
	switch name { // what a client of a server says has its address and user in it
	case "store-unavailable":
		detail = ""
	case "outcome-unknown":
		detail = redrive.ErrUnknown.Error()
	case "timeout", "cancelled":
		detail = ""
	}
	if k, ok := kinds[name]; ok {
		p = New(k.status, name, k.title, detail, cmp.Or(hint, k.hint))
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
