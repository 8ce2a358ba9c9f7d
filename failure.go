package redrive

import (
	"maps"
	"slices"
	"time"

	"github.com/redrive/redrive/internal/text"
)

// Bounds of what a failure keeps, in bytes. What is longer is cut in the middle,
// so that head and tail can be read.
const (
	maxFailureMessage = 4 << 10
	maxFailureStack   = 16 << 10
	maxFailureDetail  = 4 << 10
	maxFailureDetails = 32
	maxErrorTypes     = 16
)

// Failure is one failed attempt: the failure history of a dead letter. All text is
// valid UTF-8 without NUL, and bounded.
type Failure struct {
	At        time.Time         `json:"at"`                  // when the attempt ended
	Duration  time.Duration     `json:"duration_ns"`         // how long it took
	Attempt   int               `json:"attempt"`             // its number, from 1
	Reason    Reason            `json:"reason,omitempty"`    // why it would be dead, if it ended the message
	Types     []string          `json:"types"`               // the chain of errors by name or type, outermost first; see [NamedError]
	Message   string            `json:"message"`             // the error's text
	Stack     string            `json:"stack,omitempty"`     // where it was raised: a panic's stack, or the handler's name
	Host      string            `json:"host"`                // where it ran
	IP        string            `json:"ip"`                  // an address of that host
	PID       int               `json:"pid"`                 // the process
	Service   string            `json:"service"`             // name of the program
	Version   string            `json:"version"`             // its version
	Env       string            `json:"environment"`         // "production", "test", ...
	Config    FailureConfig     `json:"config"`              // what was in force
	TraceID   string            `json:"trace_id"`            // of the attempt
	Details   map[string]string `json:"details,omitempty"`   // HTTP status, response excerpt, ...
	Signature string            `json:"signature,omitempty"` // groups failures of one cause; see [driver.Signature]
}

// FailureConfig is the configuration that an attempt ran under.
type FailureConfig struct {
	Target      string        `json:"target,omitempty"`
	Timeout     time.Duration `json:"timeout_ns"`
	Policy      string        `json:"policy"`
	MaxAttempts int           `json:"max_attempts"`
}

// History is what is kept of a message's failures: the first and the last in full,
// all of them counted. With one failure, Last is nil.
type History struct {
	Count int      `json:"count"`
	First *Failure `json:"first,omitempty"`
	Last  *Failure `json:"last,omitempty"`
}

// Record adds a failure; counted says whether it counts towards MaxAttempts.
func (h *History) Record(f *Failure, counted bool) {
	if f == nil {
		return
	}
	if counted {
		h.Count++
	}
	if h.First == nil {
		h.First = f
		return
	}
	h.Last = f
}

// Latest returns the newest failure, or nil.
func (h *History) Latest() *Failure {
	if h.Last != nil {
		return h.Last
	}
	return h.First
}

// Clean bounds all text of the failure and removes what is not UTF-8, and NULs, in
// place. The engine calls it before it settles; whoever makes a Failure otherwise
// calls it too.
func (f *Failure) Clean() {
	f.Message = text.Clean(f.Message, maxFailureMessage)
	f.Stack = text.Clean(f.Stack, maxFailureStack)
	if len(f.Types) > maxErrorTypes {
		f.Types = f.Types[:maxErrorTypes]
	}
	for i := range f.Types {
		f.Types[i] = text.Clean(f.Types[i], 256)
	}
	for _, s := range []*string{&f.Host, &f.IP, &f.Service, &f.Version, &f.Env, &f.TraceID, &f.Signature,
		&f.Config.Target, &f.Config.Policy} {
		*s = text.Clean(*s, 512)
	}
	f.Details = cleanDetails(f.Details)
}

// cleanDetails keeps the first maxFailureDetails details by name.
func cleanDetails(details map[string]string) map[string]string {
	if details == nil {
		return nil
	}
	clean := make(map[string]string, min(len(details), maxFailureDetails))
	for _, k := range slices.Sorted(maps.Keys(details)) {
		if len(clean) == maxFailureDetails {
			break
		}
		clean[text.Clean(k, 128)] = text.Clean(details[k], maxFailureDetail)
	}
	return clean
}
