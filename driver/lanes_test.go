package driver_test

import (
	"errors"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

func TestLaneSet(t *testing.T) {
	var s driver.LaneSet
	for l := range redrive.Lane(driver.Lanes) {
		if s.Has(l) {
			t.Errorf("%s is there before it was added", l)
		}
		if s = s.With(l); !s.Has(l) {
			t.Errorf("%s is not there after it was added", l)
		}
	}
	if s != driver.AllLanes {
		t.Errorf("%b", s)
	}
}

func TestSettlementValidate(t *testing.T) {
	for _, s := range []driver.Settlement{{Outcome: redrive.OutcomeDone}, {Outcome: redrive.OutcomeRetry, After: 1}, {Outcome: redrive.OutcomeDead, Reason: redrive.ReasonManual}} {
		if err := s.Validate(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	for _, s := range []driver.Settlement{{}, {Outcome: 99}, {Outcome: redrive.OutcomeDead}, {Outcome: redrive.OutcomeDrop, Reason: 99}, {Outcome: redrive.OutcomeRetry, After: -1}} {
		if err := s.Validate(); !errors.Is(err, redrive.ErrInvalid) {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
