package redisstream

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// An envelope is a message as it is stored, without queue and id: a version, what the
// scripts read (the size that counts, kind, key), the checksum, a set of sections and the
// body.
const envelopeVersion = 1

// The sections, in their order.
const (
	hasHeaders = 1 << iota
	hasReplyTo
	hasLineage
	hasDeliverAt
	hasExpiresAt
	hasHistory
	hasOriginal
	hasPublished // of an original: when it was published
)

// checksum is the [driver.Checksum] that a message was stored with. Nothing but an edit
// changes what it covers, so it is kept and not computed again: what the disk changed would
// fit again. The zero value is computed when the message is stored.
type checksum struct {
	value uint32
	known bool
}

// checksumOf is the checksum of an entry.
func checksumOf(given *uint32) checksum {
	if given == nil {
		return checksum{}
	}
	return checksum{*given, true}
}

// shown is the checksum as an entry has it.
func (c checksum) shown() *uint32 {
	if !c.known {
		return nil
	}
	return &c.value
}

// of returns the checksum to store beside a message.
func (c checksum) of(m *redrive.Message) uint32 {
	if c.known {
		return c.value
	}
	return driver.Checksum(m)
}

// fits says that a message is as it was stored, as far as one can know.
func (c checksum) fits(m *redrive.Message) bool { return !c.known || c.value == driver.Checksum(m) }

// stored is what is kept of a message beside itself.
type stored struct {
	sum         checksum
	history     redrive.History
	original    *redrive.Message
	originalSum checksum
}

// seal encodes a message and its failure history.
func seal(m *redrive.Message, st *stored) ([]byte, error) {
	if len(m.Kind) > 1<<16-1 || len(m.Key) > 1<<16-1 {
		return nil, fmt.Errorf("%w message: kind or key of more than 64 KiB", redrive.ErrInvalid)
	}
	size := m.Size()
	if m.ID == "" {
		size += idLength
	}
	b := make([]byte, 0, 36+len(m.Kind)+len(m.Key)+len(m.Body)+m.Headers.Size()+4*len(m.Headers))
	b = append(b, envelopeVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(min(size, 1<<32-1)))             //nolint:gosec // checked
	b = append(binary.LittleEndian.AppendUint16(b, uint16(len(m.Kind))), m.Kind...) //nolint:gosec // checked above
	b = append(binary.LittleEndian.AppendUint16(b, uint16(len(m.Key))), m.Key...)   //nolint:gosec // checked above
	b = binary.LittleEndian.AppendUint32(b, st.sum.of(m))
	at := len(b)
	b = append(b, 0)
	if len(m.Headers) > 0 {
		b[at] |= hasHeaders
		b = binary.AppendUvarint(b, uint64(len(m.Headers)))
		for i := range m.Headers {
			b = appendText(appendText(b, m.Headers[i].Name), string(m.Headers[i].Value))
		}
	}
	if m.ReplyTo != "" {
		b[at] |= hasReplyTo
		b = appendText(b, m.ReplyTo)
	}
	if m.Lineage != (redrive.Lineage{}) {
		b[at] |= hasLineage
		b = binary.AppendVarint(binary.AppendVarint(b, int64(m.Generation)), int64(m.Redrives))
		b = appendText(appendText(appendText(b, m.Plan), m.Origin), m.EditedFrom)
	}
	if !m.DeliverAt.IsZero() {
		b[at] |= hasDeliverAt
		b = appendTime(b, m.DeliverAt)
	}
	if !m.ExpiresAt.IsZero() {
		b[at] |= hasExpiresAt
		b = appendTime(b, m.ExpiresAt)
	}
	if h := &st.history; h.Count > 0 || h.First != nil {
		b[at] |= hasHistory
		b = binary.AppendVarint(b, int64(h.Count))
		b = appendText(b, string(driver.EncodeFailure(h.First)))
		b = appendText(b, string(driver.EncodeFailure(h.Last)))
	}
	if st.original != nil {
		inner, err := seal(st.original, &stored{sum: st.originalSum})
		if err != nil {
			return nil, err
		}
		b[at] |= hasOriginal
		b = appendText(b, string(inner))
		b = appendTime(b, st.original.PublishedAt)
	}
	return append(b, m.Body...), nil
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendTime(b []byte, t time.Time) []byte {
	return binary.AppendVarint(binary.AppendVarint(b, t.Unix()), int64(t.Nanosecond()))
}

var errEnvelope = errors.New("the envelope is damaged")

// reader takes an envelope apart.
type reader struct {
	b   string
	bad bool
}

func (r *reader) take(n uint64) string {
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, ""
		return ""
	}
	s := r.b[:n]
	r.b = r.b[n:]
	return s
}

