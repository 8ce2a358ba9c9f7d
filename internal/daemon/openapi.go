package daemon

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

// anyStatus stands for answers that come from elsewhere.
const anyStatus = 0

// oneOf is an answer of one of several types.
type oneOf []any

type object = map[string]any

// parameterKinds are the schemas of parameters and headers by name; others are strings.
var parameterKinds = map[string]object{
	"limit":    {"type": "integer", "minimum": 1, "maximum": redrive.MaxPage},
	"format":   {"type": "string", "enum": []string{"json", "markdown", "html"}},
	"life":     {"type": "string", "enum": []string{wire.CauseNew, wire.CauseAcknowledged, wire.CauseIgnored, wire.CauseResolved, wire.CauseRegressed}},
	"seconds":  {"type": "integer", "minimum": 1, "maximum": profileMaxSeconds, "default": profileSeconds},
	"debug":    {"type": "integer", "minimum": 0, "maximum": 2, "default": 0},
	"profile":  {"type": "string", "enum": profileNames},
	"sample":   {"type": "integer", "minimum": 1, "maximum": maxSample, "default": maxSample},
	"unmasked": isTrue,
	"progress": isTrue,
	"scan":     isTrue,
	"lines":    isTrue,
	"restore":  isTrue,
	"wait":     {"type": "string", "pattern": durationPattern, "description": "A duration such as 20s, at most 1m."},
	"after":    {"type": "string", "description": "The next of the page before."},
	"queue":    {"type": "string", "pattern": queuePattern},
	"id":       {"type": "string", "pattern": idPattern},
	"since":    moment,
	"until":    moment,

	"kind": filterText, "key": filterText, "signature": filterText, "plan": filterText, "text": filterText, "body": filterText, "header": filterText,

	headername.ID:        {"type": "string", "pattern": idPattern},
	headername.Kind:      {"type": "string", "maxLength": redrive.MaxKindLength, "pattern": printablePattern},
	headername.Key:       {"type": "string", "maxLength": redrive.MaxKeyLength, "pattern": printablePattern},
	headername.Delay:     {"type": "string", "pattern": durationPattern},
	headername.DeliverAt: {"type": "string", "format": "date-time"},
	headername.ExpiresAt: {"type": "string", "format": "date-time"},
}

// What the validators take; a test compares them. Patterns are of what RE2 and ECMA 262
// have in common.
const (
	queuePattern    = `^([a-z0-9_-][a-z0-9._-]{0,63}|\.[a-z0-9_-][a-z0-9._-]{0,62}|\.\.[a-z0-9._-]{1,62})$`
	durationPattern = `^[-+]?(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`

	printablePattern = `^[^\x00-\x1f\x7f�]*$` // the last is what invalid UTF-8 becomes

	// Of the configuration, as it is shown.
	shownDurationPattern = `^(0|([0-9]+(\.[0-9]+)?(ns|µs|ms|s|m|h))+)$`
	shownRatePattern     = `^([0-9]+(\.[0-9]+)?/.+)?$`
	shownSizePattern     = `^[0-9]+(\.[0-9]+)?( ?[kKMGTP]?i?B)?$`
	shownPercentPattern  = `^[0-9]+(\.[0-9]+)?%$`
)

var (
	idPattern  = fmt.Sprintf(`^[a-zA-Z0-9_:-]{1,%d}$`, redrive.MaxIDLength)
	isTrue     = object{"type": "string", "enum": []string{"true", "false"}}
	filterText = object{"type": "string", "pattern": `^[^\x00]*$`}
	moment     = object{"anyOf": []object{{"type": "string", "format": "date-time"}, {"type": "string", "pattern": durationPattern}},
		"description": "A time of RFC 3339, or a duration before now such as 1h."}
)

var pathName = regexp.MustCompile(`\{(\w+)\}`)

// document describes the API as OpenAPI 3.1. It is made of the route table and the
// types that go over the wire.
func document(routes []route) object {
	s := &schemas{all: make(map[string]object)}
	paths := make(map[string]object)
	for _, r := range routes {
		if paths[r.pattern] == nil {
			paths[r.pattern] = make(object)
		}
		paths[r.pattern][strings.ToLower(r.method)] = s.operation(r)
	}
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title": "Redrive", "version": "v1",
			"description": "One fault-tolerance layer for message delivery. Every error is application/problem+json with a hint.",
			"license":     object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		"paths": paths,
		"components": object{
			"schemas":         s.all,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer", "description": "A token of redrive token new; none is needed where the configuration has none. A request that is under way when its token is revoked, expires or loses a right is ended with 401 or 403."}},
		},
	}
}

