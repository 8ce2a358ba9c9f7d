package session

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"mime"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/wsproto"
)

// appendString appends a JSON string.
func appendString(b []byte, s string) []byte {
	text, err := json.Marshal(s)
	if err != nil { // a string cannot fail to encode
		panic(err)
	}
	return append(b, text...)
}

func begin(typ string) []byte {
	b := make([]byte, 0, 128)
	b = append(b, `{"type":"`...)
	b = append(b, typ...)
	return append(b, '"')
}

func appendNumber(b []byte, name string, n uint64) []byte {
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":`...)
	return strconv.AppendUint(b, n, 10)
}

func appendField(b []byte, name, value string) []byte {
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":`...)
	return appendString(b, value)
}

// appendOptional leaves out what is empty.
func appendOptional(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return appendField(b, name, value)
}

func appendRefusals(b []byte, list []Refusal) []byte {
	if len(list) == 0 {
		return b
	}
	b = append(b, `,"errors":[`...)
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"seq":`...)
		b = strconv.AppendUint(b, list[i].Seq, 10)
		b = append(b, `,"error":`...)
		b = append(b, list[i].Error...)
		b = append(b, '}')
	}
	return append(b, ']')
}

func (m *Machine) welcomeFrame() []byte {
	b := appendField(begin(wsproto.TypeWelcome), "session", m.name)
	b = appendField(b, "token", m.token)
	b = append(b, `,"resumed":`...)
	b = strconv.AppendBool(b, m.rec.Epoch > 1)
	b = appendNumber(b, "epoch", m.rec.Epoch)
	b = appendNumber(b, "seq", m.rec.Seq)
	b = appendNumber(b, "limit", m.limit)
	b = appendNumber(b, "result", m.rec.Result)
	b = appendRefusals(b, m.rec.Refused)
	b = appendNumber(b, "max_frame", uint64(m.o.MaxFrame))    //nolint:gosec // positive
	b = appendNumber(b, "idle", uint64(m.o.Idle/time.Second)) //nolint:gosec // positive
	b = appendField(b, "server", m.o.Server)
	return append(b, '}')
}

func ackFrame(seq, limit uint64, errors []Refusal) []byte {
	b := appendNumber(begin(wsproto.TypeAck), "seq", seq)
	b = appendNumber(b, "limit", limit)
	return append(appendRefusals(b, errors), '}')
}

func creditFrame(limit uint64) []byte {
	return append(appendNumber(begin(wsproto.TypeCredit), "limit", limit), '}')
}

func slowDownFrame(l level) []byte {
	b := appendField(begin(wsproto.TypeSlowDown), "queue", l.queue)
	b = appendField(b, "level", l.level.String())
	if l.level == driver.LevelRefused {
		b = appendNumber(b, "retry_after", uint64(max(1, math.Ceil(l.after.Seconds()))))
	}
	return append(b, '}')
}

func gapFrame(reason string, lost uint64) []byte {
	b := appendField(begin(wsproto.TypeGap), "reason", reason)
	if lost > 0 {
		b = appendNumber(b, "lost", lost)
	}
	return append(b, '}')
}

func pongFrame(data string) []byte {
	return append(appendOptional(begin(wsproto.TypePong), "data", data), '}')
}

// Headers of a result by which the target's answer is described; see package delivery.
const (
	headerStatus    = headername.Status
	headerTruncated = headername.Truncated
)

// resultFrame is a result as it is pushed.
func resultFrame(number uint64, r *redrive.Message) []byte {
	get := func(name string) string {
		v, _ := r.Headers.Get(name)
		return v
	}
	b := appendNumber(begin(wsproto.TypeResult), "number", number)
	if n, err := strconv.ParseUint(get(redrive.HeaderReplyNumber), 10, 64); err == nil {
		b = appendNumber(b, "seq", n)
	}
	queue, id, _ := strings.Cut(get(redrive.HeaderReplyFor), "/")
	b = appendField(b, "queue", queue)
	b = appendField(b, "id", id)
	b = appendField(b, "outcome", get(redrive.HeaderOutcome))
	b = appendOptional(b, "reason", get(redrive.HeaderReason))
	b = appendOptional(b, "error", get(redrive.HeaderError))
	if n, err := strconv.ParseUint(get(headerStatus), 10, 16); err == nil {
		b = appendNumber(b, "status", n)
	}
	contentType := get("content-type")
	b = appendOptional(b, "content_type", contentType)
	b = appendOptional(b, "content_encoding", get("content-encoding"))
	if get(headerTruncated) != "" {
		b = append(b, `,"truncated":true`...)
	}
	switch {
	case len(r.Body) == 0:
	case isJSON(contentType) && utf8.Valid(r.Body) && json.Valid(r.Body): // what is not UTF-8 would break the connection
		b = append(append(b, `,"body":`...), r.Body...)
	default:
		b = append(b, `,"body_base64":"`...)
		b = append(base64.StdEncoding.AppendEncode(b, r.Body), '"')
	}
	return append(b, '}')
}

func isJSON(contentType string) bool {
	if contentType == "application/json" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}