func (r *reader) number() int64 {
	n, w := binary.Varint([]byte(r.b[:min(len(r.b), binary.MaxVarintLen64)]))
	r.take(uint64(max(w, 0)))
	r.bad = r.bad || w <= 0
	return n
}

func (r *reader) length() uint64 {
	n, w := binary.Uvarint([]byte(r.b[:min(len(r.b), binary.MaxVarintLen64)]))
	r.take(uint64(max(w, 0)))
	r.bad = r.bad || w <= 0
	return n
}

func (r *reader) short() uint64 {
	s := r.take(2)
	if r.bad {
		return 0
	}
	return uint64(binary.LittleEndian.Uint16([]byte(s)))
}

func (r *reader) text() string { return r.take(r.length()) }

func (r *reader) time() time.Time {
	sec, nsec := r.number(), r.number()
	if r.bad || sec == (time.Time{}).Unix() {
		return time.Time{}
	}
	return time.Unix(sec, nsec).UTC()
}

// unseal decodes an envelope.
func unseal(e string, m *redrive.Message, st *stored) error {
	r := &reader{b: e}
	if v := r.take(1); v != string(rune(envelopeVersion)) {
		return errEnvelope
	}
	r.take(4)
	m.Kind = r.take(r.short())
	m.Key = r.take(r.short())
	sum := r.take(4)
	sections := r.take(1)
	if r.bad {
		return errEnvelope
	}
	st.sum = checksum{binary.LittleEndian.Uint32([]byte(sum)), true}
	has := func(bit byte) bool { return sections[0]&bit != 0 }
	if has(hasHeaders) {
		for n := r.length(); n > 0 && !r.bad; n-- {
			name := r.text()
			m.Headers = append(m.Headers, redrive.Header{Name: name, Value: []byte(r.text())})
		}
	}
	if has(hasReplyTo) {
		m.ReplyTo = r.text()
	}
	if has(hasLineage) {
		m.Generation, m.Redrives = int(r.number()), int(r.number())
		m.Plan, m.Origin, m.EditedFrom = r.text(), r.text(), r.text()
	}
	if has(hasDeliverAt) {
		m.DeliverAt = r.time()
	}
	if has(hasExpiresAt) {
		m.ExpiresAt = r.time()
	}
	if has(hasHistory) {
		st.history.Count = int(r.number())
		st.history.First = driver.DecodeFailure([]byte(r.text()))
		st.history.Last = driver.DecodeFailure([]byte(r.text()))
	}
	if has(hasOriginal) {
		st.original = &redrive.Message{ID: m.ID, Queue: m.Queue}
		var inner stored
		if err := unseal(r.text(), st.original, &inner); err != nil {
			return err
		}
		st.originalSum = inner.sum
		st.original.PublishedAt = r.time()
	}
	if r.bad || has(hasPublished) {
		return errEnvelope
	}
	m.Body = []byte(r.b)
	return nil
}

// sizeOf is what an entry, or an envelope, counts; see sizeof in lib.lua.
func sizeOf(raw any) int64 {
	if envelope, ok := raw.(string); ok {
		return int64(binary.LittleEndian.Uint32([]byte(envelope[1:5]))) // the scripts saw that it is longer
	}
	fields := items(raw)
	if len(fields) == 2 && text(fields[0]) == field {
		if e := text(fields[1]); len(e) >= 10 && e[0] == envelopeVersion {
			return sizeOf(e)
		}
	}
	n := 0
	for _, f := range fields {
		n += len(text(f))
	}
	return int64(n)
}

