package kafka

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
)

// window is what of a partition is finished: everything below the committed offset, and ranges
// above it. The ranges travel in the commit's
// metadata, so that what was finished out of order is as durable as that offset.
type window struct {
	committed int64
	ranges    []span // sorted, apart from each other and from committed
}

// span is a range of offsets, from included, to not.
type span struct{ from, to int64 }

// metadataLimit is what brokers allow by default (offset.metadata.max.bytes).
const metadataLimit = 4096

// What surely fits into the metadata, in one of the two encodings: a bit for each offset
// of a short window, or so many ranges of a long one, whose gaps and lengths take three
// bytes only where they are long, and so few.
const (
	maxBits   = 24_000
	maxRanges = 900
)

// clone returns a copy.
func (w *window) clone() *window {
	return &window{committed: w.committed, ranges: slices.Clone(w.ranges)}
}

// finish adds finished offsets.
func (w *window) finish(from, to int64) {
	from = max(from, w.committed)
	if from >= to {
		return
	}
	i, _ := slices.BinarySearchFunc(w.ranges, from, func(s span, at int64) int {
		if s.to < at { // one that ends where ours begins is joined
			return -1
		}
		return 1
	})
	j := i
	add := span{from, to}
	for j < len(w.ranges) && w.ranges[j].from <= to {
		add.from, add.to = min(add.from, w.ranges[j].from), max(add.to, w.ranges[j].to)
		j++
	}
	w.ranges = slices.Replace(w.ranges, i, j, add)
	if w.ranges[0].from <= w.committed {
		w.committed = w.ranges[0].to
		w.ranges = slices.Delete(w.ranges, 0, 1)
	}
}

// finished reports whether an offset is.
func (w *window) finished(offset int64) bool {
	if offset < w.committed {
		return true
	}
	_, ok := slices.BinarySearchFunc(w.ranges, offset, func(s span, at int64) int {
		switch {
		case s.to <= at:
			return -1
		case s.from > at:
			return 1
		}
		return 0
	})
	return ok
}

// Prefixes tell our metadata from what others may commit.
const (
	rangesPrefix = "rd1:"
	bitsPrefix   = "rd2:"
)

// fits reports whether a record may be claimed: whatever is finished then, in which
// order ever, fits into the metadata.
func (w *window) fits(offset int64, inFlight int) bool {
	ahead := offset - w.committed
	return ahead < maxBits || ahead < maxWindow && len(w.ranges)+inFlight < maxRanges
}

// ahead is how far what is finished goes beyond the committed offset; 0: nothing above it is finished.
func (w *window) ahead() int64 {
	if len(w.ranges) == 0 {
		return 0
	}
	return w.ranges[len(w.ranges)-1].to - w.committed
}

// above counts what is finished beyond the committed offset.
func (w *window) above() (n int64) {
	for _, r := range w.ranges {
		n += r.to - r.from
	}
	return n
}

// nearlyFull reports that a tenth more would not be claimed.
func (w *window) nearlyFull(inFlight int) bool {
	return !w.fits(w.committed+w.ahead()*10/9, inFlight+len(w.ranges)/9)
}

// metadata encodes the ranges in the shorter way: gaps and lengths in turn, as varints, or
// a bit an offset from the one after the committed offset.
func (w *window) metadata() string {
	if len(w.ranges) == 0 {
		return ""
	}
	text := rangesPrefix + base64.RawStdEncoding.EncodeToString(w.varints())
	if ahead := w.ahead(); ahead <= maxBits+1 && base64.RawStdEncoding.EncodedLen(int(ahead+7)/8) < len(text)-len(bitsPrefix) {
		return bitsPrefix + base64.RawStdEncoding.EncodeToString(w.bits(int(ahead)))
	}
	return text
}

func (w *window) bits(ahead int) []byte {
	b := make([]byte, (ahead+7)/8)
	for _, s := range w.ranges {
		for o := s.from - w.committed - 1; o < s.to-w.committed-1; o++ {
			b[o/8] |= 1 << (o % 8)
		}
	}
	return b
}

func (w *window) varints() []byte {
	b := make([]byte, 0, 4*len(w.ranges))
	at := w.committed
	for _, s := range w.ranges {
		b = binary.AppendUvarint(b, uint64(s.from-at))   //nolint:gosec // ranges are sorted
		b = binary.AppendUvarint(b, uint64(s.to-s.from)) //nolint:gosec // and not empty
		at = s.to
	}
	return b
}

var errMetadata = errors.New("the metadata of the committed offset cannot be read")

// readWindow is the reverse of metadata. Metadata of others means that nothing above the
// committed offset is finished.
func readWindow(committed int64, metadata string) (window, error) {
	text, ranges := strings.CutPrefix(metadata, rangesPrefix)
	if !ranges {
		var bits bool
		if text, bits = strings.CutPrefix(metadata, bitsPrefix); !bits {
			return window{committed: committed}, nil
		}
	}
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return window{committed: committed}, errMetadata
	}
	if ranges {
		return readVarints(committed, b)
	}
	w := window{committed: committed}
	for i := range int64(len(b)) * 8 {
		if b[i/8]&(1<<(i%8)) != 0 {
			w.finish(committed+1+i, committed+2+i)
		}
	}
	return w, nil
}

func readVarints(committed int64, b []byte) (window, error) {
	w := window{committed: committed}
	for at := committed; len(b) > 0; {
		gap, n := binary.Uvarint(b)
		if n <= 0 {
			return window{committed: committed}, errMetadata
		}
		length, m := binary.Uvarint(b[n:])
		if m <= 0 || gap == 0 || length == 0 || gap > 1<<40 || length > 1<<40 {
			return window{committed: committed}, errMetadata
		}
		b = b[n+m:]
		s := span{from: at + int64(gap)}
		s.to = s.from + int64(length)
		w.ranges = append(w.ranges, s)
		at = s.to
	}
	return w, nil
}
