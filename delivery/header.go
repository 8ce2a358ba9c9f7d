package delivery

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/headername"
)

// DefaultContentType is the type of a message that has no content-type header.
const DefaultContentType = "application/octet-stream"

// notForwarded are headers of a message that do not leave with it, in lower case.
var notForwarded = map[string]bool{
	"connection": true, "keep-alive": true, "te": true, "trailer": true, "transfer-encoding": true, "upgrade": true,
	"http2-settings": true, "host": true, "content-length": true, "expect": true, "user-agent": true,
	"authorization": true, "cookie": true, "cookie2": true,
}

// forwardedOurs are headers of the engine that a receiver is meant to see.
var forwardedOurs = map[string]bool{
	redrive.HeaderPossibleDuplicate: true, redrive.HeaderReplyFor: true, redrive.HeaderOutcome: true,
	redrive.HeaderReason: true, redrive.HeaderError: true,
}

// Names as net/http keeps them.
var (
	keyAttempt = http.CanonicalHeaderKey(headername.Attempt)
	keyQueue   = http.CanonicalHeaderKey(headername.Queue)
	keyKind    = http.CanonicalHeaderKey(headername.Kind)
)

// reserved reports a name, in lower case, that messages may not set.
func reserved(lower string) bool {
	return notForwarded[lower] || strings.HasPrefix(lower, "webhook-") || strings.HasPrefix(lower, headername.Prefix) ||
		strings.HasPrefix(lower, "proxy-")
}

// credential reports a reserved name that the configuration may set nevertheless.
func credential(lower string) bool {
	return lower == "authorization" || lower == "cookie" || lower == "user-agent"
}

// headerKey returns the key of a name in an http.Header. net/http repeats a request
// by itself when it finds an idempotency key in canonical form, and such an attempt
// would not be counted; these keys stay in lower case, which means the same.
func headerKey(name string) string {
	switch key := http.CanonicalHeaderKey(name); key {
	case "Idempotency-Key", "X-Idempotency-Key":
		return strings.ToLower(key)
	default:
		return key
	}
}

// buildHeader returns the headers of one attempt and how many of the message's
// could not be sent. The static ones are added later, as they win.
func (h *Handler) buildHeader(d *redrive.Delivery, at time.Time) (header http.Header, dropped int) {
	header = make(http.Header, len(d.Headers)+8+len(h.static))
	values := make([]string, 0, len(d.Headers)+8)
	set := func(key, value string) { // one backing array for all values
		values = append(values, value)
		header[key] = values[len(values)-1 : len(values) : len(values)]
	}
	contentType, traceparent := "", ""
	var tracestate []string
	for i := range d.Headers {
		name, value := d.Headers[i].Name, strings.Trim(string(d.Headers[i].Value), " \t")
		if !validName(name) || !validValue(value) {
			dropped++
			continue
		}
		switch lower := strings.ToLower(name); {
		case lower == "content-type":
			contentType = value
		case lower == "traceparent":
			traceparent = value
		case lower == "tracestate":
			tracestate = append(tracestate, value)
		case reserved(lower) && !forwardedOurs[lower]:
		default:
			if strings.HasPrefix(lower, "ce-") {
				value = escapeAttribute(value)
			}
			key := headerKey(name)
			if old, ok := header[key]; ok {
				header[key] = append(old, value)
			} else {
				set(key, value)
			}
		}
	}
	if contentType == "" {
		contentType = DefaultContentType
	}
	set("Content-Type", contentType)
	if validTraceparent(traceparent) {
		set("Traceparent", traceparent)
		if tracestate != nil {
			header["Tracestate"] = tracestate
		}
	}
	set("User-Agent", h.userAgent)
	set("Webhook-Id", d.ID)
	set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
	set(keyAttempt, strconv.Itoa(d.Attempt))
	set(keyQueue, d.Queue)
	if d.Kind != "" && validValue(d.Kind) {
		set(keyKind, d.Kind)
	}
	return header, dropped
}

// escapeAttribute writes the value of a CloudEvents attribute as its HTTP binding has
// it: everything but printable ASCII, and the space, the quote and the percent sign,
// are percent-encoded.
func escapeAttribute(s string) string {
	plain := func(c byte) bool { return c > ' ' && c < 0x7f && c != '"' && c != '%' }
	n := 0
	for i := range len(s) {
		if !plain(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	const digits = "0123456789ABCDEF"
	b := make([]byte, 0, len(s)+2*n)
	for i := range len(s) {
		if c := s[i]; plain(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(b)
}

// validName reports whether s is a token of RFC 9110, as net/http demands of a name.
func validName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// validValue reports whether s has no control characters but tabs, as net/http
// demands of a value.
func validValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// validTraceparent follows W3C Trace Context: version 00 is exact, a later version
// may be longer.
func validTraceparent(s string) bool {
	const length = len("00-") + 32 + 1 + 16 + 1 + 2
	if len(s) < length || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return false
	}
	version, trace, parent, flags := s[:2], s[3:35], s[36:52], s[53:55]
	for _, part := range []string{version, trace, parent, flags} {
		if strings.Trim(part, "0123456789abcdef") != "" {
			return false
		}
	}
	if version == "ff" || strings.Trim(trace, "0") == "" || strings.Trim(parent, "0") == "" {
		return false
	}
	return len(s) == length || version != "00" && s[length] == '-'
}
