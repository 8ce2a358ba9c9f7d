package broker

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/headername"
)

// BodyFields are the fields of a stream's entry that are its body, the first that is there,
// unless the address names one.
var BodyFields = []string{"body", "payload", "data", "message", "value", "event"}

// ListForm is the form of an element of a list, which is a body and nothing else.
const ListForm = "list"

// allFields is the form of an entry whose body is all its fields, as JSON.
const allFields = "*"

// FromRedis returns what an entry of a stream, as a flat list of fields and values, says:
// its only field is its body, or the one of a known name, and the others are headers; else
// all are the body, as JSON. Fields that a publish of ours added are headers. The form brings the entry back.
func FromRedis(fields []string, named string) (h redrive.Headers, body []byte, shape string) {
	fields, h = withoutOurs(fields)
	at := -1
	for i := 0; i+1 < len(fields); i += 2 {
		if named != "" && fields[i] == named {
			at = i
		}
	}
	if at < 0 && len(fields) == 2 {
		at = 0
	}
	for _, name := range BodyFields {
		for i := 0; at < 0 && i+1 < len(fields); i += 2 {
			if fields[i] == name {
				at = i
			}
		}
	}
	if at < 0 && !fitsJSON(fields) {
		for i := 0; i+1 < len(fields); i += 2 {
			if at < 0 || len(fields[i+1]) > len(fields[at+1]) {
				at = i
			}
		}
	}
	if at < 0 {
		all := make(map[string]string, len(fields)/2)
		for i := 0; i+1 < len(fields); i += 2 {
			all[fields[i]] = fields[i+1]
		}
		body, _ = json.Marshal(all) // texts cannot fail
		return h, body, allFields
	}
	own := h
	h = nil
	for i := 0; i+1 < len(fields); i += 2 {
		if i != at {
			h.Add(fields[i], fields[i+1])
		}
	}
	return append(h, own...), []byte(fields[at+1]), "=" + fields[at]
}

// withoutOurs takes out the headers that a publish of ours added, which say nothing of the entry's form.
func withoutOurs(all []string) (fields []string, ours redrive.Headers) {
	for i := 0; i+1 < len(all); i += 2 {
		if strings.HasPrefix(all[i], headername.Prefix) {
			ours.Add(all[i], all[i+1])
			continue
		}
		fields = append(fields, all[i], all[i+1])
	}
	return fields, ours
}

// ToRedis returns the fields and values of an entry.
func ToRedis(h redrive.Headers, body []byte, shape string) []any {
	fields := make([]any, 0, 2*len(h)+2)
	var all map[string]string
	switch {
	case shape == allFields && json.Unmarshal(body, &all) == nil:
		names := make([]string, 0, len(all))
		for name := range all {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			fields = append(fields, name, all[name])
		}
	case len(shape) > 1 && shape[0] == '=':
		fields = append(fields, shape[1:], body)
	default:
		fields = append(fields, BodyFields[0], body)
	}
	for _, v := range h {
		fields = append(fields, v.Name, v.Value)
	}
	return fields
}

// fitsJSON reports whether an object holds the fields as they are: they are text, and no
// name repeats.
func fitsJSON(fields []string) bool {
	names := make(map[string]bool, len(fields)/2)
	for i := 0; i+1 < len(fields); i += 2 {
		if names[fields[i]] || !utf8.ValidString(fields[i]) || !utf8.ValidString(fields[i+1]) {
			return false
		}
		names[fields[i]] = true
	}
	return true
}
