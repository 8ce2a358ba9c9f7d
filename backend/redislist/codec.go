package redislist

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// An element of ours is: magic, "c" or "g", 16 digits of time, 3 digits and the id (this
// much the scripts read), then length-prefixed texts and numbers, then the body.
const (
	magic      = "\x00R1"
	headLength = len(magic) + 1 + 16 + 3
)

var errElement = errors.New("the element is not one that this version writes")

// rest returns what of an element the client makes: from the length of the id on.
func rest(m *redrive.Message) []byte {
	b := make([]byte, 0, len(m.ID)+m.Size()+len(m.ReplyTo)+4*len(m.Headers)+40)
	b = fmt.Appendf(b, "%03d", len(m.ID))
	b = append(b, m.ID...)
	for _, s := range []string{m.Kind, m.Key, m.ReplyTo, m.Plan, m.Origin, m.EditedFrom} {
		b = appendText(b, s)
	}
	expires := int64(0)
	if !m.ExpiresAt.IsZero() {
		expires = m.ExpiresAt.UnixMicro()
	}
	for _, n := range []int64{expires, int64(m.Generation), int64(m.Redrives), int64(len(m.Headers))} {
		b = binary.AppendVarint(b, n)
	}
	for i := range m.Headers {
		b = appendText(b, m.Headers[i].Name)
		b = appendText(b, string(m.Headers[i].Value))
	}
	return append(b, m.Body...)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// stamp is when an element of ours was published, in microseconds; 0 for others.
func (r *row) stamp() int64 {
	if !r.own() || len(r.element) < headLength {
		return 0
	}
	t, err := strconv.ParseInt(r.element[len(magic)+1:headLength-3], 10, 64)
	if err != nil {
		return 0
	}
	return t
}

// decode reads an element of ours into m.
func decode(element string, m *redrive.Message) error {
	if len(element) < headLength {
		return errElement
	}
	size, err := strconv.Atoi(element[headLength-3 : headLength])
	if err != nil || size < 0 || len(element) < headLength+size {
		return errElement
	}
	id := element[headLength : headLength+size]
	if driver.CheckID(id) != nil {
		return errElement
	}
	m.ID = id
	r := reader{b: []byte(element[headLength+size:])}
	for _, s := range []*string{&m.Kind, &m.Key, &m.ReplyTo, &m.Plan, &m.Origin, &m.EditedFrom} {
		*s = string(r.text())
	}
	if expires := r.number(); expires != 0 {
		m.ExpiresAt = time.UnixMicro(expires).UTC()
	}
	m.Generation, m.Redrives = int(r.number()), int(r.number())
	headers := r.number()
	if headers < 0 || headers > redrive.MaxHeaders {
		return errElement
	}
	for range headers {
		name := string(r.text())
		m.Headers = append(m.Headers, redrive.Header{Name: name, Value: slices.Clip(r.text())})
	}
	if r.bad {
		return errElement
	}
	m.Body = r.b
	return nil
}

// reader takes an element apart.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) text() []byte {
	n, w := binary.Uvarint(r.b)
	if w <= 0 || n > uint64(len(r.b)-w) { //nolint:gosec // w is at most the length
		r.bad, r.b = true, nil
		return nil
	}
	t := r.b[w : w+int(n)] //nolint:gosec // n is at most the length
	r.b = r.b[w+int(n):]   //nolint:gosec // as above
	return t
}

func (r *reader) number() int64 {
	n, w := binary.Varint(r.b)
	if w <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[w:]
	return n
}
