package native

import (
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Names of the headers that tell why a message was tried again, or set aside, at the
// broker itself.
const (
	HeaderQueue         = "redrive-queue"
	HeaderAttempts      = "redrive-attempts"
	HeaderCrashes       = "redrive-crashes"
	HeaderFailures      = "redrive-failures" // those that count
	HeaderDiedAt        = "redrive-died-at"
	HeaderFirstFailedAt = "redrive-first-failed-at"
	HeaderLastFailedAt  = "redrive-last-failed-at"
	HeaderErrorType     = "redrive-error-type"
	HeaderSignature     = "redrive-signature"
	// The first and the last failure as JSON, cut to what headers can bear.
	HeaderFirstFailure = "redrive-first-failure"
	HeaderLastFailure  = "redrive-last-failure"
)

// Bounds of what a failure keeps in a header: brokers and their clients limit headers, or
// slow down with them. The whole story stands in a store only.
const (
	maxText    = 1 << 10
	maxStack   = 2 << 10
	maxDetails = 8
)

// Story is what happened to a message so far, as it stands in the headers of a message
// that waits for another attempt, or is dead, at the broker.
type Story struct {
	Queue    string // what its queue is called in Redrive; a story without it is none
	Attempts int
	Crashes  int
	History  redrive.History
	Reason   redrive.Reason // why it is dead; 0: it is not
	DiedAt   time.Time
}

// Headers returns the story as headers. What is zero has none.
func (s *Story) Headers() redrive.Headers {
	h := make(writer, 0, 13)
	h.text(HeaderQueue, s.Queue)
	h.number(HeaderAttempts, s.Attempts)
	h.number(HeaderCrashes, s.Crashes)
	h.number(HeaderFailures, s.History.Count)
	h.text(redrive.HeaderReason, s.Reason.String())
	h.time(HeaderDiedAt, s.DiedAt)
	if first := s.History.First; first != nil {
		h.time(HeaderFirstFailedAt, first.At)
		h.text(HeaderFirstFailure, string(driver.EncodeFailure(bounded(first))))
	}
	if last := s.History.Latest(); last != nil {
		h.time(HeaderLastFailedAt, last.At)
		if len(last.Types) > 0 {
			h.text(HeaderErrorType, last.Types[len(last.Types)-1])
		}
		h.text(redrive.HeaderError, cut(last.Message, maxText))
		h.text(HeaderSignature, last.Signature)
	}
	if last := s.History.Last; last != nil {
		h.text(HeaderLastFailure, string(driver.EncodeFailure(bounded(last))))
	}
	return redrive.Headers(h)
}

// bounded is a copy of a failure that fits into a header.
func bounded(f *redrive.Failure) *redrive.Failure {
	b := *f
	b.Message = cut(b.Message, maxText)
	b.Stack = cut(b.Stack, maxStack)
	if len(b.Details) > 0 {
		b.Details = make(map[string]string, min(len(f.Details), maxDetails))
		for name, value := range f.Details {
			if len(b.Details) == maxDetails {
				break
			}
			b.Details[name] = cut(value, maxText)
		}
	}
	return &b
}

// cut keeps the head of a text; what is cut inside a character is made whole.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// TakeStory takes the headers of a story out of a message and returns what they tell.
// A header of a story that makes no sense stays. It reports whether there was a story:
// results carry some of its headers, too, and stay as they are.
func TakeStory(m *redrive.Message) (Story, bool) {
	var s Story
	if _, ok := m.Headers.Get(HeaderQueue); !ok {
		return s, false
	}
	rest := make(redrive.Headers, 0, len(m.Headers))
	for _, h := range m.Headers {
		if !s.take(h.Name, string(h.Value)) {
			rest = append(rest, h)
		}
	}
	m.Headers = rest
	return s, true
}

func (s *Story) take(name, value string) bool {
	switch name {
	case HeaderQueue:
		s.Queue = value
	case HeaderAttempts:
		return readNumber(value, &s.Attempts)
	case HeaderCrashes:
		return readNumber(value, &s.Crashes)
	case HeaderFailures:
		return readNumber(value, &s.History.Count)
	case redrive.HeaderReason:
		return s.Reason.UnmarshalText([]byte(value)) == nil
	case HeaderDiedAt:
		return readTime(value, &s.DiedAt)
	case HeaderFirstFailure:
		s.History.First = driver.DecodeFailure([]byte(value))
	case HeaderLastFailure:
		s.History.Last = driver.DecodeFailure([]byte(value))
	case HeaderFirstFailedAt, HeaderLastFailedAt, HeaderErrorType, redrive.HeaderError, HeaderSignature:
		// They stand in the failures, too: these are for people and for other programs.
	default:
		return false
	}
	return true
}

// writer collects headers; what is empty is none.
type writer redrive.Headers

func (w *writer) text(name, value string) {
	if value != "" {
		*w = append(*w, redrive.Header{Name: name, Value: []byte(value)})
	}
}

func (w *writer) number(name string, n int) {
	if n != 0 {
		w.text(name, strconv.Itoa(n))
	}
}

func (w *writer) time(name string, at time.Time) {
	if !at.IsZero() {
		w.text(name, at.UTC().Format(time.RFC3339Nano))
	}
}

func readNumber(value string, to *int) bool {
	n, err := strconv.ParseUint(value, 10, 31)
	if err == nil {
		*to = int(n)
	}
	return err == nil
}

func readTime(value string, to *time.Time) bool {
	at, err := time.Parse(time.RFC3339Nano, value)
	if err == nil {
		*to = at
	}
	return err == nil
}
