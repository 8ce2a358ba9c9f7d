package delivery

import (
	"regexp"
	"strings"
)

// redacted stands for what was taken out.
const redacted = "[redacted]"

// maxName bounds how far back the name of a value is looked for.
const maxName = 64

// sensitiveWords make a name sensitive that contains one of them, in any case.
var sensitiveWords = []string{"authorization", "cookie", "token", "secret", "key", "signature", "password", "passwd", "credential"}

var (
	// "Bearer TOKEN" and "Basic TOKEN", wherever they stand.
	schemes = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{6,}`)
	// A signing secret, or a signature.
	signing = regexp.MustCompile(`\bwh(?:sec|sk)_[A-Za-z0-9+/=_-]+|\bv1a?,[A-Za-z0-9+/=]{20,}`)
)

// sensitive reports the name of a header or field whose value is not shown.
func sensitive(name string) bool {
	name = strings.ToLower(name)
	for _, word := range sensitiveWords {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// redact takes out of a text what may be a secret: the given ones wherever they
// stand, values of names that sound like one, and user, password and query of URLs.
// It runs in linear time. What it takes too much does no harm; the status remains.
func redact(text string, hide []string) string {
	for _, s := range hide {
		text = cutPrefixAtEnd(strings.ReplaceAll(text, s, redacted), s)
	}
	text = redactURLs(text)
	if strings.Contains(text, "wh") || strings.Contains(text, "v1") {
		text = signing.ReplaceAllString(text, redacted)
	}
	if lower := strings.ToLower(text); strings.Contains(lower, "bearer") || strings.Contains(lower, "basic") {
		text = schemes.ReplaceAllString(text, "${1} "+redacted)
	}
	return redactNamed(text)
}

// redactNamed takes out the value after a sensitive name: NAME: value, NAME=value and
// "NAME": "value", also where that is quoted in a string itself.
func redactNamed(text string) string {
	var out strings.Builder
	done := 0
	for i := 0; i < len(text); i++ {
		if text[i] != ':' && text[i] != '=' {
			continue
		}
		name := nameBefore(text[max(done, i-maxName):i])
		if !sensitive(name) {
			continue
		}
		from := i + 1
		for from < len(text) && (text[from] == ' ' || text[from] == '\t') {
			from++
		}
		to := from + valueLength(text[from:], name)
		if to == from {
			continue
		}
		out.WriteString(text[done:from])
		out.WriteString(redacted)
		done, i = to, to-1
	}
	out.WriteString(text[done:])
	return out.String()
}

// nameBefore returns the name that a text ends with, without quotes around it.
func nameBefore(text string) string {
	text = strings.TrimRight(text, " \t")
	text = strings.TrimRight(text, `"'\`)
	return text[strings.LastIndexAny(text, " \t\r\n\"'`\\,;:=&?/{}()[]<>")+1:]
}

// valueLength returns the length of the value that a text begins with: a string to
// its closing quote, credentials of several words to the end of their line, and
// anything else to the next space or bracket.
func valueLength(text, name string) int {
	opening := strings.TrimLeft(text, `\`)
	escapes := len(text) - len(opening)
	if opening != "" && (opening[0] == '"' || opening[0] == '\'') {
		quote := opening[0]
		for i := escapes + 1; i < len(text); i++ {
			switch {
			case text[i] == '\\' && escapes == 0:
				i++
			case text[i] == quote:
				return i + 1
			}
		}
		return len(text) // it was cut off
	}
	end := " \t\r\n;&\"'<>{}()[]"
	name = strings.ToLower(name)
	if strings.Contains(name, "authorization") || strings.Contains(name, "cookie") {
		end = "\r\n\"'<>"
	}
	if n := strings.IndexAny(text, end); n >= 0 {
		return n
	}
	return len(text)
}

// redactURLs takes user and password out of URLs, and the query out of URLs and
// paths.
func redactURLs(text string) string {
	if !strings.Contains(text, "://") && !strings.Contains(text, "?") {
		return text
	}
	var out strings.Builder
	for len(text) > 0 {
		n := strings.IndexAny(text, " \t\r\n\"'<>")
		switch n {
		case -1:
			n = len(text)
		case 0:
			out.WriteByte(text[0])
			text = text[1:]
			continue
		}
		redactURL(&out, text[:n])
		text = text[n:]
	}
	return out.String()
}

// redactURL writes a word without what must not be shown of a URL in it.
func redactURL(out *strings.Builder, word string) {
	for inURL := false; ; inURL = true {
		before, after, ok := strings.Cut(word, "://")
		out.WriteString(withoutQuery(before, inURL))
		if !ok {
			return
		}
		out.WriteString("://")
		authority := after
		if n := strings.IndexAny(after, "/?#,\\"); n >= 0 {
			authority = after[:n]
		}
		word = after[strings.LastIndexByte(authority, '@')+1:]
	}
}

// withoutQuery cuts what follows the question mark of a URL or path.
func withoutQuery(word string, inURL bool) string {
	if path, query, ok := strings.Cut(word, "?"); ok && query != "" && (inURL || strings.Contains(path, "/")) {
		return path + "?" + redacted
	}
	return word
}

// cutPrefixAtEnd removes the beginning of a secret from the end of a text that was
// cut there.
func cutPrefixAtEnd(text, secret string) string {
	for n := min(len(secret)-1, len(text)); n >= 4; n-- {
		if strings.HasSuffix(text, secret[:n]) {
			return text[:len(text)-n]
		}
	}
	return text
}

// excerpt returns head and tail of a text of any length as valid UTF-8.
func excerpt(text string, head, tail int) string {
	if len(text) > head+tail {
		text = text[:head] + " … " + text[len(text)-tail:]
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}
