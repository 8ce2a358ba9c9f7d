package jsonmask

import (
	"encoding/json"
	"strings"
)

// Hidden is what stands in place of what is hidden whole.
const Hidden = "***"

// maxDocuments bounds how often Text tries to read a document, each time perhaps to the
// end of the text.
const maxDocuments = 100

// Text masks the JSON documents that a text quotes, such as an error that tells what it
// could not read, and reports whether there was anything to hide. What begins like a
// document but is none, because it was cut for instance, is hidden to the end of the
// text: nobody knows what is in it.
func Text(text string, paths []Path) (string, bool) {
	var out strings.Builder
	copied, tried := 0, 0
	for i := 0; i < len(text); i++ {
		likely := quotes(text[i:])
		if likely == quotesNone {
			continue
		}
		var doc json.RawMessage
		d := json.NewDecoder(strings.NewReader(text[i:]))
		err := d.Decode(&doc)
		if tried++; err != nil && (likely == quotesSurely || tried > maxDocuments) {
			return out.String() + text[copied:i] + Hidden, true
		}
		if err != nil {
			continue
		}
		end := i + int(d.InputOffset())
		if masked, hit, err := Apply(doc, paths); err == nil && hit {
			out.WriteString(text[copied:i])
			out.Write(masked)
			copied = end
		}
		i = end - 1
	}
	if copied == 0 {
		return text, false
	}
	out.WriteString(text[copied:])
	return out.String(), true
}

type quoted uint8

const (
	quotesNone   quoted = iota
	quotesMaybe         // a list of numbers, or an address in brackets
	quotesSurely        // an object, or a list of texts, lists or objects
)

// quotes guesses whether a JSON document begins where a text begins, also one within a
// JSON string, whose quotation marks are escaped.
func quotes(text string) quoted {
	if text[0] != '{' && text[0] != '[' {
		return quotesNone
	}
	rest := strings.TrimLeft(text[1:], " \t\r\n")
	switch {
	case rest == "":
		return quotesNone
	case rest[0] == '"', strings.HasPrefix(rest, `\"`):
		return quotesSurely
	case text[0] == '[' && (rest[0] == '{' || rest[0] == '['):
		if quotes(rest) != quotesNone {
			return quotesSurely
		}
	case text[0] == '[' && (rest[0] == '-' || rest[0] >= '0' && rest[0] <= '9'):
		return quotesMaybe
	}
	return quotesNone
}
