package driver

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/redrive/redrive"
)

func TestSkeleton(t *testing.T) {
	for _, c := range []struct{ answer, want, keys string }{
		{"", "", ""},
		{`{"error":"token expired"}`, `{"error":"token expired"}`, `{"error":…}`},
		{`{"message":"is required","field":"schema_version"}`, `{"field":"schema_version","message":"is required"}`, `{"field":…,"message":…}`},
		{`{"customer":"Jane","error":"order 4711 of jane@example.com is unknown","tries":3}`, `{"error":"order <n> of <email> is unknown","customer":…,"tries":…}`, `{"error":…,"customer":…,"tries":…}`},
		{`{"code":1201,"type":"https://example.com/probs/no-stock","status":422}`, `{"code":1201,"type":"https://example.com/probs/no-stock","status":…}`, `{"code":…,"type":…,"status":…}`},
		{`{"code":"E1201","message":1700000000}`, `{"code":"E1201","message":<n>}`, `{"code":…,"message":…}`},
		{`{"type":"8f14e45f-ceea-467f-a0e6-1f1b2b3c4d5e"}`, `{"type":"<uuid>"}`, `{"type":…}`},
		{`{"Error":{"message":"no","user":{"name":"Jane"}},"ok":false}`, `{"Error":{"message":"no","user":{"name":…}},"ok":…}`, `{"Error":{"message":…,"user":{"name":…}},"ok":…}`},
		{`{"errors":[{"field":"a","value":1},{"value":2,"field":"b"},{"field":"a","value":7}]}`, `{"errors":[{"field":"a","value":…},{"field":"b","value":…}]}`, `{"errors":[{"field":…,"value":…}]}`},
		{`{"message":["is short","is blank"],"items":[1,2,3]}`, `{"message":["is blank","is short"],"items":…}`, `{"message":…,"items":…}`},
		{`{"items":[]}`, `{"items":…}`, `{"items":…}`},
		{`{"order-17":"x","order-18":"y"}`, `{"order-<n>":…}`, `{"order-<n>":…}`},
		{`{"code":true,"title":null}`, `{"code":true,"title":…}`, `{"code":…,"title":…}`},
		{`{"error":"no","trace":"aaa … bbb`, `{"error":"no","trace":…}`, `{"error":…,"trace":…}`},
		{`{"error":"no","customer":"Jane`, `{"error":"no","customer":…}`, `{"error":…,"customer":…}`},
		{"<html><title>502 Bad Gateway</title>\n\n<p>request 8f14e45fceea", "<html><title><n> Bad Gateway</title> <p>request <hex>", ""},
		{`[WARN] {module} failed`, `[WARN] {module} failed`, ""},
		{`"order 17 is unknown"`, "order <n> is unknown", ""},
		{"{}", "{}", ""},
		{`[{"a":[{"b":[{"c":[{"d":[{"message":"deep"}]}]}]}]}]`, `[{"a":[{"b":[{"c":[{"d":…}]}]}]}]`, `[{"a":[{"b":[{"c":[{"d":…}]}]}]}]`},
	} {
		if got := Skeleton(c.answer, true); got != c.want {
			t.Errorf("%q\n is %q\nwant %q", c.answer, got, c.want)
		}
		if got := Skeleton(c.answer, false); got != c.keys {
			t.Errorf("keys of %q\n is %q\nwant %q", c.answer, got, c.keys)
		}
	}
	long := Skeleton(`{"message":"`+strings.Repeat("größer ", 100)+`"}`, true)
	if utf8.RuneCountInString(long) != 160 || !strings.HasSuffix(long, "…") {
		t.Errorf("%d characters: %q", utf8.RuneCountInString(long), long)
	}
}

// Two different refusals with one status are two causes, other customers of one refusal are none.
func TestTheAnswerIsPartOfTheSignature(t *testing.T) {
	of := func(answer string) string {
		return Signature(&redrive.Failure{Types: []string{"delivery.ResponseError"}, Message: "the target answered 422",
			Details: map[string]string{DetailStatus: "422", DetailAnswer: answer}})
	}
	base := of(`{"error":"unknown field a","customer":"Jane"}`)
	for _, same := range []string{`{"error":"unknown field a","customer":"Bob"}`, `{"customer":17, "error":"unknown field a"}`} {
		if of(same) != base {
			t.Errorf("%s is another cause", same)
		}
	}
	for _, other := range []string{`{"error":"unknown field b","customer":"Jane"}`, `{"error":"unknown field a"}`, "", "no"} {
		if of(other) == base {
			t.Errorf("%s is the same cause", other)
		}
	}
	if of("a <b>17</b>") != of("a <b>18</b>") || of("a") == of("b") {
		t.Error("what is not JSON is not masked as errors are")
	}
}

// What a cause shows of an answer is bounded, one line, and without values where these are hidden.
func FuzzSkeleton(f *testing.F) {
	for _, s := range []string{`{"error":"x","a":[1,{"b":null}]}`, "[[[[[[[[[[", `{"a"`, "\x00\xff", strings.Repeat(`{"a":`, 2000), `{"secret":"s3cr3t"}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, answer string) {
		for _, values := range []bool{true, false} {
			got := Skeleton(answer, values)
			if !utf8.ValidString(got) || utf8.RuneCountInString(got) > maxSkeleton || got != Skeleton(answer, values) {
				t.Errorf("%q: %q", answer, got)
			}
		}
	})
}
