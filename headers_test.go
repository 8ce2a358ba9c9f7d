package redrive_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/redrive/redrive"
)

func TestHeaders(t *testing.T) {
	var h redrive.Headers
	h.Add("a", "1")
	h.Add("b", "2")
	h.Add("a", "3")
	if v, ok := h.Get("a"); v != "3" || !ok {
		t.Errorf("a is %q, %v: the last value counts", v, ok)
	}
	if v, ok := h.Get("A"); ok {
		t.Errorf("A is %q: names are case-sensitive", v)
	}
	if got := h.Size(); got != 6 {
		t.Errorf("size %d", got)
	}
	h.Set("a", "4")
	want := redrive.Headers{{Name: "a", Value: []byte("4")}, {Name: "b", Value: []byte("2")}}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Error(diff)
	}
	h.Set("c", "5")
	h.Del("a")
	want = redrive.Headers{{Name: "b", Value: []byte("2")}, {Name: "c", Value: []byte("5")}}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Error(diff)
	}
	if redrive.Headers(nil).Clone() != nil {
		t.Error("a clone of nothing is something")
	}
}

// Set and Del against the plain way of doing it.
func TestHeadersModel(t *testing.T) {
	name := rapid.SampledFrom([]string{"a", "b", "c", "A"})
	rapid.Check(t, func(t *rapid.T) {
		var h, model redrive.Headers
		for range rapid.IntRange(0, 20).Draw(t, "steps") {
			n, v := name.Draw(t, "name"), rapid.StringN(0, 3, -1).Draw(t, "value")
			var next redrive.Headers
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				h.Add(n, v)
				next = append(model, redrive.Header{Name: n, Value: []byte(v)})
			case 1:
				h.Del(n)
				for _, m := range model {
					if m.Name != n {
						next = append(next, m)
					}
				}
			case 2:
				h.Set(n, v)
				found := false
				for _, m := range model {
					if m.Name != n {
						next = append(next, m)
					} else if !found {
						found = true
						next = append(next, redrive.Header{Name: n, Value: []byte(v)})
					}
				}
				if !found {
					next = append(next, redrive.Header{Name: n, Value: []byte(v)})
				}
			}
			model = next
			if len(h) != len(model) {
				t.Fatalf("%v, want %v", h, model)
			}
			for i := range h {
				if h[i].Name != model[i].Name || string(h[i].Value) != string(model[i].Value) {
					t.Fatalf("%v, want %v", h, model)
				}
			}
		}
	})
}
