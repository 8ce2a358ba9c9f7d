package jsonmask_test

import (
	"strings"
	"testing"

	"github.com/redrive/redrive/internal/jsonmask"
)

func TestTextMasksWhatItQuotes(t *testing.T) {
	var paths []jsonmask.Path
	for _, s := range []string{"$.card.number", "$..password", "$[*].pin"} {
		p, err := jsonmask.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	for _, c := range []struct{ name, text, want string }{
		{"nothing quoted", "connection refused", "connection refused"},
		{"empty", "", ""},
		{"a document", `{"card":{"number":"4111"},"ok":true}`, `{"card":{"number":"***"},"ok":true}`},
		{"within a text", `cannot read {"card": {"number": 4111}}: declined {"password":"x"}.`, `cannot read {"card": {"number": "***"}}: declined {"password":"***"}.`},
		{"nothing to hide in it", `status {"code": 7} of [1,2]`, `status {"code": 7} of [1,2]`},
		{"a list", `[{"pin":1},{"pin":2}]`, `[{"pin":"***"},{"pin":"***"}]`},
		{"cut", `answered {"card":{"number":"41 ... 11"}} and more`, `answered {"card":{"number":"***"}} and more`},
		{"cut within", `answered {"a":1,"card":{"num ... 4111"}} and more`, `answered ***`},
		{"after one that is whole", `{"password":"x"} then {"card":{"number":"4111`, `{"password":"***"} then ***`},
		{"escaped in a string", `body "{\"card\":{\"number\":\"4111\"}}"`, `body "***`},
		{"printed with its white space escaped", `decode "{\n  \"card\": {\n\t\"number\": \"4111\"}}"`, `decode "***`},
		{"escaped twice", `answered "{\\\"password\\\":\\\"x\\\"}"`, `answered "***`},
		{"in a text of a document", `{"error":"bad","request":"{\"password\":\"x\"}"}`, `***`},
		{"in a text within a text", `{"a":["{\"b\":\"{\\\"password\\\":1}\"}"]} more`, `*** more`},
		{"nothing to hide in its texts", `{"error":"bad [1]","request":"{}"}`, `{"error":"bad [1]","request":"{}"}`},
		{"its middle was cut out", `{"note":"aaa … 4111"} more`, `*** more`},
		{"a struct of Go", `got {4 0xc000} and map[a:1] and []`, `got {4 0xc000} and map[a:1] and []`},
		{"an address", `dial [::1]:80 and [10.0.0.1]:81: refused`, `dial [::1]:80 and [10.0.0.1]:81: refused`},
		{"brackets of a log", `[WARN] {module} failed`, `[WARN] {module} failed`},
		{"an open brace at the end", `func main() {`, `func main() {`},
	} {
		got, hit := jsonmask.Text(c.text, paths)
		if got != c.want || hit != (c.want != c.text) {
			t.Errorf("%s: %q, %t; want %q", c.name, got, hit, c.want)
		}
	}
}

// Whatever is cut out of a document, what a mask hides does not show.
func FuzzTextHidesASecret(f *testing.F) {
	path, err := jsonmask.Parse("$..secret")
	if err != nil {
		f.Fatal(err)
	}
	f.Add("before ", `,"b":[1,2,{"c":null}]`, 3)
	f.Fuzz(func(t *testing.T, before, rest string, cut int) {
		const secret = "s3cr3t-value"
		if strings.Contains(before+rest, "s3cr3t") {
			t.Skip()
		}
		text := before + `{"a":1,"secret":"` + secret + `"` + rest + "}"
		if cut > 0 && cut < len(rest) {
			text = text[:len(text)-cut]
		}
		if got, _ := jsonmask.Text(text, []jsonmask.Path{path}); strings.Contains(got, secret) && !strings.ContainsAny(before, "{[\"\\") {
			t.Errorf("%q shows the secret: %q", text, got)
		}
	})
}
