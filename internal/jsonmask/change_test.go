package jsonmask

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestChange(t *testing.T) {
	set := func(value string) func(p Path, doc string) (string, int) {
		return func(p Path, doc string) (string, int) { b, n := p.Set([]byte(doc), []byte(value)); return string(b), n }
	}
	remove := func(p Path, doc string) (string, int) { b, n := p.Remove([]byte(doc)); return string(b), n }
	rename := func(name string) func(p Path, doc string) (string, int) {
		return func(p Path, doc string) (string, int) {
			b, n, taken := p.Rename([]byte(doc), name)
			if taken {
				return "taken", 0
			}
			return string(b), n
		}
	}
	upper := func(p Path, doc string) (string, int) {
		b, n := p.Replace([]byte(doc), strings.ToUpper)
		return string(b), n
	}
	for _, c := range []struct {
		do              func(p Path, doc string) (string, int)
		path, doc, want string
		n               int
	}{
		{set("2"), "$.v", `{"a":1.00}`, `{"a":1.00,"v":2}`, 1},
		{set("2"), "$.v", `{}`, `{"v":2}`, 1},
		{set("2"), "$.v", ` { } `, ` { "v":2} `, 1},
		{set("2"), "$.v", "{\n  \"a\": 1,\n  \"b\": [1]\n}\n", "{\n  \"a\": 1,\n  \"b\": [1],\n  \"v\": 2\n}\n", 1},
		{set("2"), "$.v", `{"v" : {"x":[1,2]} , "b":1e400}`, `{"v" : 2 , "b":1e400}`, 1},
		{set("2"), "$.v", `{"v":1,"v":3}`, `{"v":2,"v":2}`, 2},
		{set("2"), "$.a.v", `{"a":{"b":1},"c":{}}`, `{"a":{"b":1,"v":2},"c":{}}`, 1},
		{set("2"), "$.a.v", `{"a":[1]}`, `{"a":[1]}`, 0},
		{set("2"), "$.x.v", `{"a":1}`, `{"a":1}`, 0},
		{set("2"), "$.v", `[1]`, `[1]`, 0},
		{set("2"), "$.v", `"text"`, `"text"`, 0},
		{set("2"), "$[1]", `[1, 3 ,[4]]`, `[1, 2 ,[4]]`, 1},
		{set("2"), "$[3]", `[1,3]`, `[1,3]`, 0},
		{set("2"), "$.l[*].v", `{"l":[{},{"v":1},{"w":{"v":5}}]}`, `{"l":[{"v":2},{"v":2},{"w":{"v":5},"v":2}]}`, 3},
		{set("2"), "$..v", `{"v":1,"a":{"v":[1]},"b":{}}`, `{"v":2,"a":{"v":2},"b":{}}`, 2},
		{set(`"x"`), `$["a\"b"]`, `{"a\"b":1}`, `{"a\"b":"x"}`, 1},
		{set(`"x"`), `$.ü`, `{"\u00fc":1}`, `{"\u00fc":"x"}`, 1},
		{remove, "$.a", `{"a":1}`, `{}`, 1},
		{remove, "$.a", `{"a":1, "b":2}`, `{"b":2}`, 1},
		{remove, "$.b", `{"a":1, "b":2 }`, `{"a":1 }`, 1},
		{remove, "$.b", `{"a":1, "b":{"b":3}, "c":3}`, `{"a":1, "c":3}`, 1},
		{remove, "$[*]", `[1, "]", 3]`, `[]`, 3},
		{remove, "$..x", `{"x":1,"a":{"x":1,"y":2},"b":[{"x":"},"}]}`, `{"a":{"y":2},"b":[{}]}`, 3},
		{remove, "$.z", `{"a":1}`, `{"a":1}`, 0},
		{rename("b"), "$.a", `{"a" : 1}`, `{"b" : 1}`, 1},
		{rename("b"), "$.a", `{"a":1,"b":2}`, `taken`, 0},
		{rename("a"), "$.a", `{"a":1}`, `{"a":1}`, 0},
		{rename(`<"`), "$.l[*].a", `{"l":[{"a":1},{"b":2}]}`, `{"l":[{"<\"":1},{"b":2}]}`, 1},
		{upper, "$.a", `{"a":"x\u00e4","b":"y"}`, `{"a":"XÄ","b":"y"}`, 1},
		{upper, "$.*", `{"a":"\u0041","b":1,"c":"<&"}`, `{"a":"\u0041","b":1,"c":"<&"}`, 2},
	} {
		p, err := Parse(c.path)
		if err != nil {
			t.Fatal(err)
		}
		if got, n := c.do(p, c.doc); got != c.want || n != c.n {
			t.Errorf("%s of %s: %s at %d places, want %s at %d", c.path, c.doc, got, n, c.want, c.n)
		}
	}
}

// Whatever is changed, what comes out is JSON, and what is set is there afterwards.
func TestChangeOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := document(t, 3)
		if rapid.Bool().Draw(t, "indented") {
			var b bytes.Buffer
			if err := json.Indent(&b, doc, " ", "\t"); err != nil {
				t.Fatal(err)
			}
			doc = b.Bytes()
		}
		p, err := Parse("$" + strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{".a", "..b", "[0]", "[*]", ".*"}), 1, 3).Draw(t, "path"), ""))
		if err != nil {
			t.Fatal(err)
		}
		set, n := p.Set(doc, []byte(`"set"`))
		removed, m := p.Remove(doc)
		renamed, _, _ := p.Rename(doc, "new")
		for _, out := range [][]byte{set, removed, renamed} {
			if !json.Valid(out) {
				t.Fatalf("%s became %s", doc, out)
			}
		}
		if again, k := p.Set(set, []byte(`"set"`)); string(again) != string(set) || k < n {
			t.Fatalf("%s set in %s is not there: %s, %d, %d", "it", doc, set, n, k)
		}
		if _, hit, _ := Apply(doc, []Path{p}); hit != (m > 0) {
			t.Fatalf("masks hit: %t, removed: %d of %s", hit, m, doc)
		}
	})
}

// document draws a document.
func document(t *rapid.T, depth int) []byte {
	kind := rapid.IntRange(0, 4).Draw(t, "kind")
	if depth == 0 {
		kind %= 3
	}
	switch kind {
	case 0:
		return []byte(rapid.SampledFrom([]string{"1", "-0.50", "1e9", "true", "null"}).Draw(t, "scalar"))
	case 1, 2:
		return []byte(rapid.SampledFrom([]string{`""`, `"\\"`, `"a\"]},"`, `"\u00fc"`}).Draw(t, "text"))
	}
	var parts [][]byte
	for range rapid.IntRange(0, 3).Draw(t, "children") {
		part := document(t, depth-1)
		if kind == 3 {
			part = append([]byte(rapid.SampledFrom([]string{`"a":`, `"b" : `, `"\u0061":`}).Draw(t, "name")), part...)
		}
		parts = append(parts, part)
	}
	all := bytes.Join(parts, []byte(rapid.SampledFrom([]string{",", " , "}).Draw(t, "comma")))
	if kind == 3 {
		return append(append([]byte("{"), all...), '}')
	}
	return append(append([]byte("["), all...), ']')
}
