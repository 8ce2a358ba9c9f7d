package config

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds against files that were made to be expensive.
const (
	maxErrors = 50
	maxDepth  = 64        // of brackets and indentation, and of what they stand for
	maxNodes  = 1_000_000 // twice what a file of maxFile needs, as aliases multiply
	maxLine   = 4096      // of which there is an excerpt; longer ones may hold any number of secrets
)

// place is where something stands in the file.
type place struct{ line, column int }

// decoder walks the syntax tree itself instead of using the YAML package's own
// decoder, which stops at the first error and forgets where a value stood.
type decoder struct {
	file    string
	lines   []string
	errs    Errors
	failed  map[string]bool     // paths of errors
	places  map[string]place    // of values, by path
	anchors map[string]ast.Node // by name
	secrets []string            // texts that excerpts must not show
	nodes   int
}

func newDecoder(file string, data []byte) *decoder {
	d := &decoder{file: file, failed: make(map[string]bool), places: make(map[string]place), anchors: make(map[string]ast.Node)}
	if data != nil {
		d.lines = strings.Split(strings.ReplaceAll(string(data), "\r\n", "\n"), "\n")
	}
	return d
}

// err returns what was reported, in the order of the file.
func (d *decoder) err() error {
	if len(d.errs) == 0 {
		return nil
	}
	slices.SortStableFunc(d.errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	all := d.errs
	if len(all) > maxErrors {
		all = append(all[:maxErrors:maxErrors], &Error{File: d.file, What: "and more"})
	}
	for _, e := range all { // only now all secrets are known
		if e.Line > 0 && e.Line <= len(d.lines) && len(d.lines[e.Line-1]) <= maxLine {
			e.Source, e.caret = excerpt(d.lines[e.Line-1], d.secrets, e.Column)
		}
	}
	return all
}

func (d *decoder) fail(at place, path, what, hint string) {
	d.failed[path] = true
	d.errs = append(d.errs, &Error{File: d.file, Line: at.line, Column: at.column, Path: clipped(path), What: clipped(what), Hint: clipped(hint)})
}

// clipped bounds what an error says, as it quotes the file.
func clipped(text string) string {
	const widest = 400
	if len(text) <= widest {
		return text
	}
	return strings.ToValidUTF8(text[:widest], "") + "…"
}

// document decodes the one document of the file.
func (d *decoder) document(c *Config) {
	tokens, ok := d.tokens(strings.Join(d.lines, "\n"))
	if !ok {
		return
	}
	file, err := parse(tokens)
	if err != nil {
		d.syntax(err)
		return
	}
	var body ast.Node
	for _, doc := range file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			d.fail(placeOf(doc.Body), "", "this is a second document", "a configuration is one document: remove the --- line")
			return
		}
		body = doc.Body
	}
	if body != nil {
		d.decode(body, reflect.ValueOf(c).Elem(), "", 0)
	}
}

// parse turns a panic of the parser, which untidy input can cause, into an error.
func parse(tokens token.Tokens) (file *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("this is not YAML: %v", p)
		}
	}()
	return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
}

func (d *decoder) syntax(err error) {
	var at place
	what := err.Error()
	var s *yaml.SyntaxError
	if errors.As(err, &s) {
		what = s.Message
		if s.Token != nil && s.Token.Position != nil {
			at = place{s.Token.Position.Line, s.Token.Position.Column}
		}
	}
	hint := ""
	if at.line > 0 && at.line <= len(d.lines) {
		if line := d.lines[at.line-1]; strings.Contains(line[:len(line)-len(strings.TrimLeft(line, " \t"))], "\t") {
			hint = "indent with spaces, not with tabs"
		}
	}
	d.fail(at, "", what, hint)
}

var textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()

// decode sets v, which is settable, to what the node says.
func (d *decoder) decode(n ast.Node, v reflect.Value, path string, depth int) {
	at := placeOf(n)
	if d.nodes++; d.nodes > maxNodes || depth > maxDepth {
		if d.nodes <= maxNodes+1 || depth > maxDepth {
			d.fail(at, path, "the configuration is nested too deeply or too large", "")
		}
		return
	}
	n, ok := d.resolve(n, path)
	if !ok {
		return
	}
	if _, seen := d.places[path]; !seen || path != "" {
		d.places[path] = at
	}
	if n.Type() == ast.NullType {
		return
	}
	if ref, ok := v.Addr().Interface().(*PolicyRef); ok {
		if text, ok := scalar(n); ok {
			ref.Name = text
			return
		}
		ref.Inline = new(Policy)
		d.decode(n, reflect.ValueOf(ref.Inline).Elem(), path, depth+1)
		return
	}
	switch {
	case v.Kind() == reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		d.decode(n, v.Elem(), path, depth+1)
	case v.Addr().Type().Implements(textUnmarshaler):
		d.text(n, v, path)
	case v.Kind() == reflect.Struct:
		d.structure(n, v, path, depth)
	case v.Kind() == reflect.Map:
		d.mapping(n, v, path, depth)
	case v.Kind() == reflect.Slice:
		d.sequence(n, v, path, depth)
	default:
		d.basic(n, v, path)
	}
}

