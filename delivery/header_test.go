package delivery

import (
	"bufio"
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
)

// onTheWire returns the headers of a delivery as a receiver parses them, and how
// many were dropped.
func onTheWire(t *testing.T, h *Handler, d *redrive.Delivery) (header http.Header, dropped int) {
	t.Helper()
	req, dropped := h.request(t.Context(), d, h.ready, time.Unix(1, 0))
	var wire bytes.Buffer
	if err := req.Write(&wire); err != nil {
		t.Fatal(err)
	}
	got, err := http.ReadRequest(bufio.NewReader(&wire))
	if err != nil {
		t.Fatalf("what left cannot be read: %v\n%q", err, wire.String())
	}
	if got.Host != "example.com" || got.Method != http.MethodPost || got.RequestURI != "/" || got.ContentLength != int64(len(d.Body)) {
		t.Fatalf("the request became %s %s of %s with %d bytes", got.Method, got.RequestURI, got.Host, got.ContentLength)
	}
	return got.Header, dropped
}

func TestMessageHeaders(t *testing.T) {
	h := mustNew(t, Target{URL: "http://example.com/", Headers: map[string]string{"x-static": "ours"}}, Options{})
	for _, c := range []struct {
		name, value string
		key         string // "" : it does not leave
		want        string
		dropped     bool
	}{
		{"x-tenant", "gold", "X-Tenant", "gold", false},
		{"X-TENANT", " gold\t", "X-Tenant", "gold", false},
		{"x-empty", "", "X-Empty", "", false},
		{"x-latin", "caf\xe9", "X-Latin", "caf\xe9", false},
		{"x-utf8", "café ✓", "X-Utf8", "café ✓", false},
		{"idempotency-key", `"k"`, "Idempotency-Key", `"k"`, false},
		{"content-encoding", "gzip", "Content-Encoding", "gzip", false},
		{"accept", "text/plain", "Accept", "text/plain", false},
		{"redrive-outcome", "done", "Redrive-Outcome", "done", false},
		{"redrive-possible-duplicate", "true", "Redrive-Possible-Duplicate", "true", false},
		{"x-static", "theirs", "X-Static", "ours", false},

		{"Host", "evil", "Host", "", false},
		{"content-length", "0", "", "", false},
		{"Transfer-Encoding", "chunked", "", "", false},
		{"connection", "x-tenant", "", "", false},
		{"keep-alive", "1", "", "", false},
		{"upgrade", "h2c", "", "", false},
		{"te", "trailers", "", "", false},
		{"trailer", "x", "", "", false},
		{"expect", "100-continue", "", "", false},
		{"authorization", "Bearer theirs", "", "", false},
		{"Cookie", "a=b", "", "", false},
		{"proxy-authorization", "x", "", "", false},
		{"webhook-signature", "v1,forged", "", "", false},
		{"redrive-attempt-x", "9", "", "", false},

		{"", "x", "", "", true},
		{"a b", "x", "", "", true},
		{"a:b", "x", "", "", true},
		{"a\r\nb", "x", "", "", true},
		{"näme", "x", "", "", true},
		{"x-split", "a\r\nx-injected: b", "", "", true},
		{"x-lf", "a\nb", "", "", true},
		{"x-nul", "a\x00b", "", "", true},
		{"x-del", "a\x7fb", "", "", true},
	} {
		d := message("x")
		d.Headers.Add(c.name, c.value)
		got, dropped := onTheWire(t, h, d)
		if (dropped == 1) != c.dropped {
			t.Errorf("%q: %d dropped", c.name, dropped)
		}
		if c.key == "" {
			if v := got.Get(c.name); v != "" && v == c.value {
				t.Errorf("%q left as %q", c.name, v)
			}
		} else if got.Get(c.key) != c.want {
			t.Errorf("%q: got %q, want %q", c.name, got.Get(c.key), c.want)
		}
		if _, ok := got["X-Injected"]; ok {
			t.Errorf("%q injected a header", c.name)
		}
	}
	if n := h.DroppedHeaders(); n != 9 {
		t.Errorf("%d headers counted as dropped, want 9", n)
	}
}

func TestOwnHeadersCannotBeForged(t *testing.T) {
	h := mustNew(t, Target{URL: "http://example.com/", Secrets: []string{vectorSecret}}, Options{})
	d := message("x")
	for _, name := range []string{"webhook-id", "Webhook-Timestamp", "webhook-signature", "redrive-attempt", "Redrive-Queue", "redrive-kind", "user-agent", "Content-Type"} {
		d.Headers.Add(name, "forged")
	}
	d.Headers.Add("content-type", "text/plain")
	got, _ := onTheWire(t, h, d)
	for name, values := range got {
		if len(values) != 1 || values[0] == "forged" {
			t.Errorf("%s: %q", name, values)
		}
	}
	if got.Get("Content-Type") != "text/plain" {
		t.Errorf("content-type %q, want the last one", got.Get("Content-Type"))
	}
}

