package session

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/daemon/gateway"
	"github.com/redrive/redrive/internal/wsproto"
)

type sinkFunc func(msgs []redrive.Message) []error

func (f sinkFunc) Publish(_ context.Context, msgs []redrive.Message) []error { return f(msgs) }

// TestAnEventIsTheSameMessageAsOverHTTP publishes events over both.
func TestAnEventIsTheSameMessageAsOverHTTP(t *testing.T) {
	for _, event := range []string{
		`{"specversion":"1.0","id":"a1","source":"/shop","type":"order.placed","data":{"n":1}}`,
		`{"specversion":"1.0","id":"a1","source":"/shop","type":"t","datacontenttype":"text/plain","data":"hello"}`,
		`{"specversion":"1.0","id":"a1","source":"/shop","type":"t","datacontenttype":"image/png","data_base64":"AAEC"}`,
		`{"specversion":"1.0","id":"a1","source":"/shop","type":"t","time":"2026-01-02T03:04:05Z","subject":"x","partitionkey":"k","expirytime":"2099-01-02T03:04:05Z","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","tracestate":"a=b","n":7,"flag":true,"none":null}`,
		`{"specversion":"1.0","id":"a1","source":"/shop","type":"t"}`,
		`{"specversion":"0.3","id":"a1","source":"/shop","type":"t"}`,
		`{"specversion":"1.0","source":"/shop","type":"t"}`,
		`{"specversion":"1.0","id":"a1","source":"/shop","type":"t","expirytime":"soon"}`,
		`{"specversion":"1.0","id":"a1","source":"/shop","type":"t","list":[]}`,
		`{"specversion":"1.0","id":"a1","source":"/shop","type":"t","data":1,"data_base64":"AA=="}`,
		`null`, `"x"`,
	} {
		var overHTTP []redrive.Message
		mux := http.NewServeMux()
		mux.Handle("POST /{queue}", gateway.New(sinkFunc(func(msgs []redrive.Message) []error {
			overHTTP = append(overHTTP, msgs...)
			return nil
		}), gateway.Options{}))
		r := httptest.NewRequest(http.MethodPost, "/orders", strings.NewReader(event))
		r.Header.Set("Content-Type", "application/cloudevents+json")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		p, err := readPublish([]byte(`{"type":"publish","seq":3,"queue":"orders","result":false,"cloudevent":` + event + `}`))
		if err != nil {
			t.Fatalf("%s: %v", event, err)
		}
		if w.Code != http.StatusAccepted {
			want := struct{ Type, Detail string }{}
			if err := json.Unmarshal(w.Body.Bytes(), &want); err != nil {
				t.Fatal(err)
			}
			if p.refusal == nil || p.refusal.Type != want.Type || p.refusal.Detail != want.Detail {
				t.Errorf("%s: over HTTP %d %+v, here %v", event, w.Code, want, p.refusal)
			}
			continue
		}
		if p.refusal != nil {
			t.Errorf("%s: %v", event, p.refusal)
		} else if diff := cmp.Diff(overHTTP, []redrive.Message{p.message}); diff != "" {
			t.Errorf("%s: -HTTP +here\n%s", event, diff)
		}
	}
}

func TestBesideAnEventNothingOfAMessageMayStand(t *testing.T) {
	for _, field := range []string{`"id":"x"`, `"kind":"x"`, `"key":"x"`, `"body":1`, `"expires_at":"2099-01-01T00:00:00Z"`, `"headers":{"a":"b"}`} {
		p, err := readPublish([]byte(`{"type":"publish","seq":3,"queue":"q",` + field + `,"cloudevent":{"specversion":"1.0","id":"e","source":"/s","type":"t"}}`))
		if err != nil {
			t.Fatal(err)
		}
		if p.refusal == nil || !strings.Contains(p.refusal.Detail, "beside cloudevent") {
			t.Errorf("%s: %v", field, p.refusal)
		}
	}
}

func TestFramesThatEndTheConnection(t *testing.T) {
	for text, reason := range map[string]string{
		``:                               "frame",
		`[]`:                             "frame",
		`{"type":"publish"`:              "frame",
		`{"type":7}`:                     "frame",
		`{"type":"publish","queue":"q"}`: "number",
		`{"type":"publish","seq":0}`:     "number",
		`{"type":"publish","seq":-1}`:    "frame",
		`{"type":"publish","seq":1.5}`:   "frame",
		`{"type":"seen","seq":"1"}`:      "frame",
		`{"type":"publish","seq":9007199254740992}`: "number",
	} {
		_, _, err := readFrame([]byte(text))
		var why *Close
		if !errors.As(err, &why) || why.Code != wsproto.CodeFrame || !strings.HasPrefix(why.Reason, reason+":") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func FuzzFrame(f *testing.F) {
	for _, s := range []string{
		`{"type":"hello","attempt":2,"session":"0199","token":"Zk3","seen":17,"result":5,"window":64}`,
		`{"type":"publish","seq":18,"queue":"sms","kind":"sms.send","body":{"to":"1"}}`,
		`{"type":"publish","seq":19,"queue":"orders","cloudevent":{"specversion":"1.0","id":"a1","source":"/shop","type":"t","data":{"n":1}}}`,
		`{"type":"publish","seq":1,"queue":"q","body_base64":"AA==","result":false,"headers":{"a":["b","c"]}}`,
		`{"type":"seen","seq":21}`, `{"type":"result_ack","number":7}`, `{"type":"ping","data":"x"}`, `{"type":"bye"}`,
		`{ "seq":1, "type":"publish"}`, `{"type":"publish","seq":9007199254740992}`, `null`, `[`, `"`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if h, err := ReadHello(text); err == nil && (h.Window < 1 || h.Window > wsproto.MaxWindow || (h.Session == "") != (h.Token == "")) {
			t.Errorf("%q became %+v", text, h)
		}
		frame, p, err := readFrame(text)
		var why *Close
		switch {
		case err != nil && !errors.As(err, &why):
			t.Errorf("%q: an error that closes nothing: %v", text, err)
		case err != nil && (frame != nil || p != nil), err == nil && (frame == nil) == (p == nil):
			t.Errorf("%q became %v and %v with %v", text, frame, p, err)
		case why != nil && (why.Code != wsproto.CodeFrame || len(why.Reason) > 123):
			t.Errorf("%q: %d %q", text, why.Code, why.Reason)
		}
		if p == nil {
			return
		}
		if p.seq == 0 || p.seq > maxNumber {
			t.Errorf("%q has number %d", text, p.seq)
		}
		if p.refusal == nil && p.message.Validate() != nil {
			t.Errorf("%q became a message that is not valid: %+v", text, p.message)
		}
		if p.refusal != nil && (p.refusal.Title == "" || len(p.refusal.Detail) > 2*maxRefusalText) {
			t.Errorf("%q is refused with %+v", text, p.refusal)
		}
	})
}
