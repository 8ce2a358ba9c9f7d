package daemon

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backlog"
	"github.com/redrive/redrive/delivery"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/daemon/publish"
)

// targetOf converts the target of a queue.
func targetOf(d *config.Deliver, policies *engine.Policies) (delivery.Target, error) {
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
// only policies classify then.
func statuses(p *engine.Policies) redrive.Table {
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
func longestTimeout(p *engine.Policies) time.Duration {
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
		if q.Deliver == nil || s.sources.awaits(name) {
			continue
		}
		var err error
		if q.Guard != nil {
			err = s.guardQueue(name, q)
		} else {
			var c *consumed
			if c, err = s.consumedBy(s.cfg, name, q.Deliver); err == nil {
				err = s.handle(name, c)
			}
		}
		if err != nil {
			return fmt.Errorf("queue %s: %w", name, err)
		}
	}
	return nil
}

// consumed is what takes a queue's messages.
type consumed struct {
	handler deliverer
	options engine.QueueOptions
}

// deliverer is what messages are handed to: an HTTP target or a broker.
type deliverer interface {
	redrive.Handler
	Target() string
	Gates() []driver.Gate
	Close()
}

// delivererOf builds what a queue delivers to. It connects to nothing yet.
func (s *Server) delivererOf(d *config.Deliver, policies *engine.Policies) (deliverer, error) {
	if d.Publish != "" {
		address, err := d.Publish.Resolve()
		if err != nil {
			return nil, fmt.Errorf("publish: %w", err)
		}
		timeout := d.Timeout.Std()
		if timeout == 0 {
			timeout = longestTimeout(policies)
		}
		return publish.New(publish.Target{Address: address, To: d.To, Allow: d.Allow, Timeout: timeout, Concurrency: d.Concurrency, Rate: d.Rate.PerSecond()})
	}
	target, err := targetOf(d, policies)
	if err != nil {
		return nil, err
	}
	return delivery.New(target, delivery.Options{Version: s.o.Version})
}

// consumedBy builds the delivery of a queue.
func (s *Server) consumedBy(cfg *config.Config, name string, d *config.Deliver) (*consumed, error) {
	policies := cfg.PoliciesOf(name)
	h, err := s.delivererOf(d, &policies)
	if err != nil {
		return nil, err
	}
	return &consumed{h, engine.QueueOptions{
		Concurrency: d.Concurrency, Policies: policies, Target: h.Target(), Gates: h.Gates(), Sources: s.sourcesOf(name),
		DeadLetters: s.deadLettersOf(name), Extractor: signer{s.app}, Breaker: cfg.BreakerOf(name),
	}}, nil
}

// handle hands one queue to the engine, in place of what consumed it before.
func (s *Server) handle(name string, c *consumed) error {
	if err := s.app.engine.Handle(name, s.traces.handler(c.handler), c.options); err != nil {
		return err
	}
	s.app.targets.set(name, c.handler.Target())
	s.closers.replace(name, c.handler.Close)
	return nil
}

// targets are where queues are delivered to, without secrets.
type targets struct {
	mu    sync.Mutex
	names map[string]string
}

func (t *targets) set(queue, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.names == nil {
		t.names = make(map[string]string)
	}
	if t.names[queue] = name; name == "" {
		delete(t.names, queue)
	}
}

func (t *targets) of(queue string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.names[queue]
}

func (t *targets) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.names)
}

// closers end what belongs to queues when the daemon ends, or when it is replaced.
type closers struct {
	mu   sync.Mutex
	all  map[string]func() // by queue
	rest []func()
}

// add takes what lasts as long as the daemon.
func (c *closers) add(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest = append(c.rest, f)
}

func (c *closers) replace(name string, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.all[name]; old != nil {
		old()
	}
	if c.all == nil {
		c.all = make(map[string]func())
	}
	c.all[name] = f
}

func (c *closers) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.all {
		f()
	}
	for _, f := range c.rest {
		f()
	}
}

// limitsOf converts backlog limits. deliver, which may be nil, is what drains the queue.
func limitsOf(l config.Limits, deliver *config.Deliver) backlog.Limits {
	return backlog.Limits{Depth: l.Depth, Bytes: int64(l.Bytes), Age: l.Age.Std(), Soft: float64(l.Soft), Rate: targetsRate(deliver)}
}

// targetsRate is how many messages a second targets take together at most; 0: it is not said.
func targetsRate(d *config.Deliver) (rate float64) {
	if d == nil {
		return 0
	}
	_, targets := d.Targets()
	for i := range targets {
		one := targets[i].Rate.PerSecond()
		if rate += one; one == 0 {
			return 0
		}
	}
	return rate
}