func TestRepeatedHeadersKeepTheirOrder(t *testing.T) {
	h := mustNew(t, Target{URL: "http://example.com/"}, Options{})
	d := message("x")
	for _, v := range []string{"x-a=1", "x-b=2", "X-A=3", "x-a=1"} {
		name, value, _ := strings.Cut(v, "=")
		d.Headers.Add(name, value)
	}
	got, _ := onTheWire(t, h, d)
	if v := got["X-A"]; !slices.Equal(v, []string{"1", "3", "1"}) {
		t.Errorf("X-A: %q", v)
	}
	if v := got["X-B"]; !slices.Equal(v, []string{"2"}) {
		t.Errorf("X-B: %q", v)
	}
}

func TestTraceparent(t *testing.T) {
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	zeros := strings.Repeat("0", 32)
	for value, want := range map[string]bool{
		"00-" + trace + "-" + parent + "-01":                  true,
		"00-" + trace + "-" + parent + "-00":                  true,
		"cc-" + trace + "-" + parent + "-01":                  true,
		"cc-" + trace + "-" + parent + "-01-later":            true,
		"cc-" + trace + "-" + parent + "-01later":             false,
		"00-" + trace + "-" + parent + "-01-later":            false,
		"ff-" + trace + "-" + parent + "-01":                  false,
		"00-" + zeros + "-" + parent + "-01":                  false,
		"00-" + trace + "-" + zeros[:16] + "-01":              false,
		"00-" + strings.ToUpper(trace) + "-" + parent + "-01": false,
		"00-" + trace + "-" + parent:                          false,
		"00-" + trace + "-" + parent + "-0g":                  false,
		"":                                                    false,
	} {
		h := mustNew(t, Target{URL: "http://example.com/"}, Options{})
		d := message("x")
		d.Headers.Add("Traceparent", value)
		d.Headers.Add("tracestate", "a=1")
		got, _ := onTheWire(t, h, d)
		if _, ok := got["Traceparent"]; ok != want {
			t.Errorf("%q: passed on %v, want %v", value, ok, want)
		}
		if _, ok := got["Tracestate"]; ok != want {
			t.Errorf("%q: tracestate passed on %v, want %v", value, ok, want)
		}
	}
}

// What leaves on the wire parses to the same set: nothing of a message's headers can
// change the request, add a header, or change one of ours.
func FuzzHeaders(f *testing.F) {
	f.Add("x-a", []byte("1"), "X-A", []byte("2"), "kind")
	f.Add("host", []byte("evil"), "content-length", []byte("0"), "")
	f.Add("x", []byte("a\r\nb: c"), "y\r\nz", []byte(""), "a\nb")
	f.Add("webhook-id", []byte("x"), "transfer-encoding", []byte("chunked"), "✓")
	f.Add("traceparent", []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), "tracestate", []byte("a=1"), "k")
	f.Fuzz(func(t *testing.T, name1 string, value1 []byte, name2 string, value2 []byte, kind string) {
		h := mustNew(t, Target{URL: "http://example.com/", Secrets: []string{vectorSecret}}, Options{})
		d := message("body")
		d.Kind = kind
		d.Headers = redrive.Headers{{Name: name1, Value: value1}, {Name: name2, Value: value2}}
		want := http.Header{}
		plain, dropped := message("body"), 0
		for _, v := range d.Headers {
			value := strings.Trim(string(v.Value), " \t")
			switch lower := strings.ToLower(v.Name); {
			case !validName(v.Name) || !validValue(value):
				dropped++
			case lower == "content-type" && value != "":
				want["Content-Type"] = []string{value}
			case lower == "content-type", lower == "traceparent", lower == "tracestate":
			case reserved(lower) && !forwardedOurs[lower]:
			default:
				want.Add(v.Name, value)
			}
		}
		ours, _ := onTheWire(t, h, plain)
		for name, values := range ours {
			if _, ok := want[name]; !ok || name != "Content-Type" {
				want[name] = append(values, want[name]...)
			}
		}
		got, n := onTheWire(t, h, d)
		if n != dropped {
			t.Errorf("%d dropped, want %d", n, dropped)
		}
		delete(got, "Traceparent")
		delete(got, "Tracestate")
		want.Set("Redrive-Kind", strings.Trim(kind, " \t"))
		if kind == "" || !validValue(kind) {
			want.Del("Redrive-Kind")
		}
		if len(got) != len(want) {
			t.Errorf("got %q\nwant %q", got, want)
		}
		for name := range want {
			if !slices.Equal(got[name], want[name]) {
				t.Errorf("%s: got %q, want %q", name, got[name], want[name])
			}
		}
	})
}