// resolve follows anchors, aliases and tags to the node that holds the value.
func (d *decoder) resolve(n ast.Node, path string) (ast.Node, bool) {
	for range maxDepth {
		switch t := n.(type) {
		case *ast.AnchorNode:
			if t.Name != nil {
				d.anchors[t.Name.GetToken().Value] = t.Value
			}
			n = t.Value
		case *ast.AliasNode:
			name := ""
			if t.Value != nil {
				name = t.Value.GetToken().Value
			}
			target, ok := d.anchors[name]
			if !ok {
				d.fail(placeOf(t), path, fmt.Sprintf("there is no anchor &%s before this", name), "")
				return nil, false
			}
			n = target
		case *ast.TagNode:
			d.fail(placeOf(t), path, "tags are not understood here", "remove "+t.Start.Value)
			return nil, false
		case nil:
			return nil, false
		default:
			return n, true
		}
	}
	d.fail(placeOf(n), path, "this alias leads to itself", "")
	return nil, false
}

func (d *decoder) text(n ast.Node, v reflect.Value, path string) {
	text, ok := scalar(n)
	if !ok {
		d.wrongType(n, v, path)
		return
	}
	if _, secret := v.Addr().Interface().(*Secret); secret && !isReference(text) && text != "" {
		d.secrets = append(d.secrets, text)
	}
	err := v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
	var bad *ValueError
	switch {
	case errors.As(err, &bad):
		d.fail(placeOf(n), path, bad.What, bad.Hint)
	case err != nil:
		d.fail(placeOf(n), path, err.Error(), "")
	}
}

func (d *decoder) basic(n ast.Node, v reflect.Value, path string) {
	text, ok := scalar(n)
	if !ok {
		d.wrongType(n, v, path)
		return
	}
	switch v.Kind() { //nolint:exhaustive // the kinds that Config uses
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		switch text {
		case "true", "false":
			v.SetBool(text == "true")
		default:
			hint := "write true or false"
			if yes, known := map[string]string{"yes": "true", "on": "true", "no": "false", "off": "false"}[strings.ToLower(text)]; known {
				hint = "write " + yes
			}
			d.fail(placeOf(n), path, fmt.Sprintf("%q is neither true nor false", text), hint)
		}
	case reflect.Int, reflect.Int64:
		i, err := strconv.ParseInt(strings.ReplaceAll(text, "_", ""), 10, v.Type().Bits())
		if err != nil {
			d.fail(placeOf(n), path, fmt.Sprintf("%q is not a whole number", text), "write digits only, such as 5")
			return
		}
		v.SetInt(i)
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || f != f || f > 1e300 || f < -1e300 {
			d.fail(placeOf(n), path, fmt.Sprintf("%q is not a number", text), "write a number such as 2 or 1.5")
			return
		}
		v.SetFloat(f)
	default:
		panic("config: no way to decode a " + v.Type().String())
	}
}

func (d *decoder) wrongType(n ast.Node, v reflect.Value, path string) {
	d.fail(placeOf(n), path, fmt.Sprintf("expected %s, found %s", wanted(v), found(n)), "")
}

func wanted(v reflect.Value) string {
	switch v.Kind() { //nolint:exhaustive // the kinds that Config uses
	case reflect.Struct, reflect.Map:
		if !v.Addr().Type().Implements(textUnmarshaler) {
			return "a mapping (key: value)"
		}
	case reflect.Slice:
		return "a list ([a, b])"
	case reflect.Int, reflect.Int64, reflect.Float64:
		if !v.Addr().Type().Implements(textUnmarshaler) {
			return "a number"
		}
	case reflect.Bool:
		return "true or false"
	}
	return "a single value"
}

func found(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	}
	return "a single value"
}

// scalar returns the text of a node that is a single value.
func scalar(n ast.Node) (string, bool) {
	switch t := n.(type) {
	case *ast.StringNode:
		return t.Value, true
	case *ast.LiteralNode:
		return strings.TrimRight(t.Value.Value, "\n"), true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return t.GetToken().Value, true
	}
	return "", false
}

func placeOf(n ast.Node) place {
	if n == nil || reflect.ValueOf(n).IsNil() {
		return place{}
	}
	switch t := n.(type) {
	case *ast.MappingNode:
		if !t.IsFlowStyle && len(t.Values) > 0 {
			return placeOf(t.Values[0].Key)
		}
		return placeOfToken(t.Start)
	case *ast.MappingValueNode:
		return placeOf(t.Key)
	}
	return placeOfToken(n.GetToken())
}

func placeOfToken(t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{}
	}
	return place{t.Position.Line, t.Position.Column}
}
