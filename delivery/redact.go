package delivery

import (
	"regexp"
	"strings"
)

// redacted stands for what was taken out.
const redacted = "[redacted]"

const sensitiveName = `[\w.-]*(?:authorization|cookie|token|secret|key|signature|password|passwd|credential)[\w.-]*`

var (
	sensitiveNames = regexp.MustCompile(`(?i)^` + sensitiveName + `$`)

	// A header as it is sent, with a value of several words.
	credentialLine = regexp.MustCompile(`(?i)(\b(?:proxy-)?authorization|\b(?:set-)?cookie)("?\s*[:=]\s*"?)[^\r\n"<>]+`)
	// NAME: value, NAME=value, "NAME": "value"; a string may be cut off at the end.
	namedValue = regexp.MustCompile(`(?i)(` + sensitiveName + `)(\\?["']?\s*[:=]\s*)("(?:[^"\\]|\\.)*(?:"|\\?$)|\\+"[^"]*(?:"|$)|'[^']*(?:'|$)|[^\s;&"'<>{}()\[\]]+)`)
	// "Bearer TOKEN" and "Basic TOKEN", wherever they stand.
	scheme = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{6,}`)
	// A signing secret, or a signature.
	signing      = regexp.MustCompile(`\bwh(?:sec|sk)_[A-Za-z0-9+/=_-]+|\bv1a?,[A-Za-z0-9+/=]{20,}`)
	urlUserinfo  = regexp.MustCompile(`(?i)\b([a-z][a-z0-9+.-]*://)[^\s/?#"'<>]*@`)
	urlQuery     = regexp.MustCompile(`(?i)\b([a-z][a-z0-9+.-]*://[^\s?#"'<>]*)\?[^\s"'<>]*`)
	requestQuery = regexp.MustCompile(`(?m)(^|[\s"'])(/[^\s?#"'<>]*)\?[^\s"'<>]+`)
)

// sensitive reports the name of a header or field whose value is not shown.
func sensitive(name string) bool { return sensitiveNames.MatchString(name) }

// redact takes out of a text what may be a secret: the given ones wherever they
// stand, values of names that sound like one, and user, password and query of URLs.
// It runs in linear time. What it takes too much does no harm; the status remains.
func redact(text string, hide []string) string {
	for _, s := range hide {
		text = cutPrefixAtEnd(strings.ReplaceAll(text, s, redacted), s)
	}
	text = urlUserinfo.ReplaceAllString(text, "${1}")
	text = urlQuery.ReplaceAllString(text, "${1}?"+redacted)
	text = requestQuery.ReplaceAllString(text, "${1}${2}?"+redacted)
	text = signing.ReplaceAllString(text, redacted)
	text = scheme.ReplaceAllString(text, "${1} "+redacted)
	text = credentialLine.ReplaceAllString(text, "${1}${2}"+redacted)
	return namedValue.ReplaceAllString(text, "${1}${2}"+redacted)
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
