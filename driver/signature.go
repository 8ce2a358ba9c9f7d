package driver

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/text"
)

// DetailStatus is the name of a failure's detail that has the HTTP status of an answer.
const DetailStatus = "http.status"

// Bounds of what a signature looks at, in bytes.
const (
	maxMaskInput = 4096
	maxMasked    = 512 // of the masked message: what follows is mostly data
	maxMaskQuote = 256 // a quotation longer than this is not one
	// A list of numbers that is longer than this is several, so that none is looked at
	// twice.
	maxMaskNumber = 64
)

// signatureVersion is that of the rules below. Whoever changes what they make of a failure
// changes it, too: signatures of two versions are never taken for one cause.
const signatureVersion = "2"

// Signature returns the name by which failures of one cause are grouped: the version of
// its rules, a dash, and 16 hexadecimal digits over the error's name (see
// [redrive.NamedError]), its message with everything that differs from message to message
// masked (see [MaskMessage]), the HTTP status of [DetailStatus] or else the
// top frame of the stack that belongs to the application, and the [Skeleton] of the target's
// answer, if there is one. It takes linear time. The same failure has the same signature as long as
// the version is the same.
func Signature(f *redrive.Failure) string {
	var kind string
	if len(f.Types) > 0 {
		kind = f.Types[0]
	}
	masked := MaskMessage(f.Message)
	if len(masked) > maxMasked {
		masked = masked[:maxMasked]
	}
	where := f.Details[DetailStatus]
	if where == "" {
		where = TopFrame(f.Stack)
	}
	h := sha256.New()
	for _, s := range []string{kind, masked, where, Skeleton(f.Details[DetailAnswer], true)} {
		h.Write([]byte(s))
		h.Write([]byte{0}) // not in any of them: failures hold no NUL
	}
	return signatureVersion + "-" + hex.EncodeToString(h.Sum(nil)[:8])
}

// MaskMessage replaces what differs between errors of one cause by placeholders:
// <n> for numbers and durations, <hex>, <id>, <uuid>, <time>, <ip>, <url>, <email>,
// and <str> for what stands in quotes. Space is collapsed. Of a message longer than
// 4 KiB head and tail are taken.
func MaskMessage(s string) string {
	s = text.Clean(s, maxMaskInput)
	var out strings.Builder
	out.Grow(min(len(s), maxMasked))
	space := false
	for i := 0; i < len(s); {
		c := s[i]
		if c <= ' ' {
			space = out.Len() > 0
			i++
			continue
		}
		if space {
			out.WriteByte(' ')
			space = false
		}
		if n := quoted(s, i); n > 0 {
			out.WriteString("<str>")
			i += n
			continue
		}
		if maskDelimiter[c] {
			out.WriteByte(c)
			i++
			continue
		}
		if n := urlLength(s[i:]); n > 0 {
			out.WriteString("<url>")
			i += n
			continue
		}
		end := i + 1
		for end < len(s) && s[end] > ' ' && !maskDelimiter[s[end]] {
			end++
		}
		maskToken(&out, s[i:end])
		i = end
	}
	return out.String()
}

// maskDelimiter are the characters that end a token.
var maskDelimiter = func() (set [256]bool) {
	for _, c := range []byte("\"'`()[]{}<>,;=|&!?#*$\\^~") {
		set[c] = true
	}
	return set
}()

// quoted returns the length of a quotation that begins at i, or 0. An apostrophe
// within a word opens none.
func quoted(s string, i int) int {
	q := s[i]
	if q != '"' && q != '\'' && q != '`' || q == '\'' && i > 0 && (wordByte(s[i-1]) || s[i-1] >= utf8.RuneSelf) {
		return 0
	}
	for j := i + 1; j < len(s) && j-i <= maxMaskQuote; j++ {
		switch {
		case s[j] == '\\' && q != '`':
			j++
		case s[j] == '\n':
			return 0
		case s[j] == q && !(q == '\'' && j+1 < len(s) && wordByte(s[j+1])):
			return j + 1 - i
		}
	}
	return 0
}

