package native

import (
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/text"
)

// Bounds of what a failure keeps in a header: brokers and their clients limit headers, or
// slow down with them. The full failure history stands in a store only.
const (
	maxText    = 1 << 10
	maxStack   = 2 << 10
	maxDetails = 8
)

// History is what happened to a message so far, as it stands in the headers of a message
// that waits for another attempt, or is dead, at the broker.
type History struct {
	Queue    string // what its queue is called in Redrive; a failure history without it is none
	Attempts int
	Crashes  int
	History  redrive.History
	Reason   redrive.Reason // why it is dead; 0: it is not
	DiedAt   time.Time
}

// Headers returns the failure history as headers. What is zero has none.
func (s *History) Headers() redrive.Headers {
	h := make(writer, 0, 13)
	h.text(headername.Queue, s.Queue)
	h.number(headername.Attempts, s.Attempts)
	h.number(headername.Crashes, s.Crashes)
	h.number(headername.Failures, s.History.Count)
	h.text(redrive.HeaderReason, s.Reason.String())
	h.time(headername.DiedAt, s.DiedAt)
	if first := s.History.First; first != nil {
		h.time(headername.FirstFailedAt, first.At)
		h.text(headername.FirstFailure, string(driver.EncodeFailure(bounded(first))))
	}
	if last := s.History.Latest(); last != nil {
		h.time(headername.LastFailedAt, last.At)
		if len(last.Types) > 0 {
			h.text(headername.ErrorType, last.Types[len(last.Types)-1])
		}
		h.text(redrive.HeaderError, cut(last.Message, maxText))
		h.text(headername.Signature, last.Signature)
	}
	if last := s.History.Last; last != nil {
		h.text(headername.LastFailure, string(driver.EncodeFailure(bounded(last))))
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

// TakeHistory takes the headers of a failure history out of a message and returns what they tell.
// A header of a failure history that makes no sense stays. It reports whether there was a failure history:
// results carry some of its headers, too, and stay as they are.
func TakeHistory(m *redrive.Message) (History, bool) {
	var s History
	if _, ok := m.Headers.Get(headername.Queue); !ok {
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

func (s *History) take(name, value string) bool {
	switch name {
	case headername.Queue:
		s.Queue = value
	case headername.Attempts:
		return readNumber(value, &s.Attempts)
	case headername.Crashes:
		return readNumber(value, &s.Crashes)
	case headername.Failures:
		return readNumber(value, &s.History.Count)
	case redrive.HeaderReason:
		return s.Reason.UnmarshalText([]byte(value)) == nil
	case headername.DiedAt:
		return readTime(value, &s.DiedAt)
	case headername.FirstFailure:
		s.History.First = driver.DecodeFailure([]byte(value))
	case headername.LastFailure:
		s.History.Last = driver.DecodeFailure([]byte(value))
	case headername.FirstFailedAt, headername.LastFailedAt, headername.ErrorType, redrive.HeaderError, headername.Signature:
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
	if ok := err == nil && text.Dated(at); !ok {
		return false
	}
	*to = at
	return true
}
