package amqpform

import (
	"maps"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"
)

// Every type that a client of AMQP reads comes back by way of text and JSON, also inside arrays and
// tables.
func TestTypesComeBack(t *testing.T) {
	plain := amqp.Table{
		"text": "x", "empty": "", "yes": true, "i8": int8(-8), "u8": uint8(200), "i16": int16(-16), "u16": uint16(math.MaxUint16), "i32": int32(-32),
		"u32": uint32(math.MaxUint32), "i64": int64(math.MaxInt64), "f32": float32(0.1), "f64": 0.1, "whole": 3.0, "none": nil, "raw": []byte{0xff, 0},
		"bytes": []byte("b"), "when": time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC), "price": amqp.Decimal{Value: 314, Scale: 2},
	}
	list := []any{"a", int32(1), []any{nil, []byte("b")}}
	for _, v := range plain {
		list = append(list, v)
	}
	want := amqp.Table{"list": list, "table": amqp.Table{"deep": plain, "none": nil}}
	maps.Copy(want, plain)
	var f Form
	texts := make(map[string][]byte)
	for name, v := range want {
		texts[name] = f.Text(name, v)
	}
	again, ok := Parse(f.String())
	if !ok {
		t.Fatal(f.String())
	}
	got := make(amqp.Table)
	for name, text := range texts {
		got[name] = string(text)
		if kind, there := again.Types[name]; there {
			got[name] = Value(text, kind)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// What an edit made of a header is text where it is no longer of its type, and what it added to
// an array has a type that AMQP knows.
func TestWhatWasEditedStaysText(t *testing.T) {
	for _, c := range []struct {
		text string
		kind any
		want any
	}{
		{"seven", "int32", "seven"}, {"300", "uint8", "300"}, {"x", "void", "x"}, {"{", map[string]any{}, "{"}, {"[1] 2", []any{"int32"}, "[1] 2"},
		{"[1,2,2.5,null]", []any{"int32"}, []any{int32(1), int64(2), 2.5, nil}}, {"1", "unheard of", "1"}, {"1", 7.0, "1"},
	} {
		if d := cmp.Diff(c.want, Value([]byte(c.text), c.kind)); d != "" {
			t.Errorf("%s as %v: %s", c.text, c.kind, d)
		}
	}
	if text, kind := Text([]any{math.NaN()}); kind != "" || len(text) == 0 {
		t.Errorf("%s %v", text, kind)
	}
}
