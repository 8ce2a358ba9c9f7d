package config

import (
	"encoding/json"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

// Policy says how often, how long and when a message is tried. What is left out has
// the default of [redrive.Policy].
type Policy struct {
	MaxAttempts int       `yaml:"max_attempts" json:"max_attempts,omitempty"`
	MaxCrashes  int       `yaml:"max_crashes" json:"max_crashes,omitempty"`
	MaxAge      *Duration `yaml:"max_age" json:"max_age,omitempty"` // 0: no limit
	Timeout     Duration  `yaml:"timeout" json:"timeout,omitempty"`
	Inline      *int      `yaml:"inline" json:"inline,omitempty"`
	OnExpire    string    `yaml:"on_expire" json:"on_expire,omitempty"` // dead (the default) or drop
	Backoff     *Backoff  `yaml:"backoff" json:"backoff,omitempty"`
	Classify    *Classify `yaml:"classify" json:"classify,omitempty"`
}

// Backoff is the delay before the next attempt. Which keys apply depends on Type.
type Backoff struct {
	// Type is exponential (the default), fixed, decorrelated or schedule.
	Type       string   `yaml:"type" json:"type,omitempty"`
	Base       Duration `yaml:"base" json:"base,omitempty"`             // exponential, decorrelated; 1s
	Multiplier float64  `yaml:"multiplier" json:"multiplier,omitempty"` // exponential; 2
	Max        Duration `yaml:"max" json:"max,omitempty"`               // exponential, decorrelated; 1h
	// Jitter of exponential. Defaults to full.
	Jitter   redrive.Jitter `yaml:"jitter" json:"jitter"`
	Spread   Duration       `yaml:"spread" json:"spread,omitempty"`     // of the plus-minus jitters
	Interval Duration       `yaml:"interval" json:"interval,omitempty"` // fixed
	Delays   []Duration     `yaml:"delays" json:"delays,omitempty"`     // schedule; the last one repeats
}

// Classify says what an error means, by matchers: an HTTP status ("404", "5xx"),
// "timeout", or "type:PATTERN".
type Classify struct {
	Permanent []string `yaml:"permanent" json:"permanent,omitempty"`
	Transient []string `yaml:"transient" json:"transient,omitempty"`
	Release   []string `yaml:"release" json:"release,omitempty"`
}

// Table returns the classifier; nil for nil.
func (c *Classify) Table() *redrive.Table {
	if c == nil {
		return nil
	}
	return &redrive.Table{Permanent: c.Permanent, Transient: c.Transient, Release: c.Release}
}

// PolicyRef is a policy: the name of one at the top level, or an inline one. The
// zero value is the default policy.
type PolicyRef struct {
	Name   string
	Inline *Policy
}

// IsZero reports whether no policy is given.
func (r PolicyRef) IsZero() bool { return r.Name == "" && r.Inline == nil }

// MarshalJSON writes the name, or the inline policy.
func (r PolicyRef) MarshalJSON() ([]byte, error) {
	if r.Inline != nil {
		return json.Marshal(r.Inline)
	}
	return json.Marshal(r.Name)
}

// Kind is what one kind of message has of its own.
type Kind struct {
	Policy PolicyRef `yaml:"policy" json:"policy,omitzero"`
}

// Rule ties a policy to the value of a header.
type Rule struct {
	// Match holds one pair: "header.NAME" and the value.
	Match  map[string]string `yaml:"match" json:"match"`
	Policy PolicyRef         `yaml:"policy" json:"policy"`
}

// Settings returns what the store must know about the queue.
func (q *Queue) Settings() driver.QueueSettings {
	return driver.QueueSettings{
		OrderByKey:  q.Order == "key",
		DeadRelease: q.OnDead == "release",
		Remember:    q.Remember.Std(),
	}
}

// PoliciesOf returns the policies of a queue. A queue that the configuration does
// not name has the defaults.
func (c *Config) PoliciesOf(queue string) engine.Policies {
	q := c.Queues[queue]
	if q == nil {
		return engine.Policies{}
	}
	base, _ := c.policy(q.Policy)
	if base.Classify == nil {
		base.Classify = q.Classify
	}
	out := engine.Policies{Default: base.convert(refName(q.Policy, queue))}
	if len(q.Kinds) > 0 {
		out.Kinds = make(map[string]redrive.Policy, len(q.Kinds))
	}
	for kind, k := range q.Kinds {
		if k == nil {
			k = &Kind{}
		}
		own, _ := c.policy(k.Policy)
		out.Kinds[kind] = base.overlay(own).convert(refName(k.Policy, queue+"/"+kind))
	}
	for _, r := range q.Rules {
		header, value := r.header()
		own, _ := c.policy(r.Policy)
		out.Rules = append(out.Rules, engine.Rule{Header: header, Value: value,
			Policy: base.overlay(own).convert(refName(r.Policy, queue+"/"+header+"="+value))})
	}
	return out
}

// refName is the name under which failures show a policy.
func refName(r PolicyRef, place string) string {
	switch {
	case r.Name != "":
		return r.Name
	case r.Inline != nil:
		return place
	}
	return ""
}

// policy returns what a reference stands for and whether it exists.
func (c *Config) policy(r PolicyRef) (Policy, bool) {
	switch {
	case r.Inline != nil:
		return *r.Inline, true
	case r.Name == "":
		return Policy{}, true
	}
	p := c.Policies[r.Name]
	if p == nil {
		_, ok := c.Policies[r.Name]
		return Policy{}, ok
	}
	return *p, true
}

// overlay returns p with what o sets of its own.
func (p Policy) overlay(o Policy) Policy {
	setIf(&p.MaxAttempts, o.MaxAttempts)
	setIf(&p.MaxCrashes, o.MaxCrashes)
	setIf(&p.MaxAge, o.MaxAge)
	setIf(&p.Timeout, o.Timeout)
	setIf(&p.Inline, o.Inline)
	setIf(&p.OnExpire, o.OnExpire)
	setIf(&p.Backoff, o.Backoff)
	setIf(&p.Classify, o.Classify)
	return p
}

func setIf[T comparable](to *T, v T) {
	var zero T
	if v != zero {
		*to = v
	}
}

func (p Policy) convert(name string) redrive.Policy {
	out := redrive.Policy{
		Name:        name,
		MaxAttempts: p.MaxAttempts,
		MaxCrashes:  p.MaxCrashes,
		Timeout:     p.Timeout.Std(),
		DropExpired: p.OnExpire == "drop",
	}
	if p.MaxAge != nil {
		out.MaxAge = p.MaxAge.Std()
	}
	if p.Inline != nil {
		out.Inline = *p.Inline
	}
	if p.Backoff != nil {
		out.Backoff = p.Backoff.convert()
	}
	if t := p.Classify.Table(); t != nil { // a nil *Table must not become a non-nil interface
		out.Classifier = t
	}
	return out
}

// header returns the header and value that a rule matches.
func (r Rule) header() (name, value string) {
	for k, v := range r.Match {
		return strings.TrimPrefix(k, headerPrefix), v
	}
	return "", ""
}

// headerPrefix begins the key of every match.
const headerPrefix = "header."
