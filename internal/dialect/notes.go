package dialect

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
)

// notes are the headers of one dialect.
type notes redrive.Headers

// text returns the last value of a name: who fails again appends.
func (n notes) text(name string) string {
	v, _ := redrive.Headers(n).Get(name)
	return v
}

// last returns the last value of the first name that is there.
func (n notes) last(names ...string) []byte {
	for _, name := range names {
		for _, v := range slices.Backward(n) {
			if v.Name == name {
				return v.Value
			}
		}
	}
	return nil
}

// first returns the first value of the first name that is there.
func (n notes) first(names ...string) []byte {
	for _, name := range names {
		for _, v := range n {
			if v.Name == name {
				return v.Value
			}
		}
	}
	return nil
}

// decimal reads a count that is written as text.
func decimal(b []byte) (int64, bool) {
	v, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return v, err == nil && v >= 0
}

// fixed reads a number of exactly so many bytes, most significant first; what has
// another length is read as text.
func fixed(b []byte, size int) (int64, bool) {
	if len(b) != size {
		return decimal(b)
	}
	return bigInteger(b)
}

// bigInteger reads two's complement, most significant byte first, of any length, as
// Java's BigInteger writes it.
func bigInteger(b []byte) (int64, bool) {
	for len(b) > 8 && b[0] == 0 {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 8 || b[0]&0x80 != 0 { // negative numbers count nothing
		return 0, false
	}
	var v int64
	for _, c := range b {
		v = v<<8 | int64(c)
	}
	return v, true
}

// either reads text, or else a number of four or eight bytes.
func either(b []byte) (int64, bool) {
	if v, ok := decimal(b); ok {
		return v, ok
	}
	if len(b) == 4 || len(b) == 8 {
		return bigInteger(b)
	}
	return 0, false
}

// count bounds a number of attempts.
func count(v int64, ok bool) int {
	if !ok || v > math.MaxInt32 {
		return 0
	}
	return int(v)
}

// milliseconds returns a moment since 1970, within the years that JSON can write.
func milliseconds(v int64, ok bool) time.Time {
	if !ok || v <= 0 || v > 253402300799999 {
		return time.Time{}
	}
	return time.UnixMilli(v).UTC()
}

// position sets partition and offset where they make sense.
func position(p *Place, partition, offset int64, hasPartition, hasOffset bool) {
	if hasPartition && partition <= math.MaxInt32 {
		p.Partition = int32(partition) //nolint:gosec // 0 to MaxInt32
	}
	if hasOffset {
		p.Offset = offset
	}
}

// within keeps a moment that JSON can write.
func within(t time.Time) time.Time {
	if t.IsZero() || t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t.UTC()
}

// short returns a class without its package.
func short(class string) string { return class[strings.LastIndexAny(class, ".+$")+1:] }

// anyOf reports one of several names.
func anyOf(names ...string) func(string) bool {
	return func(name string) bool { return slices.Contains(names, name) }
}

// prefixed reports names that begin with one of several texts.
func prefixed(prefixes ...string) func(string) bool {
	return func(name string) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
	}
}