// field is the name of the field of an entry that holds an envelope.
const field = "redrive"

// foreign makes a message of an entry that another client added. Its fields become the
// headers, as they are and in order, but for the body: the only field, or the one named
// "body"; without either the body is empty.
func foreign(fields []any, m *redrive.Message) error {
	if len(fields) == 2 && text(fields[0]) == field {
		return errEnvelope
	}
	body := -1
	for i := 0; i+1 < len(fields); i += 2 {
		if text(fields[i]) == "body" || len(fields) == 2 {
			body = i
		}
	}
	for i := 0; i+1 < len(fields); i += 2 {
		value := text(fields[i+1])
		if i == body {
			m.Body = []byte(value)
			continue
		}
		m.Headers = append(m.Headers, redrive.Header{Name: text(fields[i]), Value: []byte(value)})
	}
	return m.Validate()
}

// rawFields keeps an entry that cannot be understood readable: a line for each field.
func rawFields(fields []any) []byte {
	var b strings.Builder
	for i := 0; i+1 < len(fields); i += 2 {
		b.WriteString(readable(text(fields[i])) + "=" + readable(text(fields[i+1])) + "\n")
	}
	return []byte(b.String())
}

func readable(s string) string {
	if utf8.ValidString(s) && !strings.ContainsAny(s, "\n=") {
		return s
	}
	return strconv.QuoteToASCII(s)
}

// idLength is the length of an id that the store makes.
const idLength = 36

// id returns the message id that is made of an entry's: a UUIDv7 of the same time whose
// end belongs to the queue, so that it leads back to the entry. See uuid in lib.lua.
func (q *queue) id(entry string) string {
	var text [idLength]byte
	if !q.writeID(&text, entry) {
		return ""
	}
	return string(text[:])
}

func (q *queue) writeID(text *[idLength]byte, entry string) bool {
	ms, seq, ok := entryNumbers(entry)
	if !ok {
		return false
	}
	q.write(text, ms, seq)
	return true
}

// idOf is the id that is made of an entry's numbers.
func (q *queue) idOf(ms, seq uint64) string {
	var text [idLength]byte
	q.write(&text, ms, seq)
	return string(text[:])
}

func (q *queue) write(text *[idLength]byte, ms, seq uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], ms<<16|0x7000|seq&0xfff)
	hex.Encode(text[:], b[:4])
	text[8] = '-'
	hex.Encode(text[9:], b[4:6])
	text[13] = '-'
	hex.Encode(text[14:], b[6:])
	text[18] = '-'
	binary.BigEndian.PutUint16(b[:], uint16(0x8000|seq>>12&0x3fff)) //nolint:gosec // masked
	hex.Encode(text[19:], b[:2])
	text[23] = '-'
	copy(text[24:], q.tag)
}

// entry returns the entry that an id is made of, or "".
func (q *queue) entry(id string) string {
	if len(id) != idLength || id[24:] != q.tag || id[14] != '7' {
		return ""
	}
	ms, err := strconv.ParseUint(id[:8]+id[9:13], 16, 64)
	low, err2 := strconv.ParseUint(id[15:18], 16, 64)
	high, err3 := strconv.ParseUint(id[19:23], 16, 64)
	if err != nil || err2 != nil || err3 != nil {
		return ""
	}
	return strconv.FormatUint(ms, 10) + "-" + strconv.FormatUint((high&0x3fff)<<12|low, 10)
}

func entryNumbers(entry string) (ms, seq uint64, ok bool) {
	a, b, found := strings.Cut(entry, "-")
	ms, err := strconv.ParseUint(a, 10, 64)
	seq, err2 := strconv.ParseUint(b, 10, 64)
	return ms, seq, found && err == nil && err2 == nil
}
