package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Policies are the policies of a queue's messages: by rules on headers first, then by
// kind ([redrive.WithPolicy] beside the handler, or Kinds), then the default.
type Policies struct {
	Default redrive.Policy
	// Kinds is for handlers that are not registered by kind, and for configuration. A
	// kind that nobody handles, or whose handler has a policy of its own, is an error.
	Kinds map[string]redrive.Policy
	Rules []Rule // the first that matches wins
}

// Rule ties a policy to the value of a header.
type Rule struct {
	Header string
	Value  string
	Policy redrive.Policy
}

// policySet is policies with their defaults filled in, and what stands beside the
// handlers. It is never changed.
type policySet struct {
	def    redrive.Policy
	kinds  map[string]*redrive.Policy
	rules  []Rule
	limits []kindLimit
	// maxAge is the longest age of all policies, or 0 if one of them has none: what is
	// older has expired whatever policy applies to it.
	maxAge time.Duration
}

// kindLimit bounds how many messages of some kinds are handled at once.
type kindLimit struct {
	kinds []string
	max   int
}

// compile fills in the defaults. Later changes of p have no effect on it.
func (p *Policies) compile() *policySet {
	s := &policySet{def: p.Default.WithDefaults(), kinds: make(map[string]*redrive.Policy, len(p.Kinds)), rules: slices.Clone(p.Rules)}
	for kind, own := range p.Kinds {
		own = own.WithDefaults()
		s.kinds[kind] = &own
	}
	for i := range s.rules {
		s.rules[i].Policy = s.rules[i].Policy.WithDefaults()
	}
	s.maxAge = s.longestAge()
	return s
}

// Of returns the policy of a message, without what stands beside the handlers.
func (p *Policies) Of(m *redrive.Message) redrive.Policy { return *p.compile().of(m) }

// newPolicySet returns what p says, and r if it is not nil.
func newPolicySet(p *Policies, r driver.Registry) (*policySet, error) {
	s := p.compile()
	if r != nil {
		if err := s.add(r); err != nil {
			return nil, err
		}
		s.maxAge = s.longestAge()
	}
	for _, one := range s.all() {
		if err := one.Check(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// add takes what stands beside the handlers.
func (s *policySet) add(r driver.Registry) error {
	if err := r.Err(); err != nil {
		return err
	}
	handled, all := r.Kinds()
	for kind := range s.kinds {
		if !all && !slices.Contains(handled, kind) {
			return fmt.Errorf("%w policy: no handler for kind %q", redrive.ErrInvalid, kind)
		}
	}
	for _, kind := range handled {
		reg := r.Lookup(kind)
		if err := s.addKind(kind, reg); err != nil {
			return err
		}
		if reg.Concurrency > 0 && reg.Kinds[0] == kind {
			s.limits = append(s.limits, kindLimit{kinds: reg.Kinds, max: reg.Concurrency})
		}
	}
	return nil
}

func (s *policySet) addKind(kind string, reg *redrive.Registration) error {
	set := s.kinds[kind]
	switch {
	case reg.Policy != nil && set != nil:
		return fmt.Errorf("%w policy: kind %q has one beside its handler and one in the options", redrive.ErrInvalid, kind)
	case reg.Policy != nil:
		own := reg.Policy.WithDefaults()
		set = &own
	case reg.Timeout == 0:
		return nil
	case set == nil:
		own := s.def
		set = &own
	}
	if reg.Timeout > 0 {
		set.Timeout = reg.Timeout
	}
	s.kinds[kind] = set
	return nil
}

// of returns the policy of a message.
func (s *policySet) of(m *redrive.Message) *redrive.Policy {
	for i := range s.rules {
		if v, ok := m.Headers.Get(s.rules[i].Header); ok && v == s.rules[i].Value {
			return &s.rules[i].Policy
		}
	}
	if own, ok := s.kinds[m.Kind]; ok {
		return own
	}
	return &s.def
}

func (s *policySet) all() []*redrive.Policy {
	all := []*redrive.Policy{&s.def}
	for _, own := range s.kinds {
		all = append(all, own)
	}
	for i := range s.rules {
		all = append(all, &s.rules[i].Policy)
	}
	return all
}

func (s *policySet) longestAge() (longest time.Duration) {
	for _, one := range s.all() {
		if one.MaxAge == 0 {
			return 0
		}
		longest = max(longest, one.MaxAge)
	}
	return longest
}

// limit returns the limit that a kind is under, or nil.
func (s *policySet) limit(kind string) *kindLimit {
	for i := range s.limits {
		if slices.Contains(s.limits[i].kinds, kind) {
			return &s.limits[i]
		}
	}
	return nil
}
