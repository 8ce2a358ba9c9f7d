// Package native is how a message of ours stands in a broker's own message: as headers
// beside the body and the key, so that programs that know nothing of Redrive read the
// body as it is, and what they write is a message too.
package native

import (
	"bytes"
	"net/url"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/text"
)

// Headers returns the headers of a message as a broker carries them: ours first, then
// the message's own. The key is among them unless the broker has a place for it.
func Headers(m *redrive.Message, withKey bool) redrive.Headers {
	var h writer // most messages of a broker with ids and kinds of its own have nothing else
	if m.ID != "" || len(m.Headers) > 0 {
		h = make(writer, 0, len(m.Headers)+4)
	}
	h.text(headername.ID, m.ID)
	h.text(headername.Kind, m.Kind)
	if withKey {
		h.text(headername.Key, m.Key)
	}
	h.text(headername.ReplyTo, m.ReplyTo)
	h.time(headername.ExpiresAt, m.ExpiresAt)
	h.number(headername.Generation, m.Generation)
	h.number(headername.Redrives, m.Redrives)
	h.text(headername.Plan, m.Plan)
	h.text(headername.Origin, m.Origin)
	h.text(headername.EditedFrom, m.EditedFrom)
	for _, own := range m.Headers {
		h = append(h, Outside(own))
	}
	return redrive.Headers(h)
}

// Inside returns a header of a broker's message as one of ours: as it is, or, if no header of
// ours may have its name, as [headername.NativeHeader] with its name, escaped as in a query,
// and its value.
func Inside(h redrive.Header) redrive.Header {
	if h.Name != "" && len(h.Name) <= redrive.MaxKindLength && text.Printable(h.Name) && h.Name != headername.NativeHeader {
		return h
	}
	return redrive.Header{Name: headername.NativeHeader, Value: append([]byte(url.QueryEscape(h.Name)+"="), h.Value...)}
}

// Outside is the reverse of Inside. It brings no other names back, so that nobody forges one.
func Outside(h redrive.Header) redrive.Header {
	if h.Name != headername.NativeHeader {
		return h
	}
	escaped, value, ok := bytes.Cut(h.Value, []byte("="))
	name, err := url.QueryUnescape(string(escaped))
	own := redrive.Header{Name: name, Value: value}
	if !ok || err != nil || Inside(own).Name != headername.NativeHeader {
		return h
	}
	return own
}

// Read puts a header into a message: ours where it belongs, every other one, and one of
// ours that makes no sense, among the message's own, see [Inside].
func Read(m *redrive.Message, name string, value []byte) {
	if !ours(m, name, string(value)) {
		m.Headers = append(m.Headers, Inside(redrive.Header{Name: name, Value: value}))
	}
}

func ours(m *redrive.Message, name, value string) bool {
	short := func(to *string, most int) bool {
		if len(value) > most || !text.Printable(value) {
			return false
		}
		*to = value
		return true
	}
	switch name {
	case headername.ID:
		if driver.CheckID(value) != nil {
			return false
		}
		m.ID = value
		return true
	case headername.Kind:
		return short(&m.Kind, redrive.MaxKindLength)
	case headername.Key:
		return short(&m.Key, redrive.MaxKeyLength)
	case headername.ReplyTo:
		return repliable(value) && short(&m.ReplyTo, redrive.MaxKeyLength)
	case headername.ExpiresAt:
		return readTime(value, &m.ExpiresAt)
	case headername.Generation:
		return readNumber(value, &m.Generation)
	case headername.Redrives:
		return readNumber(value, &m.Redrives)
	case headername.Plan:
		return short(&m.Plan, redrive.MaxIDLength)
	case headername.Origin:
		return short(&m.Origin, 1024)
	case headername.EditedFrom:
		return short(&m.EditedFrom, redrive.MaxKeyLength)
	}
	return false
}

// repliable reports whether a result may go where a broker's message says, of whom nobody
// knows who wrote it: not to sessions and not into system queues, which belong to clients.
func repliable(replyTo string) bool {
	return driver.CheckQueue(replyTo) == nil && !strings.HasPrefix(replyTo, "_") && !strings.HasPrefix(replyTo, driver.SessionReply)
}

// ReadKey puts a broker's own key into a message. One that cannot be a key of ours is
// kept as a header.
func ReadKey(m *redrive.Message, key []byte) {
	if len(key) == 0 {
		return
	}
	probe := redrive.Message{Queue: "q", Key: string(key)}
	if probe.Validate() == nil {
		m.Key = probe.Key
		return
	}
	m.Headers = append(m.Headers, redrive.Header{Name: headername.NativeKey, Value: key})
}