// urlLength returns the length of a URL that s begins with, or 0.
func urlLength(s string) int {
	n := 0
	for n < len(s) && n < 16 && (letter(s[n]) || n > 0 && (digit(s[n]) || s[n] == '+' || s[n] == '-' || s[n] == '.')) {
		n++
	}
	if n == 0 || !strings.HasPrefix(s[n:], "://") {
		return 0
	}
	for n < len(s) && s[n] > ' ' && !strings.ContainsRune("\"'`<>{}|\\^", rune(s[n])) {
		n++
	}
	for strings.IndexByte(".,:;!?)]", s[n-1]) >= 0 { // the sentence's, not the URL's
		n--
	}
	return n
}

// maskToken writes a token, which holds no space and no delimiter, masked.
func maskToken(out *strings.Builder, t string) {
	core := strings.TrimRight(t, ".:/")
	tail := t[len(core):]
	switch {
	case isEmail(core):
		out.WriteString("<email>")
	case isTimestamp(core):
		out.WriteString("<time>")
	case isIPv6(core):
		out.WriteString("<ip>")
	default:
		maskWords(out, t)
		return
	}
	out.WriteString(tail)
}

func isEmail(t string) bool {
	name, host, ok := strings.Cut(t, "@")
	return ok && name != "" && strings.Contains(host, ".") && strings.IndexByte(host, '@') < 0
}

// isTimestamp recognises dates, times of day and both in one, as RFC 3339 and Go's
// log package write them.
func isTimestamp(t string) bool {
	date := len(t) >= 10 && shape(t[:10], "0000-00-00") || len(t) >= 10 && shape(t[:10], "0000/00/00")
	if date {
		if t = t[10:]; t == "" {
			return true
		}
		if t[0] != 'T' && t[0] != 't' && t[0] != '_' {
			return false
		}
		t = t[1:]
	}
	if len(t) < 8 || !shape(t[:8], "00:00:00") {
		return date && len(t) >= 5 && shape(t[:5], "00:00")
	}
	for _, c := range []byte(t[8:]) {
		if !digit(c) && strings.IndexByte(".:+-Zz", c) < 0 {
			return false
		}
	}
	return true
}

// shape reports whether s looks like the pattern, in which 0 stands for any digit.
func shape(s, pattern string) bool {
	for i := range len(pattern) {
		if pattern[i] == '0' && !digit(s[i]) || pattern[i] != '0' && s[i] != pattern[i] {
			return false
		}
	}
	return true
}

func isIPv6(t string) bool {
	colons := 0
	for i := range len(t) {
		switch c := t[i]; {
		case c == ':':
			colons++
		case c == '.' || c == '%' || text.HexDigit(c):
		default:
			return false
		}
	}
	return colons >= 2 && (colons >= 4 || strings.Contains(t, "::"))
}

// maskWords writes a token word by word; words are of letters, digits, - and _.
func maskWords(out *strings.Builder, t string) {
	for i := 0; i < len(t); {
		if !idByte(t[i]) {
			out.WriteByte(t[i])
			i++
			continue
		}
		end := i + 1
		for end < len(t) && idByte(t[end]) {
			end++
		}
		if n := numberLength(t[i:]); n > 0 && (i+n >= end) {
			out.WriteString("<n>")
			i += n
			continue
		}
		maskWord(out, t[i:end])
		i = end
	}
}

// numberLength returns the length of a number, a dotted or colon-separated list of
// numbers (an IPv4 address with its port, a version) or a duration at the start of t,
// or 0.
func numberLength(t string) int {
	i := 0
	if t[0] == '-' {
		i = 1
	}
	start := i
	for i < len(t) && i < maxMaskNumber {
		digits := i
		for i < len(t) && digit(t[i]) {
			i++
		}
		if i == digits {
			break
		}
		unit := i
		for unit < len(t) && letter(t[unit]) {
			unit++
		}
		if isUnit(t[i:unit]) {
			i = unit
		} else if strings.HasPrefix(t[i:], "µs") {
			i += len("µs")
		}
		if i+1 < len(t) && (t[i] == '.' || t[i] == ':') && digit(t[i+1]) {
			i++
		}
	}
	if i == start || i < maxMaskNumber && i < len(t) && idByte(t[i]) {
		return 0
	}
	return i
}

