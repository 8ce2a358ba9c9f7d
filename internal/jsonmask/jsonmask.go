// Package jsonmask hides and changes parts of JSON documents, by paths such as $.card.number,
// $.items[*].token and $..password. Everything else stays byte for byte.
package jsonmask

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Mask is what stands in place of a value that is hidden.
const Mask = `"***"`

// Path selects values of a document.
type Path struct {
	steps []step
}

// step goes from a value to some of its children.
type step struct {
	name  string
	index int
	kind  stepKind
}

type stepKind uint8

const (
	stepName  stepKind = iota // .name, ["name"]
	stepIndex                 // [3]
	stepAny                   // [*], .*
	stepDeep                  // ..name: at any depth
)

// Parse reads a path. It begins with $, and has steps .name, ["name"], [3], [*], .*
// and ..name.
func Parse(text string) (Path, error) {
	var p Path
	rest, ok := strings.CutPrefix(text, "$")
	if !ok || rest == "" {
		return p, fmt.Errorf("%q is not a path: write one such as $.card.number or $..password", text)
	}
	for rest != "" {
		s, after, err := parseStep(rest)
		if err != nil {
			return p, fmt.Errorf("path %q: %w", text, err)
		}
		p.steps = append(p.steps, s)
		rest = after
	}
	return p, nil
}

func parseStep(s string) (step, string, error) {
	switch {
	case strings.HasPrefix(s, "["):
		inside, after, ok := strings.Cut(s[1:], "]")
		if !ok {
			return step{}, "", fmt.Errorf("a [ is not closed")
		}
		if inside == "*" {
			return step{kind: stepAny}, after, nil
		}
		if n, err := strconv.Atoi(inside); err == nil && n >= 0 {
			return step{kind: stepIndex, index: n}, after, nil
		}
		if name, err := strconv.Unquote(inside); err == nil {
			return step{name: name}, after, nil
		}
		return step{}, "", fmt.Errorf("[%s] is neither a number, nor * nor a name in quotation marks", inside)
	case strings.HasPrefix(s, "."):
		kind := stepName
		s = s[1:]
		if deep, ok := strings.CutPrefix(s, "."); ok {
			kind, s = stepDeep, deep
		}
		end := strings.IndexAny(s, ".[")
		if end < 0 {
			end = len(s)
		}
		name, after := s[:end], s[end:]
		switch {
		case name == "":
			return step{}, "", fmt.Errorf("a name is missing after a dot")
		case name == "*" && kind == stepName:
			return step{kind: stepAny}, after, nil
		}
		return step{name: name, kind: kind}, after, nil
	}
	return step{}, "", fmt.Errorf("%q does not begin with . or [", s)
}

// at is a place within paths: the steps that are still to go.
type at []step

// into returns the places that a child of a value is at; done says that the child itself
// is selected.
func into(places []at, name string, index int) (next []at, done bool) {
	for _, p := range places {
		s := p[0]
		matches := false
		switch s.kind {
		case stepName:
			matches = index < 0 && s.name == name
		case stepIndex:
			matches = s.index == index
		case stepAny:
			matches = true
		case stepDeep:
			matches = index < 0 && s.name == name
			next = append(next, p) // it may also be deeper
		}
		if !matches {
			continue
		}
		if len(p) == 1 {
			return nil, true
		}
		next = append(next, p[1:])
	}
	return next, false
}

// Apply returns a document with every value that a path selects replaced by [Mask], and
// whether there was one. It returns an error for what is not one JSON document.
func Apply(doc []byte, paths []Path) ([]byte, bool, error) {
	places := make([]at, 0, len(paths))
	for _, p := range paths {
		places = append(places, p.steps)
	}
	if !json.Valid(doc) {
		return nil, false, fmt.Errorf("this is not JSON")
	}
	m := masker{doc: doc, dec: json.NewDecoder(bytes.NewReader(doc))}
	m.dec.UseNumber()
	if err := m.value(places); err != nil {
		return nil, false, err
	}
	if m.copied == 0 && !m.hit {
		return doc, false, nil
	}
	return append(m.out, doc[m.copied:]...), true, nil
}

// masker walks through a document.
type masker struct {
	doc    []byte
	dec    *json.Decoder
	out    []byte
	copied int // of doc
	hit    bool
}

// value walks through the next value.
func (m *masker) value(places []at) error {
	if len(places) == 0 {
		var skipped json.RawMessage
		return m.dec.Decode(&skipped)
	}
	token, err := m.dec.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		for m.dec.More() {
			key, err := m.dec.Token()
			if err != nil {
				return err
			}
			name, _ := key.(string)
			if err := m.child(places, name, -1); err != nil {
				return err
			}
		}
	case json.Delim('['):
		for i := 0; m.dec.More(); i++ {
			if err := m.child(places, "", i); err != nil {
				return err
			}
		}
	default:
		return nil
	}
	_, err = m.dec.Token() // the end
	return err
}

// child walks through a child of a value, or hides it.
func (m *masker) child(places []at, name string, index int) error {
	next, hide := into(places, name, index)
	if !hide {
		return m.value(next)
	}
	var raw json.RawMessage
	if err := m.dec.Decode(&raw); err != nil {
		return err
	}
	end := int(m.dec.InputOffset())
	m.out = append(m.out, m.doc[m.copied:end-len(raw)]...)
	m.out = append(m.out, Mask...)
	m.copied, m.hit = end, true
	return nil
}
