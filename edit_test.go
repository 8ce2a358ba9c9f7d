package redrive_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

func TestEditApply(t *testing.T) {
	was := redrive.Message{Queue: "q", ID: "m", Kind: "k", Key: "y", Body: []byte("b"), Headers: redrive.Headers{{Name: "n", Value: []byte("v")}}}
	none, kind := redrive.Headers{}, ""
	for name, c := range map[string]struct {
		edit *redrive.Edit
		want func(m *redrive.Message)
	}{
		"nil":     {nil, func(*redrive.Message) {}},
		"nothing": {&redrive.Edit{}, func(*redrive.Message) {}},
		"to empty": {
			&redrive.Edit{Body: []byte{}, Headers: &none, Kind: &kind, Key: &kind},
			func(m *redrive.Message) { m.Body, m.Headers, m.Kind, m.Key = []byte{}, none, "", "" },
		},
	} {
		got, want := was, was
		c.edit.Apply(&got)
		c.want(&want)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// Other headers do not bring a body back that its broker no longer has; a body does.
func TestEditOfWhatHasNoBody(t *testing.T) {
	gone := redrive.Message{Headers: redrive.Headers{{Name: redrive.HeaderBodyGone, Value: []byte("deleted")}}}
	headers := redrive.Headers{{Name: "n", Value: []byte("v")}}
	m := gone
	(&redrive.Edit{Headers: &headers}).Apply(&m)
	if why, _ := m.Headers.Get(redrive.HeaderBodyGone); why != "deleted" || len(headers) != 1 {
		t.Errorf("after an edit of headers: %q, and the edit has %v", m.Headers, headers)
	}
	change := driver.Change{Action: driver.ActRedrive}
	if err := change.CheckRedrive(&m, redrive.ReasonExhausted); !errors.Is(err, redrive.ErrBodyGone) {
		t.Errorf("it may be redriven: %v", err)
	}
	m = gone
	(&redrive.Edit{Headers: &headers, Body: []byte("mended")}).Apply(&m)
	if err := change.CheckRedrive(&m, redrive.ReasonExhausted); err != nil {
		t.Errorf("with a body: %v", err)
	}
}
