package redrive_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redrive/redrive"
)

func deliver(m *redrive.Mux, kind, body string) error {
	return m.ServeDelivery(context.Background(), &redrive.Delivery{Message: redrive.Message{ID: "m", Queue: "q", Kind: kind, Body: []byte(body)}})
}

func TestMuxChoosesByKind(t *testing.T) {
	m := redrive.NewMux()
	var got string
	note := func(name string) redrive.Handler {
		return redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error { got = name; return nil })
	}
	if kinds, all := m.Kinds(); len(kinds) != 0 || all {
		t.Errorf("an empty mux handles %v, %v", kinds, all)
	}
	m.Handle("b", note("b"))
	m.Handle("a", note("old a"))
	m.Handle("a", note("a"))
	if kinds, all := m.Kinds(); !slices.Equal(kinds, []string{"a", "b"}) || all {
		t.Errorf("it handles %v, %v", kinds, all)
	}
	if err := deliver(m, "a", ""); err != nil || got != "a" {
		t.Errorf("%s, %v", got, err)
	}
	if err := deliver(m, "c", ""); !errors.Is(err, redrive.ErrNoHandler) || !strings.Contains(err.Error(), `"c"`) {
		t.Errorf("of an unknown kind: %v", err)
	}
	m.Fallback(note("fallback"))
	if err := deliver(m, "c", ""); err != nil || got != "fallback" {
		t.Errorf("%s, %v", got, err)
	}
	if _, all := m.Kinds(); !all {
		t.Error("with a fallback it does not handle all kinds")
	}
}

type order struct {
	ID    int      `json:"id"`
	Items []string `json:"items"`
}

func TestHandleDecodesJSON(t *testing.T) {
	m := redrive.NewMux()
	var got order
	redrive.Handle(m, "order", func(_ context.Context, o order) error { got = o; return nil })
	if err := deliver(m, "order", ` {"id": 7, "items": ["a"], "unknown": {}} `+"\n"); err != nil || got.ID != 7 || len(got.Items) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, body := range []string{"", "{", `{"id": "seven"}`, `{"id": 1} {"id": 2}`, `{"id": 1}x`, `{"id": 1}}`, `{"id": 1}]`, "\xff", "[]"} {
		err := deliver(m, "order", body)
		var e *redrive.DecodeError
		if !errors.As(err, &e) || e.Kind != "order" || redrive.Classify(nil, err).Reason != redrive.ReasonUndecodable {
			t.Errorf("%q: %v", body, err)
		}
	}
}

func TestHandlePassesRawBodies(t *testing.T) {
	m := redrive.NewMux()
	var got string
	redrive.Handle(m, "bytes", func(_ context.Context, b []byte) error { got = string(b); return nil })
	redrive.Handle(m, "raw", func(_ context.Context, b json.RawMessage) error { got = string(b); return nil })
	for _, kind := range []string{"bytes", "raw"} {
		for _, body := range []string{"", "\x00\xff", `{"a": 1}`, "{"} {
			if err := deliver(m, kind, body); err != nil || got != body {
				t.Errorf("%s: %q became %q, %v", kind, body, got, err)
			}
		}
	}
}

func TestHandlePassesTheHandlersError(t *testing.T) {
	m := redrive.NewMux()
	want := errors.New("no luck")
	redrive.Handle(m, "k", func(context.Context, map[string]any) error { return want })
	if err := deliver(m, "k", "{}"); !errors.Is(err, want) {
		t.Errorf("%v", err)
	}
}

// What Publish sends as a string arrives as that string.
func TestHandleOfAStringIsTheReverseOfPublish(t *testing.T) {
	m := redrive.NewMux()
	var got string
	redrive.Handle(m, "k", func(_ context.Context, s string) error { got = s; return nil })
	for _, body := range []string{"hello", "42", "true", "null", "{}", `"quoted"`, ""} {
		sent, err := redrive.NewMessage("q", body, redrive.WithKind("k"))
		if err != nil {
			t.Fatal(err)
		}
		if err := deliver(m, "k", string(sent.Body)); err != nil || got != body {
			t.Errorf("%q became %q, %v", body, got, err)
		}
	}
}
