package gateway_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/daemon/gateway"
)

func TestParseLine(t *testing.T) {
	got, err := gateway.ParseLine([]byte(` {"id":"a-1","kind":"sms.send","key":"k\u00e4","delay":"1.5s","deliver_at":"2026-01-31T08:00:00Z",` +
		`"expires_at":null,"reply_to":"session:x","headers":[["tenant","gold"],["tenant","a\"b"]],"body": {"x": [1, "}]\\", {}] } } `))
	if err != nil {
		t.Fatal(err)
	}
	want := redrive.Message{
		ID: "a-1", Kind: "sms.send", Key: "kä", Delay: 1500 * time.Millisecond, ReplyTo: "session:x",
		DeliverAt: time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC),
		Headers: redrive.Headers{
			{Name: "tenant", Value: []byte("gold")}, {Name: "tenant", Value: []byte(`a"b`)},
			{Name: "content-type", Value: []byte("application/json")},
		},
		Body: []byte(`{"x": [1, "}]\\", {}] }`),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestParseLineBodies(t *testing.T) {
	for line, want := range map[string]string{
		`{}`:                         "",
		`{"body":null}`:              "null",
		`{"body":"x"}`:               `"x"`,
		`{"body":-1.5e3}`:            "-1.5e3",
		`{"body":[]}`:                "[]",
		`{"body_base64":"AAH/"}`:     "\x00\x01\xff",
		`{"body_base64":null}`:       "",
		`{"body": true ,"kind":"k"}`: "true",
	} {
		m, err := gateway.ParseLine([]byte(line))
		if err != nil || string(m.Body) != want {
			t.Errorf("%s: body %q, error %v; want %q", line, m.Body, err, want)
		}
	}
}

func TestParseLineRefuses(t *testing.T) {
	for line, want := range map[string]string{
		`{"body":`:                               "not JSON",
		`[]`:                                     "not a JSON object",
		`{} {}`:                                  "not JSON",
		`{"Body":1}`:                             `unknown field "Body"`,
		`{"id":"a","id":"b"}`:                    "twice",
		`{"id":"a","\u0069d":"b"}`:               "twice",
		`{"id":7}`:                               "id must be a string",
		`{"delay":"-1s"}`:                        "use a duration",
		`{"delay":5}`:                            "delay must be a string",
		`{"deliver_at":"tomorrow"}`:              "RFC 3339",
		`{"headers":{"a":"1","a":"2"}}`:          "twice",
		`{"headers":{"a":["1"]}}`:                "must be a string",
		`{"headers":[["a"]]}`:                    "[name, value]",
		`{"headers":["a"]}`:                      "[name, value]",
		`{"headers":7}`:                          "must be an object",
		`{"headers":{"Redrive-Reason":"x"}}`:     "reserved",
		`{"body":1,"body_base64":"AA=="}`:        "both",
		`{"body_base64":"*"}`:                    "illegal base64",
		`{"body":` + nested(65) + `}`:            "nests deeper",
		`{"headers":{"a":` + nested(9) + `}}`:    "must be a string",
		`{"unknown":` + strings.Repeat("9", 100): "not JSON",
	} {
		_, err := gateway.ParseLine([]byte(line))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: error %v, want one with %q", line, err, want)
		}
	}
	if _, err := gateway.ParseLine([]byte(`{"body":` + nested(64) + `}`)); err != nil {
		t.Errorf("a body of depth 64: %v", err)
	}
}

func nested(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// FuzzParseLine compares the walk with encoding/json: what is accepted is JSON, and
// means the same there.
func FuzzParseLine(f *testing.F) {
	for _, s := range []string{
		`{"id":"a","kind":"k","key":"\u00e4","body":{"x":[1,"}",{}]}}`, `{"headers":{"a":"b"},"body_base64":"AA=="}`,
		`{"headers":[["a","b"],["a","\\\""]],"delay":"5s"}`, `{"body":-1e5}`, ` { "body" : null } `, `{"body":"\\"}`, `[]`, `{`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := gateway.ParseLine(line)
		if err != nil {
			return
		}
		var want struct {
			ID, Kind, Key string
			Body          json.RawMessage
			Base64        []byte `json:"body_base64"`
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(line, &fields); err != nil {
			t.Fatalf("accepted what is not JSON: %v", err)
		}
		if err := json.Unmarshal(line, &want); err != nil {
			t.Fatal(err)
		}
		// encoding/json turns broken UTF-8 into U+FFFD; Validate refuses it later.
		clean := func(s string) string { return strings.ToValidUTF8(s, "") }
		if clean(m.ID) != clean(strings.ReplaceAll(want.ID, "\uFFFD", "")) && m.Validate() == nil {
			t.Errorf("id %q, want %q", m.ID, want.ID)
		}
		if body, ok := fields["body"]; ok && !bytes.Equal(m.Body, body) {
			t.Errorf("body %q, want %q", m.Body, body)
		}
		if _, ok := fields["body"]; !ok && !bytes.Equal(m.Body, want.Base64) {
			t.Errorf("body %q, want %q", m.Body, want.Base64)
		}
		if len(want.Kind) != 0 && m.Kind == "" {
			t.Errorf("kind %q is lost", want.Kind)
		}
	})
}

func BenchmarkParseLine(b *testing.B) {
	line := []byte(`{"id":"0199aa-77","kind":"sms.send","body":{"to":"+491701234567","text":"` + strings.Repeat("hello ", 40) + `"}}`)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := gateway.ParseLine(line); err != nil {
			b.Fatal(err)
		}
	}
}
