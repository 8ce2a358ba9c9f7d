package server

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/config"
	"github.com/redrive/redrive/delivery"
)

// targetOf converts the target of a queue.
func targetOf(d *config.Deliver, policies *redrive.Policies) (delivery.Target, error) {
	t := delivery.Target{
		URL: d.URL, Timeout: d.Timeout.Std(), Concurrency: d.Concurrency, Rate: d.Rate.PerSecond(),
		AllowPrivate: d.AllowPrivate, MaxResponse: int(d.MaxResponse), Statuses: statuses(policies),
	}
	if t.Timeout == 0 {
		t.Timeout = longestTimeout(policies) // the policy of the message decides
	}
	for _, s := range d.SigningSecrets() {
		t.Secrets = append(t.Secrets, s.Reference())
	}
	if len(d.Headers) > 0 {
		t.Headers = make(map[string]string, len(d.Headers))
	}
	for name, value := range d.Headers {
		t.Headers[name] = value.Reference()
	}
	for _, text := range d.AllowCIDRs {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return t, fmt.Errorf("%w network %q", redrive.ErrInvalid, text)
		}
		t.AllowCIDRs = append(t.AllowCIDRs, p)
	}
	return t, nil
}

// statuses returns the table by which the target itself classifies. Where kinds or
// rules have tables of their own it is empty, as the target does not know kinds; the
// policies then classify alone.
func statuses(p *redrive.Policies) redrive.Table {
	table, ok := p.Default.Classifier.(*redrive.Table)
	if !ok {
		return redrive.Table{}
	}
	same := func(o *redrive.Policy) bool { return o.Classifier == nil || o.Classifier == redrive.Classifier(table) }
	for _, k := range p.Kinds {
		if !same(&k) {
			return redrive.Table{}
		}
	}
	for i := range p.Rules {
		if !same(&p.Rules[i].Policy) {
			return redrive.Table{}
		}
	}
	return *table
}

// longestTimeout returns the longest timeout of all policies: the shorter one of
// target and policy wins, and it shall be the policy's.
func longestTimeout(p *redrive.Policies) time.Duration {
	longest := p.Default.WithDefaults().Timeout
	for _, k := range p.Kinds {
		longest = max(longest, k.WithDefaults().Timeout)
	}
	for i := range p.Rules {
		longest = max(longest, p.Rules[i].Policy.WithDefaults().Timeout)
	}
	return longest
}

// consume hands every queue that has a target to the engine, and tells the store what
// it must know about each.
func (s *Server) consume(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(s.cfg.Queues)) {
		q := s.cfg.Queues[name]
		if q == nil {
			q = &config.Queue{}
		}
		if err := s.app.store.Configure(ctx, name, q.Settings()); err != nil {
			return fmt.Errorf("queue %s: %w", name, err)
		}
		if q.Deliver == nil {
			continue
		}
		var err error
		if q.Guard != nil {
			err = s.guardQueue(name, q)
		} else {
			err = s.deliver(name, q.Deliver)
		}
		if err != nil {
			return fmt.Errorf("queue %s: %w", name, err)
		}
	}
	return nil
}

// deliver hands one queue to the engine.
func (s *Server) deliver(name string, d *config.Deliver) error {
	policies := s.cfg.PoliciesOf(name)
	target, err := targetOf(d, &policies)
	if err != nil {
		return err
	}
	h, err := delivery.New(target, delivery.Options{Version: s.o.Version})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, h.Close)
	s.app.targets[name] = h.Target()
	return s.app.engine.Handle(name, h, redrive.QueueOptions{
		Concurrency: d.Concurrency, Policy: policies.Func(), MaxAge: policies.MaxAge(), Target: h.Target(), Gates: h.Gates(),
	})
}

// limitsOf converts watermarks.
func limitsOf(l config.Limits) redrive.Limits {
	return redrive.Limits{Depth: l.Depth, Bytes: int64(l.Bytes), Age: l.Age.Std(), Soft: float64(l.Soft)}
}