// operation describes one route.
func (s *schemas) operation(r route) object {
	op := operations[r.method+" "+r.pattern]
	out := object{"operationId": op.id, "summary": op.summary, "tags": []string{tagOf(r.pattern)}}
	if r.scope != scopeOpen {
		out["security"] = []object{{"token": []string{}}}
		out["description"] = "Needs the scope " + string(r.scope) + "."
	}
	if r.scope == scopeAny {
		out["description"] = "Any token will do."
	}
	var parameters []object
	for _, m := range pathName.FindAllStringSubmatch(r.pattern, -1) {
		parameters = append(parameters, object{"name": m[1], "in": "path", "required": true, "schema": parameter(m[1], "path")["schema"]})
	}
	for in, names := range map[string][]string{"query": op.query} {
		for _, name := range names {
			parameters = append(parameters, parameter(name, in))
		}
	}
	for _, name := range op.headers {
		parameters = append(parameters, parameter(name, "header"))
	}
	if parameters != nil {
		out["parameters"] = parameters
	}
	if op.body != nil {
		out["requestBody"] = object{"content": s.content(op.body)}
	}
	responses := object{"default": object{"description": "A problem.", "content": object{problem.ContentType: object{"schema": s.of(reflect.TypeFor[problem.Problem]())}}}}
	for status, body := range op.answers {
		name, text := strconv.Itoa(status), http.StatusText(status)
		if status == anyStatus {
			name, text = "2XX", "The target's answer."
		}
		answer := object{"description": text}
		if body != nil {
			answer["content"] = s.content(body)
		}
		responses[name] = answer
	}
	out["responses"] = responses
	return out
}

func parameter(name, in string) object {
	schema := parameterKinds[name]
	if i := slices.IndexFunc(wire.Fields, func(f wire.Field) bool { return f.Name == name }); schema == nil && in == "query" && i >= 0 {
		schema = fieldSchema(&wire.Fields[i])
	}
	if schema == nil {
		schema = object{"type": "string"}
	}
	return object{"name": name, "in": in, "schema": schema}
}

// fieldSchema describes a field of a filter.
func fieldSchema(f *wire.Field) object {
	schema := object{"type": "string", "description": f.Doc}
	if known := parameterKinds[f.Name]; known != nil {
		schema = maps.Clone(known)
		schema["description"] = f.Doc
	}
	if f.Enum != nil {
		schema["enum"] = f.Enum
	}
	return schema
}

// tagOf groups operations by what they are about.
func tagOf(pattern string) string {
	rest, ok := strings.CutPrefix(pattern, "/v1/")
	if !ok {
		return "daemon"
	}
	parts := strings.Split(rest, "/")
	if last := parts[len(parts)-1]; parts[0] == "queues" && len(parts) > 2 && !strings.HasPrefix(last, "{") {
		return last
	}
	if len(parts) > 2 && parts[0] == "queues" {
		return parts[2]
	}
	return parts[0]
}

// content describes a body.
func (s *schemas) content(body any) object {
	switch b := body.(type) {
	case rawBody:
		out := make(object)
		for _, media := range b {
			out[media] = object{}
		}
		return out
	case alsoAs:
		out := s.content(b.value)
		for _, media := range b.media {
			out[media] = object{}
		}
		return out
	case oneOf:
		var list []object
		for _, v := range b {
			list = append(list, s.of(reflect.TypeOf(v)))
		}
		return object{"application/json": object{"schema": object{"anyOf": list}}}
	case publishBody:
		out := make(object)
		for _, media := range []string{"application/octet-stream", "text/plain", "application/json", "application/x-ndjson", "application/cloudevents+json", "application/cloudevents-batch+json"} {
			out[media] = object{}
		}
		return out
	}
	return object{"application/json": object{"schema": s.of(reflect.TypeOf(body))}}
}

// schemas collects the schemas of types by name.
type schemas struct{ all map[string]object }

