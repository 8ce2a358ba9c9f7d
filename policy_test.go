package redrive_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redrive/redrive"
)

func TestPolicyDefaults(t *testing.T) {
	p := redrive.Policy{}.WithDefaults()
	if p.Name != "default" || p.MaxAttempts != 25 || p.MaxCrashes != 3 || p.Timeout != 30*time.Second || p.Backoff == nil || p.MaxAge != 0 || p.Inline != 0 {
		t.Errorf("%+v", p)
	}
	own := redrive.Policy{Name: "n", MaxAttempts: 1, MaxCrashes: 1, Timeout: 1, Backoff: redrive.Fixed{Interval: 1}}
	if got := own.WithDefaults(); got != own {
		t.Errorf("%+v", got)
	}
}

func TestPolicyCheck(t *testing.T) {
	if err := new(redrive.Policy).Check(); err != nil {
		t.Error(err)
	}
	for _, p := range []redrive.Policy{{MaxAttempts: -1}, {MaxCrashes: -1}, {Inline: -1}, {MaxAge: -1}, {Timeout: -1}} {
		if err := p.Check(); !errors.Is(err, redrive.ErrInvalid) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}
