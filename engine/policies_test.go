package engine_test

import (
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/engine"
)

func TestPoliciesChoose(t *testing.T) {
	ps := engine.Policies{
		Default: redrive.Policy{Name: "d"},
		Kinds:   map[string]redrive.Policy{"otp": {Name: "k", MaxAttempts: 2}},
		Rules: []engine.Rule{
			{Header: "tenant", Value: "gold", Policy: redrive.Policy{Name: "gold"}},
			{Header: "tenant", Value: "gold", Policy: redrive.Policy{Name: "never reached"}},
			{Header: "urgent", Value: "", Policy: redrive.Policy{Name: "urgent"}},
		},
	}
	choose := engine.Compile(&ps)
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
		p    engine.Policies
		want time.Duration
	}{
		{"none", engine.Policies{}, 0},
		{"the default", engine.Policies{Default: hour}, time.Hour},
		{"that of a kind", engine.Policies{Default: hour, Kinds: map[string]redrive.Policy{"k": day}}, 24 * time.Hour},
		{"that of a rule", engine.Policies{Default: hour, Rules: []engine.Rule{{Policy: day}}}, 24 * time.Hour},
		{"a kind without one", engine.Policies{Default: hour, Kinds: map[string]redrive.Policy{"k": {}}}, 0},
		{"a default without one", engine.Policies{Kinds: map[string]redrive.Policy{"k": day}}, 0},
	} {
		if got := engine.MaxAge(&c.p); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
