package sqlite

import (
	"encoding/binary"
	"fmt"

	"github.com/redrive/redrive"
)

// encodeHeaders packs headers as length-prefixed names and values; nil for none.
func encodeHeaders(h redrive.Headers) []byte {
	if len(h) == 0 {
		return nil
	}
	b := make([]byte, 0, h.Size()+4*len(h))
	for i := range h {
		b = binary.AppendUvarint(b, uint64(len(h[i].Name)))
		b = append(b, h[i].Name...)
		b = binary.AppendUvarint(b, uint64(len(h[i].Value)))
		b = append(b, h[i].Value...)
	}
	return b
}

// decodeHeaders is the reverse of encodeHeaders. With an error it returns the headers before
// the first that cannot be read.
func decodeHeaders(b []byte) (redrive.Headers, error) {
	var h redrive.Headers
	part := func() ([]byte, bool) {
		n, w := binary.Uvarint(b)
		if w <= 0 || n > uint64(len(b)-w) { //nolint:gosec // w is at most len(b)
			return nil, false
		}
		p := b[w : w+int(n) : w+int(n)] //nolint:gosec // n is at most len(b)
		b = b[w+int(n):]                //nolint:gosec // n is at most len(b)
		return p, true
	}
	for len(b) > 0 {
		name, ok := part()
		if !ok {
			return h, fmt.Errorf("%w: headers are cut short", redrive.ErrCorrupt)
		}
		value, ok := part()
		if !ok {
			return h, fmt.Errorf("%w: headers are cut short", redrive.ErrCorrupt)
		}
		h = append(h, redrive.Header{Name: string(name), Value: value})
	}
	return h, nil
}

// encodeSeqs packs the messages of a claim record: the first, then the differences.
func encodeSeqs(seqs []int64) []byte {
	b := make([]byte, 0, 8+3*len(seqs))
	var last int64
	for _, seq := range seqs {
		b = binary.AppendVarint(b, seq-last)
		last = seq
	}
	return b
}

// decodeSeqs is the reverse of encodeSeqs.
func decodeSeqs(b []byte) ([]int64, error) {
	var seqs []int64
	var last int64
	for len(b) > 0 {
		d, w := binary.Varint(b)
		if w <= 0 {
			return nil, fmt.Errorf("%w: a claim record is cut short", redrive.ErrCorrupt)
		}
		last += d
		seqs = append(seqs, last)
		b = b[w:]
	}
	return seqs, nil
}
