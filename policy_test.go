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

func TestPoliciesChoose(t *testing.T) {
	ps := redrive.Policies{
		Default: redrive.Policy{Name: "d"},
		Kinds:   map[string]redrive.Policy{"otp": {Name: "k", MaxAttempts: 2}},
		Rules: []redrive.Rule{
			{Header: "tenant", Value: "gold", Policy: redrive.Policy{Name: "gold"}},
			{Header: "tenant", Value: "gold", Policy: redrive.Policy{Name: "never reached"}},
			{Header: "urgent", Value: "", Policy: redrive.Policy{Name: "urgent"}},
		},
	}
	choose := ps.Func()
	delete(ps.Kinds, "otp")
	ps.Rules[0].Value = "changed"
	message := func(kind string, headers ...string) *redrive.Message {
		m := &redrive.Message{Kind: kind}
		for i := 0; i < len(headers); i += 2 {
			m.Headers.Add(headers[i], headers[i+1])
		}
		return m
	}
	for _, c := range []struct {
		name string
		m    *redrive.Message
		want string
	}{
		{"the default", message("other"), "d"},
		{"by kind", message("otp"), "k"},
		{"by header before kind", message("otp", "tenant", "gold"), "gold"},
		{"another value", message("otp", "tenant", "silver"), "k"},
		{"the last value of a header counts", message("", "tenant", "gold", "tenant", "silver"), "d"},
		{"an empty value is one", message("", "urgent", ""), "urgent"},
		{"an absent header is not an empty one", message(""), "d"},
	} {
		if got := choose(c.m); got.Name != c.want || got.MaxAttempts == 0 || got.Backoff == nil {
			t.Errorf("%s: %+v, want %s", c.name, got, c.want)
		}
	}
}

func TestPoliciesMaxAgeIsTheLongest(t *testing.T) {
	hour, day := redrive.Policy{MaxAge: time.Hour}, redrive.Policy{MaxAge: 24 * time.Hour}
	for _, c := range []struct {
		name string
		p    redrive.Policies
		want time.Duration
	}{
		{"none", redrive.Policies{}, 0},
		{"the default", redrive.Policies{Default: hour}, time.Hour},
		{"that of a kind", redrive.Policies{Default: hour, Kinds: map[string]redrive.Policy{"k": day}}, 24 * time.Hour},
		{"that of a rule", redrive.Policies{Default: hour, Rules: []redrive.Rule{{Policy: day}}}, 24 * time.Hour},
		{"a kind without one", redrive.Policies{Default: hour, Kinds: map[string]redrive.Policy{"k": {}}}, 0},
		{"a default without one", redrive.Policies{Kinds: map[string]redrive.Policy{"k": day}}, 0},
	} {
		if got := c.p.MaxAge(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
