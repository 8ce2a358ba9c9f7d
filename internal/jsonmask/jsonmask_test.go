package jsonmask_test

import (
	"encoding/json"
	"testing"

	"github.com/redrive/redrive/internal/jsonmask"
)

func parse(t testing.TB, texts ...string) (paths []jsonmask.Path) {
	t.Helper()
	for _, text := range texts {
		p, err := jsonmask.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, p)
	}
	return paths
}

func TestApply(t *testing.T) {
	const doc = ` {"id": 12345678901234567890, "card": {"number": "4111", "exp": [1, {"cvc": 7}]},
		"items": [{"token": "a", "n": 1}, {"n": 2, "token": {"deep": true}}], "password": null, "a.b": "dotted", "x": {"password": "y"} } `
	for _, c := range []struct {
		paths []string
		want  string
	}{
		{[]string{"$.card.number"}, ` {"id": 12345678901234567890, "card": {"number": "***", "exp": [1, {"cvc": 7}]},
		"items": [{"token": "a", "n": 1}, {"n": 2, "token": {"deep": true}}], "password": null, "a.b": "dotted", "x": {"password": "y"} } `},
		{[]string{"$.items[*].token", "$..password", `$["a.b"]`}, ` {"id": 12345678901234567890, "card": {"number": "4111", "exp": [1, {"cvc": 7}]},
		"items": [{"token": "***", "n": 1}, {"n": 2, "token": "***"}], "password": "***", "a.b": "***", "x": {"password": "***"} } `},
		{[]string{"$.card", "$.items[1]", "$..cvc"}, ` {"id": 12345678901234567890, "card": "***",
		"items": [{"token": "a", "n": 1}, "***"], "password": null, "a.b": "dotted", "x": {"password": "y"} } `},
		{[]string{"$..cvc", "$.x.*", "$.id"}, ` {"id": "***", "card": {"number": "4111", "exp": [1, {"cvc": "***"}]},
		"items": [{"token": "a", "n": 1}, {"n": 2, "token": {"deep": true}}], "password": null, "a.b": "dotted", "x": {"password": "***"} } `},
		{[]string{"$.nothing", "$.card.number.deeper", "$.items[9]"}, doc},
	} {
		got, hit, err := jsonmask.Apply([]byte(doc), parse(t, c.paths...))
		if err != nil || string(got) != c.want || hit != (c.want != doc) {
			t.Errorf("%v: %v, %v\n%s\nwant\n%s", c.paths, hit, err, got, c.want)
		}
	}
	for _, doc := range []string{"", "{", "text", "{} {}"} {
		if _, _, err := jsonmask.Apply([]byte(doc), parse(t, "$.a")); err == nil {
			t.Errorf("%q is taken for JSON", doc)
		}
	}
}

func TestParse(t *testing.T) {
	for _, text := range []string{"", "$", "a.b", "$a", "$.", "$..", "$.a[", "$.a[x]", "$.a[-1]", "$[]", "$.a..", "$.a.[0]"} {
		if _, err := jsonmask.Parse(text); err == nil {
			t.Errorf("%q is taken for a path", text)
		}
	}
}

func FuzzApply(f *testing.F) {
	f.Add(`{"a":{"secret":"x"},"b":[1,{"secret":2}]}`, "$..secret")
	f.Add(`[[1,2],[3]]`, "$[*][0]")
	f.Add(`{"a":1,"a":2}`, "$.a")
	f.Fuzz(func(t *testing.T, doc, path string) {
		p, err := jsonmask.Parse(path)
		if err != nil {
			return
		}
		got, hit, err := jsonmask.Apply([]byte(doc), []jsonmask.Path{p})
		if err != nil {
			return
		}
		if !json.Valid(got) {
			t.Fatalf("%q with %q became %q", doc, path, got)
		}
		again, _, err := jsonmask.Apply(got, []jsonmask.Path{p})
		if err != nil || hit && string(again) != string(got) {
			t.Fatalf("%q with %q became %q, then %q, %v", doc, path, got, again, err)
		}
	})
}
