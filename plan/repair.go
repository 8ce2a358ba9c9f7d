package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/jsonmask"
)

// MaxOperations bounds the operations of a repair.
const MaxOperations = 20

// Operation is one step of a repair:
//
//	set      PATH gets Value, any JSON; a member that an object lacks is added
//	remove   PATH goes
//	rename   the member at PATH is named To
//	replace  in the texts at PATH, what Match (RE2) finds becomes With, where $1 is a group
//	header   the header Name gets Value, a JSON text; without Value it goes
//	kind     the message gets the kind Value, a JSON text
//
// A PATH is such as $.card.number, $.items[*].id or $..customer. What is not touched stays byte for byte.
type Operation struct {
	Op    string          `json:"op"`
	Path  string          `json:"path,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
	To    string          `json:"to,omitempty"`
	Match string          `json:"match,omitempty"`
	With  string          `json:"with,omitempty"`
	Name  string          `json:"name,omitempty"`
}

// Refusals of repairs that the root package has no error for, as in Plan.Errors.
var (
	errUnchanged = errors.New("unchanged")  // the places are not there, or as wanted already
	errNotJSON   = errors.New("not-json")   // the body is not JSON
	errNameTaken = errors.New("name-taken") // an object has a member of the name already
	errMasked    = errors.New("masked")     // it would tell what is masked
)

// Repair changes messages by a rule. It is safe for concurrent use.
type Repair struct {
	steps []repairStep
}

type repairStep struct {
	Operation
	path  jsonmask.Path
	match *regexp.Regexp
	text  *string // of a header or kind
}

// NewRepair returns the repair by a rule, or an error that wraps [redrive.ErrInvalid].
func NewRepair(rule []Operation) (*Repair, error) {
	if len(rule) == 0 || len(rule) > MaxOperations {
		return nil, invalid(fmt.Sprintf("a repair of %d operations", len(rule)), fmt.Sprintf("use 1 to %d", MaxOperations))
	}
	r := new(Repair)
	for i := range rule {
		s, err := compile(&rule[i])
		if err != nil {
			return nil, err
		}
		r.steps = append(r.steps, s)
	}
	return r, nil
}

// fields are those that each operation has.
var fields = map[string][]string{
	"set": {"path", "value"}, "remove": {"path"}, "rename": {"path", "to"}, "replace": {"path", "match", "with"}, "header": {"name", "value"}, "kind": {"value"},
}

func compile(o *Operation) (s repairStep, err error) {
	s.Operation = *o
	own, known := fields[o.Op]
	if !known {
		return s, invalid(fmt.Sprintf("operation %q", o.Op), "use set, remove, rename, replace, header or kind")
	}
	for field, there := range map[string]bool{
		"path": o.Path != "", "value": len(o.Value) > 0, "to": o.To != "", "match": o.Match != "", "with": o.With != "", "name": o.Name != "",
	} {
		if there && !slices.Contains(own, field) { // it would be ignored
			return s, invalid(fmt.Sprintf("operation %s with %s", o.Op, field), "it has "+strings.Join(own, ", "))
		}
	}
	if own[0] == "path" {
		if s.path, err = jsonmask.Parse(o.Path); err != nil {
			return s, invalid(err.Error(), "write a path such as $.card.number")
		}
	}
	switch o.Op {
	case "set":
		if !json.Valid(o.Value) {
			return s, invalid("set "+o.Path+" without a JSON value", `a text is in quotation marks: "text"`)
		}
	case "rename":
		if o.To == "" || !s.path.Named() {
			return s, invalid("rename "+o.Path, "name a member of an object, and what it is named")
		}
	case "replace":
		if s.match, err = regexp.Compile(o.Match); err != nil || o.Match == "" {
			return s, invalid(fmt.Sprintf("replace %s: %q is no regular expression", o.Path, o.Match), "write one of RE2's")
		}
	case "header", "kind":
		if len(o.Value) > 0 && json.Unmarshal(o.Value, &s.text) != nil || o.Op == "kind" && s.text == nil {
			return s, invalid(o.Op+" with the value "+string(o.Value), "it is a JSON text")
		}
		if o.Op == "header" && (o.Name == "" || strings.HasPrefix(strings.ToLower(o.Name), "redrive-")) {
			return s, invalid(fmt.Sprintf("header %q", o.Name), "name one that does not begin with redrive-")
		}
	}
	return s, nil
}

// Edit returns what the repair changes of a message. A message that is refused is one that the rule
// would leave as it is, whose body is not JSON, or that would not be valid.
func (r *Repair) Edit(m *redrive.Message) (*redrive.Edit, error) {
	e, err := r.change(m)
	if err != nil {
		return nil, err
	}
	if e.Body == nil && e.Headers == nil && e.Kind == nil {
		return nil, errUnchanged
	}
	return e, e.Validate()
}

func (r *Repair) change(m *redrive.Message) (*redrive.Edit, error) {
	var e redrive.Edit
	body, headers, kind := m.Body, m.Headers.Clone(), m.Kind
	isJSON := false
	for i := range r.steps {
		s := &r.steps[i]
		switch s.Op {
		case "header":
			if s.text == nil {
				headers.Del(s.Name)
			} else if was, there := headers.Get(s.Name); !there || was != *s.text {
				headers.Set(s.Name, *s.text)
			}
			continue
		case "kind":
			kind = *s.text
			continue
		}
		if isJSON = isJSON || json.Valid(body); !isJSON {
			return nil, errNotJSON
		}
		next, err := s.change(body)
		if err != nil {
			return nil, err
		}
		body = next
	}
	if !bytes.Equal(body, m.Body) {
		e.Body = body
	}
	if !sameHeaders(headers, m.Headers) {
		e.Headers = &headers
	}
	if kind != m.Kind {
		e.Kind = &kind
	}
	return &e, nil
}

// change changes a body.
func (s *repairStep) change(body []byte) ([]byte, error) {
	switch s.Op {
	case "set":
		body, _ = s.path.Set(body, s.Value)
	case "remove":
		body, _ = s.path.Remove(body)
	case "rename":
		next, _, taken := s.path.Rename(body, s.To)
		if taken {
			return nil, errNameTaken
		}
		body = next
	case "replace":
		body, _ = s.path.Replace(body, func(text string) string { return s.match.ReplaceAllString(text, s.With) })
	}
	return body, nil
}

func sameHeaders(a, b redrive.Headers) bool {
	return slices.EqualFunc(a, b, func(a, b redrive.Header) bool { return a.Name == b.Name && bytes.Equal(a.Value, b.Value) })
}

// tells reports whether the repair would tell something of what is hidden of a message: by moving it
// to where it shows, or by whether an expression finds something in it. shown is a body as it shows.
func (r *Repair) tells(m *redrive.Message, e *redrive.Edit, shown func(*redrive.Message) []byte) bool {
	before := *m
	before.Body = shown(m)
	if bytes.Equal(before.Body, m.Body) {
		return false
	}
	body, seen := m.Body, before.Body
	for i := range r.steps {
		s := &r.steps[i]
		if s.Op == "header" || s.Op == "kind" {
			continue
		}
		if !json.Valid(seen) || s.Op == "replace" && s.texts(body) != s.texts(seen) {
			return true
		}
		var errs [2]error
		body, errs[0] = s.change(body)
		seen, errs[1] = s.change(seen)
		if errs[0] != nil || errs[1] != nil {
			return (errs[0] == nil) != (errs[1] == nil)
		}
	}
	after, of := *m, before
	e.Apply(&after)
	of.Body = seen
	return !bytes.Equal(shown(&after), shown(&of))
}

// texts returns all texts at the step's path.
func (s *repairStep) texts(body []byte) string {
	var all []string
	s.path.Replace(body, func(text string) string { all = append(all, fmt.Sprintf("%q", text)); return text })
	return strings.Join(all, ",")
}
