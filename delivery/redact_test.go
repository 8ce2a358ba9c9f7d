package delivery

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/redrive/redrive"
)

func TestRedact(t *testing.T) {
	for _, text := range []string{
		"Authorization: Bearer CANARY",
		"authorization: CANARY",
		`{"Authorization": "Basic CANARY"}`,
		"Cookie: a=1; session=CANARY",
		"set-cookie: CANARY; path=/",
		"Proxy-Authorization=CANARY",
		`{"access_token":"CANARY","b":1}`,
		`{"client_secret" : "CAN\"CANARY"}`,
		`{\"api_key\":\"CANARY\"}`,
		"api-key=CANARY&x=1",
		"X-Api-Key: CANARY",
		"password='CANARY'",
		"db.password = CANARY",
		"webhook-signature: v1,CANARY",
		"x-hub-signature-256: sha256=CANARY",
		`"refresh_token":"CANARY`,
		"curl -H 'Bearer CANARYCANARY'",
		"the key whsec_CANARY was refused",
		"https://user:CANARY@example.com/a",
		"https://CANARY@example.com/a",
		"see https://example.com/a?sig=CANARY for more",
		"GET /hook?code=CANARY HTTP/1.1",
		"request /hook?code=CANARY",
		"https://example.com?sig=CANARY",
		"https://a.example?sig=CANARY&u=https://b.example",
		"https://a.example?u=https://user:CANARY@b.example",
		"redirect=https://a.example,https://user:CANARY@b.example",
		`{"msg":"{\"token\":\"CANARY CANARY\"}"}`,
		"{'secret': 'a CANARY'}",
		"token : CANARY",
		"the exact one: pl4in-CANARY",
		"cut at the end: pl4in-CAN",
	} {
		got := redact(text, []string{"pl4in-CANARY"})
		if strings.Contains(got, "CAN") {
			t.Errorf("%s\nbecame %s", text, got)
		}
	}
	for _, text := range []string{
		`{"error":"no such customer","id":17}`,
		"<html><body><h1>502 Bad Gateway</h1></body></html>",
		"see https://example.com/docs/errors",
		"is it true? yes",
	} {
		if got := redact(text, nil); got != text {
			t.Errorf("%s\nbecame %s", text, got)
		}
	}
}

// A target that repeats everything it was sent tells us nothing that is then stored.
func TestCanariesDoNotLeak(t *testing.T) {
	const (
		secret = "whsec_Q0FOQVJZLWNhbmFyeS1DQU5BUlktY2FuYXJ5"
		query  = "t=CANARY-query"
	)
	for _, cut := range []int{0, maxFailureBody - 10} {
		h := serve(t, Target{URL: "/hook?" + query, Secrets: []string{secret},
			Headers: map[string]string{"authorization": "Bearer CANARY-bearer", "x-api-key": "CANARY-key", "x-tenant": "CANARY-free"}},
			func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(http.StatusInternalServerError)
				_, _ = io.WriteString(w, strings.Repeat(".", cut))
				if cut > 0 {
					_, _ = io.WriteString(w, r.Header.Get("x-api-key")) // and the cap falls into it
					return
				}
				_, _ = io.WriteString(w, "you sent "+r.Header.Get("authorization")+" and "+r.Header.Get("x-api-key")+" to "+r.URL.RawQuery+
					" signed "+r.Header.Get("webhook-signature")+" by "+secret+"\n")
				_ = r.Header.Write(w)
			})
		err := h.ServeDelivery(t.Context(), message("x"))
		var detailed redrive.DetailedError
		if !errors.As(err, &detailed) {
			t.Fatal(err)
		}
		var all strings.Builder
		all.WriteString(err.Error())
		for k, v := range detailed.FailureDetails() {
			all.WriteString("\n" + k + "=" + v)
		}
		text := strings.ReplaceAll(all.String(), "CANARY-free", "") // not a secret by its name
		for _, canary := range []string{"CANARY", "CANA", "Q0FOQVJZ", "v1,"} {
			if strings.Contains(text, canary) {
				t.Errorf("%s leaked:\n%s", canary, text)
			}
		}
	}
}

func TestExcerptKeepsHeadAndTail(t *testing.T) {
	body := "HEAD" + strings.Repeat("é", 4000) + "TAIL"
	h := serve(t, Target{}, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, body)
	})
	var e *ResponseError
	if err := h.ServeDelivery(t.Context(), message("x")); !errors.As(err, &e) {
		t.Fatal(err)
	}
	if !strings.HasPrefix(e.Excerpt, "HEAD") || !strings.HasSuffix(e.Excerpt, "TAIL") || len(e.Excerpt) > excerptHead+excerptTail+16 {
		t.Errorf("%d bytes: %.20q ... %q", len(e.Excerpt), e.Excerpt, e.Excerpt[len(e.Excerpt)-20:])
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("authorization: Bearer x https://a:b@c?d", "secret")
	f.Add("\xff\x00{\"token\":\"", "\"token")
	f.Fuzz(func(t *testing.T, text, secret string) {
		if len(secret) < 4 || strings.Contains(redacted, secret) {
			t.Skip()
		}
		if got := excerpt(redact(text, []string{secret}), excerptHead, excerptTail); len(got) > 4*len(text)+1024 {
			t.Errorf("%d bytes became %d", len(text), len(got))
		}
	})
}
