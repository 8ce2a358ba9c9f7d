package mysql

import (
	"bytes"
	"encoding/base64"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Times and values as they are stored.

// micros is a time as it is stored, rounded up so that nothing is due early.
func micros(t time.Time) int64 {
	switch y := t.UTC().Year(); {
	case y > 9999:
		t = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	case y < 1:
		t = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	us := t.UnixMicro()
	if time.UnixMicro(us).Before(t) {
		us++
	}
	return us
}

func microsOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return micros(t)
}

func timeAt(us int64) time.Time { return time.UnixMicro(us).UTC() }

func timeOf(us *int64) time.Time {
	if us == nil {
		return time.Time{}
	}
	return timeAt(*us)
}

func body(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// textMax is the longest text of the columns that hold names of others than us.
const textMax = 512

// cut bounds a text for its column.
func cut(s string) []byte { return []byte(s[:min(len(s), textMax)]) }

// Headers are stored as ";name:value;name:value;", both in Base64, so that a search for
// ";name:" or ";name:value;" finds nothing else.

// encodeHeaders returns nil for none.
func encodeHeaders(h redrive.Headers) []byte {
	if len(h) == 0 {
		return nil
	}
	b := make([]byte, 0, h.Size()*4/3+10*len(h))
	for i := range h {
		b = append(b, ';')
		b = base64.StdEncoding.AppendEncode(b, []byte(h[i].Name))
		b = append(b, ':')
		b = base64.StdEncoding.AppendEncode(b, h[i].Value)
	}
	return append(b, ';')
}

// decodeHeaders is the reverse of encodeHeaders. What cannot be read becomes a header that
// holds it as it is.
func decodeHeaders(b []byte) redrive.Headers {
	var h redrive.Headers
	rest := bytes.Trim(b, ";")
	for len(rest) > 0 {
		var pair []byte
		pair, rest, _ = bytes.Cut(rest, []byte(";"))
		left, right, ok := bytes.Cut(pair, []byte(":"))
		name, bad := base64.StdEncoding.AppendDecode(nil, left)
		value, worse := base64.StdEncoding.AppendDecode([]byte{}, right)
		if !ok || bad != nil || worse != nil {
			return redrive.Headers{{Name: headername.Damaged, Value: bytes.Clone(b)}}
		}
		h = append(h, redrive.Header{Name: string(name), Value: value})
	}
	return h
}

// headerFilter is what to look for in stored headers for NAME or NAME=VALUE.
func headerFilter(want string) []byte {
	name, value, valued := strings.Cut(want, "=")
	b := append([]byte{';'}, base64.StdEncoding.EncodeToString([]byte(name))...)
	b = append(b, ':')
	if valued {
		b = append(base64.StdEncoding.AppendEncode(b, []byte(value)), ';')
	}
	return b
}

// Receipts. The position tells where the message stands and holds the claim's nonce,
// the message's seq, and its key if it stands in line.

// place is a position as it is read.
type place struct {
	kind       byte
	nonce, seq int64
	key        string
}

// newNonce is what keeps a claim apart from one that a crash of the server undid. It
// is never 0.
func newNonce() int64 { return rand.Int64() | 1 }

func (p place) String() string {
	return string(p.kind) + strconv.FormatInt(p.nonce, 36) + "." + strconv.FormatInt(p.seq, 36) + "." + p.key
}

// parsePlace is the reverse of String. What is no position of ours fits no claim.
func parsePlace(text string) place {
	nowhere := place{kind: sqlstore.PlaceMessage}
	parts := strings.SplitN(text, ".", 3)
	if len(parts) != 3 || len(parts[0]) < 2 {
		return nowhere
	}
	p := place{kind: parts[0][0], key: parts[2]}
	var err1, err2 error
	p.nonce, err1 = strconv.ParseInt(parts[0][1:], 36, 64)
	p.seq, err2 = strconv.ParseInt(parts[1], 36, 64)
	if err1 != nil || err2 != nil {
		return nowhere
	}
	return p
}

// Lists of names.

// byQueue groups the ids of names by their queues, in order, and in lists of bounded
// length.
func byQueue(refs []redrive.Ref) []idList {
	var lists []idList
	open := make(map[string]int)
	for _, r := range refs {
		i, ok := open[r.Queue]
		if !ok || len(lists[i].ids) == listMax {
			i = len(lists)
			open[r.Queue] = i
			lists = append(lists, idList{queue: r.Queue})
		}
		lists[i].ids = append(lists[i].ids, r.ID)
	}
	return lists
}

// idList is a list of ids of one queue, or of keys.
type idList struct {
	queue string
	ids   []string
}

// args are the arguments of a statement that asks for a queue and ids.
func (l *idList) args(more ...any) []any {
	args := append(make([]any, 0, len(l.ids)+len(more)+1), more...)
	args = append(args, []byte(l.queue))
	for _, id := range l.ids {
		args = append(args, []byte(id))
	}
	return args
}

// step returns a statement with the list filled in, after other arguments.
func (l *idList) step(sql *statements, name string, scan func(row) error, more ...any) step {
	return step{sql: sql.with(name, ":ids", places(len(l.ids))), args: l.args(more...), scan: scan}
}

// chunks parts a list of seqs.
func chunks(seqs []int64) [][]int64 {
	var lists [][]int64
	for len(seqs) > listMax {
		lists = append(lists, seqs[:listMax])
		seqs = seqs[listMax:]
	}
	if len(seqs) > 0 {
		lists = append(lists, seqs)
	}
	return lists
}
