package driver

import (
	"encoding/binary"
	"hash/crc32"
	"sync"

	"github.com/redrive/redrive"
)

// castagnoli is the polynomial of CRC-32C, for which processors have an instruction.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the CRC-32C (Castagnoli, RFC 3720 appendix B.4) of what a publisher gave:
// kind, key, the name and value of each header in order, and body, each behind its length
// as four bytes in big endian. A store writes it beside the message and compares it when the
// message is claimed, so that bytes that its disk changed are not delivered.
func Checksum(m *redrive.Message) uint32 {
	buf := heads.Get().(*[]byte) //nolint:forcetypeassert // nothing else is put in
	head := appendSized((*buf)[:0], m.Kind)
	head = appendSized(head, m.Key)
	for i := range m.Headers {
		head = appendSized(head, m.Headers[i].Name)
		head = appendSized(head, m.Headers[i].Value)
	}
	head = appendSize(head, len(m.Body))
	sum := crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, m.Body)
	*buf = head
	heads.Put(buf)
	return sum
}

// GivenChecksum is the checksum to store beside a message that is put: the one that it came with, so
// that what a disk changed on the way is found, or its own if it came with none.
func GivenChecksum(m *redrive.Message, came *uint32) uint32 {
	if came != nil {
		return *came
	}
	return Checksum(m)
}

// Matches reports whether a message is as it was when its checksum was made; nil: nobody knows
// otherwise.
func Matches(m *redrive.Message, sum *uint32) bool { return sum == nil || *sum == Checksum(m) }

// heads are buffers for all but the body: what crc32 is given escapes.
var heads = sync.Pool{New: func() any { return new([]byte) }}

func appendSized[T string | []byte](b []byte, part T) []byte {
	return append(appendSize(b, len(part)), part...)
}

func appendSize(b []byte, n int) []byte {
	return binary.BigEndian.AppendUint32(b, uint32(n)) //nolint:gosec // a message is smaller than 4 GiB
}
