package driver

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/redrive/redrive/internal/text"
)

// DetailAnswer is the name of a failure's detail that has head and tail of the target's answer.
const DetailAnswer = "http.response"

// Bounds of a skeleton.
const (
	maxSkeleton      = 160 // characters
	maxSkeletonDepth = 8   // objects and lists within one another; what is deeper shows as …
	maxCodeDigits    = 6   // a code with more digits is a number of something
	maxCode          = 80  // bytes
)

// valued are the keys of an answer whose values tell a cause, and not a customer.
var valued = []string{"error", "code", "type", "title", "message", "detail", "reason", "field"}

const left = "…" // stands for what a skeleton leaves out

// Skeleton returns what the answers of a target to messages of one cause have in common, in at
// most 160 characters. Of JSON these are all keys, in order, and the values under error, code, type,
// title, message, detail, reason and field, each masked as [MaskMessage] does; values under other
// keys show as …, and an answer that was cut is read up to there. Any other answer is masked
// whole. Without values it has the keys only, and of what is not JSON nothing.
func Skeleton(answer string, values bool) string {
	answer = text.Clean(strings.TrimSpace(answer), maxMaskInput)
	var quotedText string
	switch {
	case answer == "":
		return ""
	case answer[0] == '{' || answer[0] == '[':
		if head, _, cut := strings.Cut(answer, text.Gap); cut && !json.Valid([]byte(answer)) {
			answer = head
		}
		s := skeleton{dec: json.NewDecoder(strings.NewReader(answer)), values: values}
		s.dec.UseNumber()
		if out := s.value(false, false, 0); s.seen {
			return shorten(out)
		}
	case json.Unmarshal([]byte(answer), &quotedText) == nil:
		answer = quotedText
	}
	if !values {
		return ""
	}
	return shorten(MaskMessage(answer))
}

// shorten cuts a text to the length of a skeleton.
func shorten(s string) string {
	if utf8.RuneCountInString(s) <= maxSkeleton {
		return s
	}
	return string([]rune(s)[:maxSkeleton-1]) + left
}

// skeleton reads an answer.
type skeleton struct {
	dec    *json.Decoder
	values bool
	seen   bool // a key, or a value: this is JSON
	cut    bool // the answer ended, or was none any more
}

// value returns the skeleton of the next value. named says that it stands under a key whose
// values count, code that this one holds codes.
func (s *skeleton) value(named, code bool, depth int) string {
	if depth == maxSkeletonDepth {
		var skipped json.RawMessage
		s.cut = s.dec.Decode(&skipped) != nil
		return left
	}
	token, err := s.dec.Token()
	if err != nil {
		s.cut = true
		return left
	}
	switch v := token.(type) {
	case json.Delim:
		if v == '{' {
			return s.object(depth)
		}
		return s.list(named, code, depth)
	case string:
		s.seen = true
		if named && s.values {
			return strconv.Quote(maskValue(v, code))
		}
	case json.Number:
		s.seen = true
		switch {
		case named && s.values && len(v) <= maxCodeDigits:
			return v.String()
		case named && s.values:
			return "<n>"
		}
	case bool:
		s.seen = true
		if named && s.values {
			return strconv.FormatBool(v)
		}
	}
	return left
}

// object returns the skeleton of an object, whose beginning was read: keys with values first, the
// others behind them, each in order, as a target may write them in any.
func (s *skeleton) object(depth int) string {
	var telling, others []string
	for !s.cut && s.dec.More() {
		token, err := s.dec.Token()
		key, ok := token.(string)
		if s.cut = err != nil || !ok; s.cut {
			break
		}
		s.seen = true
		lower := strings.ToLower(key)
		named := slices.Contains(valued, lower)
		part := strconv.Quote(MaskMessage(key)) + ":" + s.value(named, lower == "code" || lower == "type", depth+1)
		if named {
			telling = append(telling, part)
		} else {
			others = append(others, part)
		}
	}
	s.end()
	slices.Sort(telling)
	slices.Sort(others)
	return "{" + strings.Join(append(slices.Compact(telling), slices.Compact(others)...), ",") + "}"
}

// list returns the skeleton of a list: each different element once.
func (s *skeleton) list(named, code bool, depth int) string {
	var parts []string
	for !s.cut && s.dec.More() {
		if part := s.value(named, code, depth+1); part != left && !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	s.end()
	if parts == nil {
		return left // how many there are differs from message to message
	}
	slices.Sort(parts)
	return "[" + strings.Join(parts, ",") + "]"
}

// end reads the end of an object or list.
func (s *skeleton) end() {
	if !s.cut {
		_, err := s.dec.Token()
		s.cut = err != nil
	}
}

// maskValue masks a value. A code is a name: E1234 and E1235 are two causes.
func maskValue(v string, code bool) string {
	digits := 0
	for i := range len(v) {
		if digit(v[i]) {
			digits++
		}
	}
	if code && len(v) <= maxCode && digits <= maxCodeDigits && !strings.ContainsAny(v, " \t\r\n?@") {
		return v
	}
	return MaskMessage(v)
}
