package jsonmask

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/redrive/redrive/internal/text"
)

// Hidden is what stands in place of what is hidden whole.
const Hidden = "***"

// maxDocuments bounds how often Text tries to read a document, each time perhaps to the
// end of the text.
const maxDocuments = 100

// Text masks the JSON documents that a text quotes, such as an error that tells what it
// could not read, and reports whether there was anything to hide. What begins like a
// document but is none, because it was cut for instance, is hidden to the end of the
// text: nobody knows what is in it. For the same reason a document is hidden whole of which
// the middle was cut out (see package text), or that quotes a document with something to hide
// in one of its own texts.
func Text(of string, paths []Path) (string, bool) {
	var out strings.Builder
	copied, tried := 0, 0
	for i := 0; i < len(of); i++ {
		likely := quotes(of[i:])
		if likely == quotesNone {
			continue
		}
		var doc json.RawMessage
		d := json.NewDecoder(strings.NewReader(of[i:]))
		err := d.Decode(&doc)
		if tried++; err != nil && (likely == quotesSurely || tried > maxDocuments) {
			return out.String() + of[copied:i] + Hidden, true
		}
		if err != nil {
			continue
		}
		end := i + int(d.InputOffset())
		masked, hit, err := Apply(doc, paths)
		if err == nil && hides(masked, paths) {
			masked, hit = []byte(Hidden), true
		}
		if err == nil && hit {
			out.WriteString(of[copied:i])
			out.Write(masked)
			copied = end
		}
		i = end - 1
	}
	if copied == 0 {
		return of, false
	}
	out.WriteString(of[copied:])
	return out.String(), true
}

// hides reports whether a text within a document was cut in its middle, or quotes a document
// in which there is something to hide.
func hides(doc []byte, paths []Path) bool {
	d := json.NewDecoder(bytes.NewReader(doc))
	for {
		token, err := d.Token()
		if err != nil {
			return false
		}
		s, ok := token.(string)
		if !ok {
			continue
		}
		if strings.Contains(s, text.Gap) {
			return true
		}
		if _, hit := Text(s, paths); hit {
			return true
		}
	}
}

type quoted uint8

const (
	quotesNone   quoted = iota
	quotesMaybe         // a list of numbers, or an address in brackets
	quotesSurely        // an object, or a list of texts, lists or objects
)

// quotes guesses whether a JSON document begins where a text begins, also one within a
// JSON string, or within several, whose quotation marks and white space are escaped.
func quotes(s string) quoted {
	if s[0] != '{' && s[0] != '[' {
		return quotesNone
	}
	rest := trimSpace(s[1:])
	switch {
	case rest == "":
		return quotesNone
	case strings.HasPrefix(strings.TrimLeft(rest, `\`), `"`):
		return quotesSurely
	case s[0] == '[' && (rest[0] == '{' || rest[0] == '['):
		if quotes(rest) != quotesNone {
			return quotesSurely
		}
	case s[0] == '[' && (rest[0] == '-' || rest[0] >= '0' && rest[0] <= '9'):
		return quotesMaybe
	}
	return quotesNone
}

// trimSpace takes white space off the front, also such as a JSON string has it: \n.
func trimSpace(s string) string {
	for {
		s = strings.TrimLeft(s, " \t\r\n")
		escaped := strings.TrimLeft(s, `\`)
		if len(escaped) == len(s) || escaped == "" || !strings.ContainsRune("nrt", rune(escaped[0])) {
			return s
		}
		s = escaped[1:]
	}
}
