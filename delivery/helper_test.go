package delivery

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/redrive/redrive"
)

func mustNew(t testing.TB, target Target, o Options) *Handler {
	t.Helper()
	h, err := New(target, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// message returns a delivery with a body.
func message(body string) *redrive.Delivery {
	return &redrive.Delivery{
		Message: redrive.Message{ID: "m-1", Queue: "hooks", Kind: "order.paid", Body: []byte(body)},
		Attempt: 3,
	}
}

// serve starts a target on loopback and returns a handler for it.
func serve(t testing.TB, target Target, f http.HandlerFunc) *Handler {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	target.URL = s.URL + target.URL
	target.AllowPrivate = true
	return mustNew(t, target, Options{Version: "1.2.3"})
}
