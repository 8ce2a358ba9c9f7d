package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
)

// maxDepth is how deep the JSON of a line may nest, so that nobody behind us is
// made to recurse without bound.
const maxDepth = 64

// walker steps through JSON that [json.Valid] has accepted. It looks at structure
// only, which is why it need not check syntax again.
type walker struct {
	b []byte
	i int
}

func (w *walker) space() {
	for w.i < len(w.b) {
		switch w.b[w.i] {
		case ' ', '\t', '\r', '\n':
			w.i++
		default:
			return
		}
	}
}

// next skips space and returns the next byte without consuming it; 0 at the end.
func (w *walker) next() byte {
	w.space()
	if w.i == len(w.b) {
		return 0
	}
	return w.b[w.i]
}

// take consumes the next byte if it is c.
func (w *walker) take(c byte) bool {
	if w.next() != c {
		return false
	}
	w.i++
	return true
}

// value consumes one value and returns its bytes as they are.
func (w *walker) value() ([]byte, error) {
	w.space()
	start, depth := w.i, 0
	for w.i < len(w.b) {
		switch w.b[w.i] {
		case '"':
			w.text()
			if depth == 0 {
				return w.b[start:w.i], nil
			}
			continue
		case '{', '[':
			if depth++; depth > maxDepth {
				return nil, fmt.Errorf("it nests deeper than %d", maxDepth)
			}
		case '}', ']':
			if depth == 0 { // the end of what holds a number or literal
				return w.b[start:w.i], nil
			}
			if depth--; depth == 0 {
				w.i++
				return w.b[start:w.i], nil
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return w.b[start:w.i], nil
			}
		}
		w.i++
	}
	return w.b[start:w.i], nil
}

// text consumes a string and returns it with its quotes.
func (w *walker) text() []byte {
	start := w.i
	w.i++
	for {
		// A quote is the end unless an odd number of backslashes stands before it.
		w.i += bytes.IndexByte(w.b[w.i:], '"') + 1
		n := 0
		for w.b[w.i-2-n] == '\\' {
			n++
		}
		if n%2 == 0 {
			return w.b[start:w.i]
		}
	}
}

// object calls f with each key and leaves the walker at the value, which f
// consumes. A key that repeats is refused: parsers differ in which one they take.
func (w *walker) object(f func(key string) error) error {
	w.i++
	var seen names
	for !w.take('}') {
		w.take(',')
		w.space()
		key, err := unquote(w.text())
		if err != nil {
			return err
		}
		if !seen.add(key) {
			return fmt.Errorf("the name %.100q stands in it twice", key)
		}
		w.take(':')
		if err := f(key); err != nil {
			return err
		}
	}
	return nil
}

// names are those of one object: a few in a list, as is usual, more in a map.
type names struct {
	few  []string
	many map[string]bool
}

const fewNames = 16

// add reports whether the name is new.
func (n *names) add(name string) bool {
	if n.many[name] || slices.Contains(n.few, name) {
		return false
	}
	if len(n.few) < fewNames {
		n.few = append(n.few, name)
		return true
	}
	if n.many == nil {
		n.many = make(map[string]bool)
	}
	n.many[name] = true
	return true
}

// Strict reports what is wrong with JSON that a decoder would take: bytes that are not
// UTF-8, nesting deeper than 64, and names that repeat, of which parsers take different
// ones. What is named body is the user's own and only bounded in depth. Text that is not
// JSON it leaves to the decoder.
func Strict(text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("it is not UTF-8")
	}
	if !json.Valid(text) {
		return nil
	}
	return (&walker{b: text}).strict(0)
}

func (w *walker) strict(depth int) error {
	c := w.next()
	if depth > maxDepth && (c == '{' || c == '[') {
		return fmt.Errorf("it nests deeper than %d", maxDepth)
	}
	switch c {
	case '{':
		return w.object(func(name string) error {
			if name == "body" {
				_, err := w.value()
				return err
			}
			return w.strict(depth + 1)
		})
	case '[':
		return w.array(func() error { return w.strict(depth + 1) })
	}
	_, err := w.value()
	return err
}

// array calls f for each element, which f consumes.
func (w *walker) array(f func() error) error {
	w.i++
	for !w.take(']') {
		w.take(',')
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// str consumes a string or null (empty) as the value of the named field.
func (w *walker) str(name string) (string, error) {
	raw, err := w.value()
	if err != nil {
		return "", err
	}
	if string(raw) == "null" {
		return "", nil
	}
	if raw[0] != '"' {
		return "", fmt.Errorf("%s must be a string", name)
	}
	return unquote(raw)
}

// unquote decodes a JSON string.
func unquote(raw []byte) (string, error) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), nil
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err
}
