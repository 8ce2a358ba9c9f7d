package jetstream

import (
	"encoding/base64"
	"encoding/binary"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/native"
)

// Headers of NATS have no order among different names, and their values no line breaks
// and no spaces at their ends. A message whose headers are not like that carries all of
// them in one more, besides those that can be written as they are, for other readers.
const headerPacked = headername.Packed

// Headers named Nats-... are instructions to a server. Those of a message travel under
// another name, so that none of them is obeyed.
const (
	instruction = "Nats-"
	carried     = headername.NativeNats
)

// headersOf returns the headers of a message as NATS carries them.
func headersOf(m *redrive.Message) nats.Header {
	all := native.Headers(m, true)
	h := make(nats.Header, len(all)+2)
	whole := slices.IsSortedFunc(m.Headers, func(a, b redrive.Header) int { return strings.Compare(a.Name, b.Name) })
	for i := range all {
		name, value := all[i].Name, string(all[i].Value)
		if rest, ok := strings.CutPrefix(name, instruction); ok {
			name = carried + rest
		}
		if name == headerPacked || !plainName(name) || !plainValue(value) {
			whole = false
			continue
		}
		h[name] = append(h[name], value)
	}
	if !whole {
		h[headerPacked] = []string{packHeaders(all)}
	}
	return h
}

func plainName(name string) bool {
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c > '~' || c == ':' {
			return false
		}
	}
	return name != ""
}

func plainValue(v string) bool { return !strings.ContainsAny(v, "\r\n") && strings.Trim(v, " \t") == v }

func packHeaders(all redrive.Headers) string {
	var b []byte
	for i := range all {
		b = appendBytes(appendBytes(b, []byte(all[i].Name)), all[i].Value)
	}
	return base64.RawStdEncoding.EncodeToString(b)
}

func appendBytes(b, part []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(part))), part...)
}

// unpackHeaders is the reverse of packHeaders.
func unpackHeaders(text string) (all redrive.Headers, ok bool) {
	b, err := base64.RawStdEncoding.DecodeString(text)
	for err == nil && len(b) > 0 {
		var parts [2][]byte
		for i := range parts {
			n, w := binary.Uvarint(b)
			if w <= 0 || n > uint64(len(b[w:])) {
				return nil, false
			}
			parts[i], b = b[w:w+int(n)], b[w+int(n):] //nolint:gosec // it is at most the length
		}
		all = append(all, redrive.Header{Name: string(parts[0]), Value: parts[1]})
	}
	return all, err == nil
}

// readHeaders puts headers into a message.
func readHeaders(m *redrive.Message, h nats.Header) {
	for _, v := range wholeHeaders(h) {
		native.Read(m, v.Name, v.Value)
	}
}

// wholeHeaders returns headers as they were given to NATS, those of others in the order
// of the alphabet.
func wholeHeaders(h nats.Header) redrive.Headers {
	if packed := h[headerPacked]; len(packed) == 1 {
		if all, ok := unpackHeaders(packed[0]); ok {
			return all
		}
	}
	_, ours := h[headername.ID]
	all := make(redrive.Headers, 0, len(h))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		plain := name
		if rest, ok := strings.CutPrefix(name, carried); ok {
			plain = instruction + rest
		} else if ours && strings.HasPrefix(name, instruction) { // we gave it to the server
			continue
		}
		for _, value := range h[name] {
			all.Add(plain, value)
		}
	}
	return all
}
