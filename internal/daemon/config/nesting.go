package config

import (
	"errors"
	"fmt"
	"io"

	"github.com/goccy/go-yaml/scanner"
	"github.com/goccy/go-yaml/token"
)

// nesting follows how deep a file nests, token by token: the parser recurses, and takes
// 40 KB of memory for each bracket.
type nesting struct {
	open    []*token.Token // brackets and braces
	columns []int          // of the keys and dashes outside of them, each further right
	before  *token.Token
}

// tokens splits a file, up to where it nests too deeply or a bracket is not closed by its
// like; that is reported.
func (d *decoder) tokens(text string) (token.Tokens, bool) {
	var s scanner.Scanner
	s.Init(text)
	var all token.Tokens
	var n nesting
	for {
		some, err := s.Scan()
		if errors.Is(err, io.EOF) {
			break
		}
		for _, t := range some {
			if at, what := n.take(t); what != "" {
				d.fail(placeOfToken(at), "", what, "")
				return nil, false
			}
		}
		all.Add(some...)
	}
	if len(n.open) > 0 {
		t := n.open[len(n.open)-1]
		d.fail(placeOfToken(t), "", fmt.Sprintf("this %s is not closed", t.Value), "")
		return nil, false
	}
	return all, true
}

// take looks at the next token, and returns what is wrong and where.
func (n *nesting) take(t *token.Token) (at *token.Token, what string) {
	before := n.before
	n.before = t
	switch t.Type { //nolint:exhaustive // those that nest
	case token.SequenceStartType, token.MappingStartType:
		n.open = append(n.open, t)
	case token.SequenceEndType, token.MappingEndType:
		if len(n.open) == 0 {
			return nil, "" // the parser reports it
		}
		last := n.open[len(n.open)-1]
		n.open = n.open[:len(n.open)-1]
		if (last.Type == token.SequenceStartType) != (t.Type == token.SequenceEndType) {
			return last, fmt.Sprintf("this %s is not closed: a %s comes first, in line %d", last.Value, t.Value, t.Position.Line)
		}
	case token.SequenceEntryType, token.MappingKeyType:
		n.indent(t)
	case token.MappingValueType:
		n.indent(before)
	}
	if len(n.open)+len(n.columns) > maxDepth {
		return t, fmt.Sprintf("the configuration nests deeper than %d", maxDepth)
	}
	return nil, ""
}

// indent takes a key or a dash.
func (n *nesting) indent(t *token.Token) {
	if len(n.open) > 0 || t == nil || t.Position == nil {
		return
	}
	for len(n.columns) > 0 && n.columns[len(n.columns)-1] >= t.Position.Column {
		n.columns = n.columns[:len(n.columns)-1]
	}
	n.columns = append(n.columns, t.Position.Column)
}
