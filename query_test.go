package redrive_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/redrive/redrive"
)

func TestChangeValidate(t *testing.T) {
	long := strings.Repeat("k", redrive.MaxKeyLength+1)
	for name, c := range map[string]redrive.Change{
		"redrive":              {Action: redrive.ActRedrive},
		"redrive elsewhere":    {Action: redrive.ActRedrive, To: "other"},
		"edit of nothing":      {Action: redrive.ActEdit, Edit: &redrive.Edit{}},
		"edit and redrive":     {Action: redrive.ActRedrive, Edit: &redrive.Edit{Body: []byte("b")}},
		"kill with any reason": {Action: redrive.ActKill, Reason: redrive.ReasonManual},
		"due now":              {Action: redrive.ActDueNow},
	} {
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for says, c := range map[string]redrive.Change{
		"action 0":                     {},
		"action 7":                     {Action: redrive.ActDueNow + 1},
		"an edit without what to edit": {Action: redrive.ActEdit},
		"reason":                       {Action: redrive.ActKill, Reason: redrive.ReasonManual + 1},
		"queue name":                   {Action: redrive.ActRedrive, To: "no/queue"},
		"key of 257 bytes (a key is":   {Action: redrive.ActRedrive, Edit: &redrive.Edit{Key: &long}},
	} {
		err := c.Validate()
		var refused *redrive.Error
		if !errors.Is(err, redrive.ErrInvalid) || !errors.As(err, &refused) || refused.Op != "update" || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v", says, err)
		}
	}
}

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
	change := redrive.Change{Action: redrive.ActRedrive}
	if err := change.CheckRedrive(&m, redrive.ReasonExhausted); !errors.Is(err, redrive.ErrBodyGone) {
		t.Errorf("it may be redriven: %v", err)
	}
	m = gone
	(&redrive.Edit{Headers: &headers, Body: []byte("mended")}).Apply(&m)
	if err := change.CheckRedrive(&m, redrive.ReasonExhausted); err != nil {
		t.Errorf("with a body: %v", err)
	}
}

func TestSettlementValidateParts(t *testing.T) {
	long := strings.Repeat("k", redrive.MaxKindLength+1)
	for name, s := range map[string]redrive.Settlement{
		"emit: ":          {Outcome: redrive.OutcomeDone, Emit: []redrive.Message{{Queue: "q"}, {Queue: "/"}}},
		"kind of 129 byt": {Outcome: redrive.OutcomeRepeat, Edit: &redrive.Edit{Kind: &long}},
	} {
		if err := s.Validate(); !errors.Is(err, redrive.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
