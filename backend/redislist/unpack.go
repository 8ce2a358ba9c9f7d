package redislist

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/redrive/redrive"
)

// unpacker reads as much of MessagePack as the scripts' cmsgpack writes: arrays, whole
// numbers and texts.
type unpacker struct {
	b   string
	err error
}

func (p *unpacker) fail() {
	if p.err == nil {
		p.err = fmt.Errorf("%w: the state of an entry cannot be read", redrive.ErrCorrupt)
	}
	p.b = ""
}

// take takes n bytes away; nil if there are not so many.
func (p *unpacker) take(n uint64) []byte {
	if n > uint64(len(p.b)) {
		p.fail()
		return nil
	}
	t := p.b[:n]
	p.b = p.b[n:]
	return []byte(t)
}

// size reads a big-endian number of 1, 2, 4 or 8 bytes.
func (p *unpacker) size(bytes int) uint64 {
	var wide [8]byte
	copy(wide[8-bytes:], p.take(uint64(bytes))) //nolint:gosec // 1 to 8
	return binary.BigEndian.Uint64(wide[:])
}

func (p *unpacker) lead() byte {
	if b := p.take(1); b != nil {
		return b[0]
	}
	return 0xc1 // never used
}

// array reads the head of an array of n elements.
func (p *unpacker) array(n uint64) {
	got := uint64(math.MaxUint64)
	switch c := p.lead(); {
	case c&0xf0 == 0x90:
		got = uint64(c & 0x0f)
	case c == 0xdc:
		got = p.size(2)
	}
	if got != n {
		p.fail()
	}
}

func (p *unpacker) number() int64 {
	switch c := p.lead(); {
	case c < 0x80:
		return int64(c)
	case c >= 0xe0:
		return int64(int8(c)) //nolint:gosec // a small negative number
	case c >= 0xcc && c <= 0xcf: // unsigned
		return int64(p.size(1 << (c - 0xcc))) //nolint:gosec // the scripts count in doubles
	case c >= 0xd0 && c <= 0xd3: // signed
		bits := 8 << (c - 0xd0)
		return int64(p.size(bits/8)) << (64 - bits) >> (64 - bits) //nolint:gosec // as above
	case c == 0xca:
		return int64(math.Float32frombits(uint32(p.size(4)))) //nolint:gosec // four bytes
	case c == 0xcb:
		return int64(math.Float64frombits(p.size(8)))
	}
	p.fail()
	return 0
}

func (p *unpacker) text() string {
	switch c := p.lead(); {
	case c&0xe0 == 0xa0:
		return string(p.take(uint64(c & 0x1f)))
	case c >= 0xd9 && c <= 0xdb:
		return string(p.take(p.size(1 << (c - 0xd9))))
	}
	p.fail()
	return ""
}
