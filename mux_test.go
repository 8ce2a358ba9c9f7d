package redrive_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
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
	redrive.Handle(m, func(_ context.Context, o order) error { got = o; return nil }, redrive.ForKind("order"))
	if err := deliver(m, "order", ` {"id": 7, "items": ["a"], "unknown": {}} `+"\n"); err != nil || got.ID != 7 || len(got.Items) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, body := range []string{"", "{", `{"id": "seven"}`, `{"id": 1} {"id": 2}`, `{"id": 1}x`, `{"id": 1}}`, `{"id": 1}]`, "\xff", "[]"} {
		err := deliver(m, "order", body)
		var e *redrive.DecodeError
		if !errors.As(err, &e) || e.Kind != "order" || driver.Classify(nil, err).Reason != redrive.ReasonUndecodable {
			t.Errorf("%q: %v", body, err)
		}
	}
}

func TestHandlePassesRawBodies(t *testing.T) {
	m := redrive.NewMux()
	var got string
	redrive.Handle(m, func(_ context.Context, b []byte) error { got = string(b); return nil }, redrive.ForKind("bytes"))
	redrive.Handle(m, func(_ context.Context, b json.RawMessage) error { got = string(b); return nil }, redrive.ForKind("raw"))
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
	redrive.Handle(m, func(context.Context, map[string]any) error { return want }, redrive.ForKind("k"))
	if err := deliver(m, "k", "{}"); !errors.Is(err, want) {
		t.Errorf("%v", err)
	}
}

// What Publish sends as a string arrives as that string.
func TestHandleOfAStringIsTheReverseOfPublish(t *testing.T) {
	m := redrive.NewMux()
	var got string
	redrive.Handle(m, func(_ context.Context, s string) error { got = s; return nil }, redrive.ForKind("k"))
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

type byValue struct{ N int }

func (byValue) Kind() string { return "by.value" }

type byPointer struct{ N int }

func (*byPointer) Kind() string { return "by.pointer" }

// badKind has a method that is not there without its part.
type badKind struct{ *byValue }

func TestTheTypeNamesTheKind(t *testing.T) {
	m := redrive.NewMux()
	var got []int
	redrive.Handle(m, func(_ context.Context, v byValue) error { got = append(got, v.N); return nil }, redrive.ForKind("by.value.v1"))
	redrive.Handle(m, func(_ context.Context, v *byPointer) error { got = append(got, v.N); return nil })
	if kinds, _ := m.Kinds(); !slices.Equal(kinds, []string{"by.pointer", "by.value", "by.value.v1"}) || m.Err() != nil {
		t.Fatalf("%v, %v", kinds, m.Err())
	}
	for i, body := range []any{byValue{0}, &byValue{1}, byPointer{2}, &byPointer{3}, (*byPointer)(nil)} {
		sent, err := redrive.NewMessage("q", body)
		if err == nil {
			err = deliver(m, sent.Kind, string(sent.Body))
		}
		if err != nil || len(got) != i+1 || i < 4 && got[i] != i {
			t.Errorf("%T: %v, handled %v", body, err, got)
		}
	}
	if err := deliver(m, "by.value.v1", `{"N":7}`); err != nil || got[len(got)-1] != 7 {
		t.Errorf("by its former name: %v, %v", got, err)
	}
	other := redrive.NewMux()
	redrive.Handle(other, func(context.Context, *byValue) error { return nil })
	redrive.Handle(other, func(context.Context, byPointer) error { return nil })
	if kinds, _ := other.Kinds(); !slices.Equal(kinds, []string{"by.pointer", "by.value"}) || other.Err() != nil {
		t.Errorf("with the other receivers: %v, %v", kinds, other.Err())
	}
}

func TestMistakesOfRegistrationsAreReported(t *testing.T) {
	h := redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error { return nil })
	for want, register := range map[string]func(m *redrive.Mux){
		"twice":   func(m *redrive.Mux) { m.Handle("a", h); m.Handle("a", h) },
		`"a"`:     func(m *redrive.Mux) { m.Handle("a", nil) },
		"no kind": func(m *redrive.Mux) { redrive.Handle(m, func(context.Context, order) error { return nil }) },
		"has no kind": func(m *redrive.Mux) {
			redrive.Handle(m, func(context.Context, badKind) error { return nil })
		},
		"nil":         func(m *redrive.Mux) { redrive.Handle[byValue](m, nil) },
		"fallback":    func(m *redrive.Mux) { m.Fallback(nil) },
		"fallback is": func(m *redrive.Mux) { m.Fallback(h); m.Fallback(h) },
		"129 bytes":   func(m *redrive.Mux) { m.Handle(strings.Repeat("k", redrive.MaxKindLength+1), h) },
		"concurrency": func(m *redrive.Mux) { m.Handle("a", h, redrive.WithConcurrency(-1)) },
		"timeout":     func(m *redrive.Mux) { m.Handle("a", h, redrive.WithTimeout(-1)) },
	} {
		m := redrive.NewMux()
		register(m)
		if err := m.Err(); !errors.Is(err, redrive.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
