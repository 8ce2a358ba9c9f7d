package driver_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

func TestChangeValidate(t *testing.T) {
	long := strings.Repeat("k", redrive.MaxKeyLength+1)
	for name, c := range map[string]driver.Change{
		"redrive":              {Action: driver.ActRedrive},
		"redrive elsewhere":    {Action: driver.ActRedrive, To: "other"},
		"edit of nothing":      {Action: driver.ActEdit, Edit: &redrive.Edit{}},
		"edit and redrive":     {Action: driver.ActRedrive, Edit: &redrive.Edit{Body: []byte("b")}},
		"kill with any reason": {Action: driver.ActKill, Reason: redrive.ReasonManual},
		"due now":              {Action: driver.ActDueNow},
	} {
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for says, c := range map[string]driver.Change{
		"action 0":                     {},
		"action 7":                     {Action: driver.ActDueNow + 1},
		"an edit without what to edit": {Action: driver.ActEdit},
		"reason":                       {Action: driver.ActKill, Reason: driver.LastReason + 1},
		"queue name":                   {Action: driver.ActRedrive, To: "no/queue"},
		"key of 257 bytes (a key is":   {Action: driver.ActRedrive, Edit: &redrive.Edit{Key: &long}},
	} {
		err := c.Validate()
		var refused *redrive.Error
		if !errors.Is(err, redrive.ErrInvalid) || !errors.As(err, &refused) || refused.Op != "update" || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v", says, err)
		}
	}
}

func TestSettlementValidateParts(t *testing.T) {
	long := strings.Repeat("k", redrive.MaxKindLength+1)
	for name, s := range map[string]driver.Settlement{
		"emit: ":          {Outcome: redrive.OutcomeDone, Emit: []redrive.Message{{Queue: "q"}, {Queue: "/"}}},
		"kind of 129 byt": {Outcome: redrive.OutcomeRepeat, Edit: &redrive.Edit{Kind: &long}},
	} {
		if err := s.Validate(); !errors.Is(err, redrive.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