// of returns the schema of a type: a reference where it is a struct of ours.
func (s *schemas) of(t reflect.Type) object {
	if t.Kind() == reflect.Pointer {
		return s.of(t.Elem())
	}
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[wire.Duration]():
		return object{"type": "string", "pattern": durationPattern, "description": "A duration such as 1.5s, 10m or 24h."}
	case reflect.TypeFor[config.Duration]():
		return object{"type": "string", "pattern": shownDurationPattern}
	case reflect.TypeFor[config.Rate]():
		return object{"type": "string", "pattern": shownRatePattern}
	case reflect.TypeFor[config.Size]():
		return object{"type": "string", "pattern": shownSizePattern}
	case reflect.TypeFor[config.Percent]():
		return object{"type": "string", "pattern": shownPercentPattern}
	case reflect.TypeFor[wire.Header]():
		return object{"type": "array", "minItems": 2, "maxItems": 2, "description": "Name and value; a value that is no text is {\"base64\": …}."}
	case reflect.TypeFor[json.RawMessage](), reflect.TypeFor[json.Marshaler]():
		return object{}
	case reflect.TypeFor[redrive.Reason]():
		var names []string
		for _, r := range redrive.Reasons() {
			names = append(names, r.String())
		}
		return object{"type": "string", "enum": names}
	}
	if t.Implements(reflect.TypeFor[json.Marshaler]()) {
		return object{}
	}
	if t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) || reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Struct:
		name := schemaName(t)
		if _, there := s.all[name]; !there {
			s.all[name] = nil // types may refer to themselves
			s.all[name] = s.structure(t)
		}
		return object{"$ref": "#/components/schemas/" + name}
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return object{"type": "string", "contentEncoding": "base64"}
		}
		return object{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.Interface:
		return object{}
	}
	return object{"type": "integer"}
}

// schemaName is a type's name: "Message", "QueueList" for List[Queue]; those of other
// packages with the package before.
func schemaName(t reflect.Type) string {
	name := t.Name()
	if base, argument, generic := strings.Cut(name, "["); generic {
		argument = strings.TrimSuffix(argument, "]")
		return argument[strings.LastIndexByte(argument, '.')+1:] + base
	}
	pkg := t.PkgPath()[strings.LastIndexByte(t.PkgPath(), '/')+1:]
	if pkg == "wire" || pkg == "daemon" || pkg == "problem" {
		return strings.ToUpper(name[:1]) + name[1:]
	}
	return strings.ToUpper(pkg[:1]) + pkg[1:] + name
}

// structure is the schema of a struct. What may be absent is not required.
func (s *schemas) structure(t reflect.Type) object {
	properties := make(object)
	var required []string
	s.fields(t, properties, &required)
	if t == reflect.TypeFor[wire.Filter]() {
		for i := range wire.Fields {
			properties[wire.Fields[i].Name] = fieldSchema(&wire.Fields[i])
		}
	}
	out := object{"type": "object", "properties": properties}
	if slices.Sort(required); len(required) > 0 {
		out["required"] = required
	}
	return out
}

func (s *schemas) fields(t reflect.Type, properties object, required *[]string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			s.fields(inner, properties, required)
			continue
		}
		if !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		properties[name] = s.of(f.Type)
		if known := parameterKinds[name]; (name == "queue" || name == "id") && f.Type.Kind() == reflect.String {
			properties[name] = known
			if strings.Contains(options, "omit") { // empty is none
				properties[name] = object{"anyOf": []object{known, {"type": "string", "maxLength": 0}}}
			}
		}
		switch k := f.Type.Kind(); {
		case strings.Contains(options, "omit"):
		case k == reflect.Slice || k == reflect.Map || k == reflect.Pointer:
			properties[name] = object{"anyOf": []object{s.of(f.Type), {"type": "null"}}}
		default:
			*required = append(*required, name)
		}
	}
}

// description makes the document once.
type description struct {
	once sync.Once
	body []byte
	err  error
}

// describeAPI returns the document of all routes.
func (a *app) describeAPI() ([]byte, error) {
	d := &a.description
	d.once.Do(func() {
		routes := a.routes()
		for _, r := range routes {
			if operations[r.method+" "+r.pattern].id == "" {
				d.err = fmt.Errorf("%s %s is not described", r.method, r.pattern)
				return
			}
		}
		if len(operations) != len(routes) {
			d.err = fmt.Errorf("some of %v are no routes", slices.Sorted(maps.Keys(operations)))
			return
		}
		d.body, d.err = json.MarshalIndent(document(routes), "", "  ")
		d.body = append(d.body, '\n')
	})
	return d.body, d.err
}

// openAPI answers with the description of the API.
func (a *app) openAPI(w http.ResponseWriter, _ *http.Request, _ *caller) error {
	b, err := a.describeAPI()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // the caller is gone if this fails
	return nil
}