func isUnit(s string) bool {
	switch s {
	case "ns", "us", "ms", "s", "m", "h", "d", "B", "kB", "KB", "MB", "GB", "KiB", "MiB", "GiB", "k", "K", "M", "G":
		return true
	}
	return false
}

// maskWord writes one word.
func maskWord(out *strings.Builder, w string) {
	digits, letters, allHex := 0, 0, true
	for i := range len(w) {
		switch c := w[i]; {
		case digit(c):
			digits++
		case letter(c):
			letters++
			allHex = allHex && text.HexDigit(c)
		default:
			allHex = allHex && c == '-'
		}
	}
	hexa := strings.TrimPrefix(strings.TrimPrefix(w, "0x"), "0X")
	switch {
	case digits == 0:
		out.WriteString(w)
	case allHex && len(w) == 36 && strings.Count(w, "-") == 4:
		out.WriteString("<uuid>")
	case len(hexa) < len(w) && len(hexa) > 0 && text.IsHex(hexa), len(w) >= 8 && letters > 0 && text.IsHex(w):
		out.WriteString("<hex>")
	case digits >= 2 && len(w) >= 10 && letters > 0 && !prefixed(w):
		out.WriteString("<id>")
	default:
		maskDigits(out, w)
	}
}

// prefixed reports whether a word is a name with a number behind it, such as
// "connection-4711": the name tells something.
func prefixed(w string) bool {
	name := strings.TrimRight(w, "0123456789")
	for i := range len(name) {
		if digit(name[i]) {
			return false
		}
	}
	return len(name) < len(w)
}

// maskDigits writes a word with each run of digits masked.
func maskDigits(out *strings.Builder, w string) {
	for i := 0; i < len(w); {
		if !digit(w[i]) {
			out.WriteByte(w[i])
			i++
			continue
		}
		for i < len(w) && digit(w[i]) {
			i++
		}
		out.WriteString("<n>")
	}
}

func digit(c byte) bool    { return c >= '0' && c <= '9' }
func letter(c byte) bool   { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func wordByte(c byte) bool { return digit(c) || letter(c) || c == '_' }
func idByte(c byte) bool   { return wordByte(c) || c == '-' }

// TopFrame returns the function of the topmost frame of a Go stack that is neither
// the runtime's nor ours, without arguments and line. If all are ours, it is the topmost
// of these without its package, which may move.
func TopFrame(stack string) string {
	// Above the last panic are the frames of recovering.
	if i := strings.LastIndex(stack, "\npanic("); i >= 0 {
		stack = stack[i+1:]
	}
	var top string
	for line := range strings.Lines(stack) {
		if line[0] == '\t' || line[0] == ' ' {
			continue
		}
		line = strings.TrimRight(line, "\r\n")
		name, ok := strings.CutSuffix(line, ")")
		at := strings.LastIndexByte(name, '(')
		if !ok || at <= 0 {
			continue
		}
		name = name[:at]
		if strings.ContainsRune(name, ' ') || name == "panic" || strings.HasPrefix(name, "runtime.") || strings.HasPrefix(name, "runtime/") {
			continue
		}
		function, own := ownFrame(name)
		if !own {
			return name
		}
		top = cmp.Or(top, function)
	}
	return top
}

// module is the path of our module, which is that of the root package.
var module = reflect.TypeFor[redrive.Failure]().PkgPath()

// ownFrame returns the function of a frame of ours without its package. Tests outside of
// their package are users.
func ownFrame(name string) (function string, own bool) {
	rest, ok := strings.CutPrefix(name, module)
	if !ok || rest == "" || rest[0] != '.' && rest[0] != '/' {
		return "", false
	}
	pkg, function, _ := strings.Cut(rest[strings.LastIndexByte(rest, '/')+1:], ".")
	return function, !strings.HasSuffix(pkg, "_test")
}
