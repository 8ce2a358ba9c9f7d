package daemon_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"mime"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

const committed = "../../docs/openapi.json"

func TestTheDescriptionIsCommitted(t *testing.T) {
	d := start(t, parse(t, "queues: {sms: {}}"), newStore(t))
	resp, served := d.send(http.MethodGet, "/openapi.json", "")
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, served)
	}
	if os.Getenv("REDRIVE_UPDATE") != "" {
		if err := os.WriteFile(committed, served, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(committed)
	if err != nil || !bytes.Equal(file, served) {
		t.Errorf("docs/openapi.json is not what the daemon serves (%v); write it anew: REDRIVE_UPDATE=1 go test ./internal/daemon -run TheDescription", err)
	}
}

// described is the document as the test reads it.
type described struct {
	Paths      map[string]map[string]*operation
	Components struct{ Schemas map[string]any }
}

type operation struct {
	OperationID string
	Parameters  []struct {
		Name, In string
		Schema   map[string]any
	}
	RequestBody struct {
		Content map[string]struct{ Schema any }
	}
	Responses map[string]struct {
		Content map[string]struct{ Schema any }
	}
}

// Random requests, some of them nonsense, get no answer that is not described, and none
// that says that the fault is the daemon's.
func TestEveryAnswerIsDescribed(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("REDRIVE_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("REDRIVE_SEED=%d", seed)
	store := newStore(t)
	deadLetters(t, store, 5)
	d := start(t, parse(t, "{queues: {sms: {}, mail: {}}, grace: 100ms}"), store)
	g := &generator{r: rand.New(rand.NewPCG(seed, 2)), d: d}
	_, b := d.send(http.MethodGet, "/openapi.json", "")
	decode(t, b, &g.doc)
	type one struct {
		path, method string
		op           *operation
	}
	var all []one
	for path, methods := range g.doc.Paths {
		for method, op := range methods {
			all = append(all, one{path, strings.ToUpper(method), op})
		}
	}
	slices.SortFunc(all, func(a, b one) int { return strings.Compare(a.op.OperationID, b.op.OperationID) })
	rounds := 25
	if s := os.Getenv("REDRIVE_PROOF_ROUNDS"); s != "" {
		rounds, _ = strconv.Atoi(s)
	}
	for range rounds {
		for _, o := range all {
			g.try(o.method, o.path, o.op)
		}
	}
	if v := get[wire.Verified](d, 200, http.MethodGet, "/v1/verify", ""); !v.Balanced {
		t.Errorf("%+v", v)
	}
}

// The patterns of the description take what the validators take, and nothing else.
func TestPatternsAreTheValidators(t *testing.T) {
	b, err := os.ReadFile(committed)
	if err != nil {
		t.Fatal(err)
	}
	var doc described
	decode(t, b, &doc)
	pattern := func(path, method, name string) *regexp.Regexp {
		for _, p := range doc.Paths[path][method].Parameters {
			if text, ok := p.Schema["pattern"].(string); ok && p.Name == name {
				return regexp.MustCompile(text)
			}
		}
		t.Fatalf("%s of %s %s has no pattern", name, method, path)
		return nil
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	for _, c := range []struct {
		pattern *regexp.Regexp
		letters []string
		valid   func(string) bool
	}{
		{pattern("/v1/queues/{queue}", "get", "queue"), []string{"a", "z", "0", ".", "..", "-", "_", "A", "ä", "/", "\x00", " ", strings.Repeat("q", 30)}, func(s string) bool { return driver.CheckQueue(s) == nil }},
		{pattern("/v1/queues/{queue}/messages/{id}", "get", "id"), []string{"a", "Z", "0", ".", "-", "_", ":", "ä", "/", "\n", strings.Repeat("x", 60)}, func(s string) bool { return driver.CheckID(s) == nil }},
		{pattern("/v1/queues/{queue}/messages", "post", "redrive-delay"), []string{"0", "1", ".", "-", "+", "s", "m", "h", "ms", "us", "µs", "ns", "d", " ", "e"}, func(s string) bool { return new(wire.Duration).UnmarshalText([]byte(s)) == nil }},
		{pattern("/v1/queues/{queue}/messages", "post", "redrive-kind"), []string{"a", "ä", " ", "\n", "\x00", "\x1f", "\x7f", "\ufffd", "\xff"}, func(s string) bool {
			return (&redrive.Message{Queue: "q", Kind: s}).Validate() == nil
		}},
		{pattern("/v1/dead-letters", "get", "kind"), []string{"a", "ä", "\n", "\x00", "\x7f"}, func(s string) bool { return wire.CheckText("kind", s) == nil }},
	} {
		for range 20_000 {
			var b strings.Builder
			for range r.IntN(7) {
				b.WriteString(c.letters[r.IntN(len(c.letters))])
			}
			if s := b.String(); c.pattern.MatchString(s) != c.valid(s) {
				t.Fatalf("%q: pattern %v, validator %v", s, c.pattern.MatchString(s), c.valid(s))
			}
		}
	}
}

// What the configuration shows is as the description says.
func TestPatternsOfTheConfiguration(t *testing.T) {
	b, err := os.ReadFile(committed)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind, field string
		shown       []fmt.Stringer
	}{
		{"ConfigPolicy", "max_age", []fmt.Stringer{config.Duration(0), config.Duration(1500 * time.Microsecond), config.Duration(90 * time.Minute), config.Duration(30*24*time.Hour + time.Nanosecond)}},
		{"ConfigDeliver", "rate", []fmt.Stringer{config.Rate{}, config.Rate{Count: 0.5, Per: time.Minute}, config.Rate{Count: 3000, Per: time.Second}, config.Rate{Count: 1, Per: 90 * time.Second}}},
		{"ConfigLimits", "bytes", []fmt.Stringer{config.Size(0), config.Size(1), config.Size(1000), config.Size(1 << 20), config.Size(3 << 40)}},
	} {
		var doc struct {
			Components struct {
				Schemas map[string]struct {
					Properties map[string]struct{ Pattern string }
				}
			}
		}
		decode(t, b, &doc)
		pattern := regexp.MustCompile(doc.Components.Schemas[c.kind].Properties[c.field].Pattern)
		for _, v := range c.shown {
			if pattern.String() == "" || !pattern.MatchString(v.String()) {
				t.Errorf("%s.%s: %q does not match %s", c.kind, c.field, v, pattern)
			}
		}
	}
}

// generator makes requests of a description.
type generator struct {
	r   *rand.Rand
	d   *rig
	doc described
}

func (g *generator) pick(words ...string) string { return words[g.r.IntN(len(words))] }

func (g *generator) word() string {
	return g.pick("sms", "mail", "d-1", "d-2", "none", "", "Ä", "_results", "1h", "5s", "exhausted", "waiting", "10", "-1", "a/b", "%00", strings.Repeat("x", 300), "2026-01-31T08:00:00Z", "done")
}

func (g *generator) try(method, path string, op *operation) {
	g.d.t.Helper()
	target := strings.NewReplacer("{queue}", escape(g.pick("sms", "sms", "mail", "none", "_results", "Ä", ".")), "{id}", escape(g.pick("d-1", "d-3", "none", "x y", "%"))).Replace(path)
	var query, headers []string
	for _, p := range op.Parameters {
		if g.r.IntN(3) > 0 {
			continue
		}
		switch value := g.value(p.Schema, 0); p.In {
		case "query":
			query = append(query, p.Name+"="+escape(fmt.Sprint(value)))
		case "header":
			if text := fmt.Sprint(value); !strings.ContainsAny(text, "\x00\n\r") {
				headers = append(headers, p.Name, text)
			}
		}
	}
	if query != nil {
		target += "?" + strings.Join(query, "&")
	}
	body := ""
	for _, media := range slices.Sorted(mapKeys(op.RequestBody.Content)) {
		if g.r.IntN(2) == 0 || body == "" {
			body = g.body(op.RequestBody.Content[media].Schema)
			headers = append(headers, "Content-Type", strings.ReplaceAll(media, "*/*", "text/plain"))
		}
	}
	// A wait would only cost time.
	body = strings.ReplaceAll(body, `"wait"`, `"max"`)
	target = strings.ReplaceAll(target, "wait=", "unmasked=")
	resp, answer := g.d.send(method, target, body, headers...)
	g.check(method+" "+target+" "+body, op, resp, answer)
}

func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

func mapKeys[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func (g *generator) body(schema any) string {
	if g.r.IntN(8) == 0 {
		return g.pick("", "{", "null", "[]", "\xff", "1", `{"x":1}`, `"text"`)
	}
	b, err := json.Marshal(g.value(schema, 0))
	if err != nil {
		g.d.t.Fatal(err)
	}
	return string(b)
}

// value makes one that fits a schema, or now and then does not.
func (g *generator) value(schema any, depth int) any {
	m, _ := schema.(map[string]any)
	if ref, ok := m["$ref"].(string); ok {
		return g.value(g.doc.Components.Schemas[ref[strings.LastIndexByte(ref, '/')+1:]], depth)
	}
	if g.r.IntN(20) == 0 || depth > 6 {
		return []any{nil, "x", 7, true, []any{}, map[string]any{}}[g.r.IntN(6)]
	}
	if list, ok := m["anyOf"].([]any); ok {
		return g.value(list[g.r.IntN(len(list))], depth)
	}
	if enum, ok := m["enum"].([]any); ok {
		return enum[g.r.IntN(len(enum))]
	}
	switch m["type"] {
	case "object":
		out := make(map[string]any)
		properties, _ := m["properties"].(map[string]any)
		for _, name := range slices.Sorted(mapKeys(properties)) {
			if g.r.IntN(2) == 0 {
				out[name] = g.value(properties[name], depth+1)
			}
		}
		return out
	case "array":
		out := []any{}
		for range g.r.IntN(3) {
			out = append(out, g.value(m["items"], depth+1))
		}
		return out
	case "integer", "number":
		return g.r.IntN(20) - 2
	case "boolean":
		return g.r.IntN(2) == 0
	}
	return g.word()
}

// check compares an answer with what is described.
func (g *generator) check(request string, op *operation, resp *http.Response, answer []byte) {
	g.d.t.Helper()
	complain := func(format string, args ...any) {
		g.d.t.Helper()
		g.d.t.Errorf("%s: %s\n%d %s %.500s", request, fmt.Sprintf(format, args...), resp.StatusCode, resp.Header.Get("Content-Type"), answer)
	}
	if resp.StatusCode >= 500 && resp.StatusCode != http.StatusNotImplemented {
		complain("a fault of the daemon")
	}
	described, ok := op.Responses[strconv.Itoa(resp.StatusCode)]
	if !ok && resp.StatusCode/100 == 2 {
		described, ok = op.Responses["2XX"]
	}
	if !ok && resp.StatusCode >= 400 {
		described, ok = op.Responses["default"]
	}
	if !ok {
		complain("the status is not described")
		return
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	content, ok := described.Content[media]
	if _, anything := described.Content["*/*"]; !ok && !anything && len(answer) > 0 {
		complain("the content type is not described")
		return
	}
	if content.Schema == nil || !strings.HasSuffix(media, "json") {
		return
	}
	var v any
	if err := json.Unmarshal(answer, &v); err != nil {
		complain("not JSON: %v", err)
		return
	}
	if why := g.fits(v, content.Schema, "$"); why != "" {
		complain("%s", why)
	}
}

// fits says where a value does not fit a schema, or "".
func (g *generator) fits(v, schema any, at string) string {
	m, _ := schema.(map[string]any)
	if ref, ok := m["$ref"].(string); ok {
		return g.fits(v, g.doc.Components.Schemas[ref[strings.LastIndexByte(ref, '/')+1:]], at)
	}
	if list, ok := m["anyOf"].([]any); ok {
		why := ""
		for _, one := range list {
			if why = g.fits(v, one, at); why == "" {
				return ""
			}
		}
		return why
	}
	if pattern, ok := m["pattern"].(string); ok {
		if text, is := v.(string); is && !regexp.MustCompile(pattern).MatchString(text) {
			return fmt.Sprintf("%s: %q does not match %s", at, text, pattern)
		}
	}
	if enum, ok := m["enum"].([]any); ok && !slices.Contains(enum, v) {
		return fmt.Sprintf("%s: %v is none of %v", at, v, enum)
	}
	kind := fmt.Sprintf("%T", v)
	want := map[any]string{"object": "map[string]interface {}", "array": "[]interface {}", "string": "string", "integer": "float64", "number": "float64", "boolean": "bool", "null": "<nil>"}[m["type"]]
	if want != "" && kind != want {
		return fmt.Sprintf("%s: a %s, not %v", at, kind, m["type"])
	}
	switch v := v.(type) {
	case []any:
		for i := range v {
			if why := g.fits(v[i], m["items"], fmt.Sprintf("%s[%d]", at, i)); why != "" {
				return why
			}
		}
	case map[string]any:
		properties, _ := m["properties"].(map[string]any)
		required, _ := m["required"].([]any)
		for _, name := range required {
			if _, ok := v[name.(string)]; !ok {
				return fmt.Sprintf("%s: %v is missing", at, name)
			}
		}
		for name, value := range v {
			schema, known := properties[name]
			if !known && properties != nil {
				return fmt.Sprintf("%s: %s is not described", at, name)
			}
			if !known {
				schema = m["additionalProperties"]
			}
			if why := g.fits(value, schema, at+"."+name); why != "" {
				return why
			}
		}
	}
	return ""
}
