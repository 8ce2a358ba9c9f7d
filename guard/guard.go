package guard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/guard/internal/machine"
)

// Guard wraps the calls of one or several providers. All methods are safe for
// concurrent use.
type Guard[Req, Resp any] struct {
	cfg       Config[Req, Resp]
	origin    time.Time // of the machines' time
	providers []*provider[Req, Resp]
	byName    map[string]*provider[Req, Resp]
	weights   int
	budget    *budget // nil: there is no second try
	keys      keys
	claims    claims
	deferred  counters
	failovers counter
	probeAsk  chan struct{}
}

// New returns a guard that takes all its providers for healthy. Its backlog is worked
// off by a consumer of its queue, with the guard as handler and
// [Guard.QueueOptions]; [Guard.Run] keeps its state. It returns an error for a
// configuration that makes no sense.
func New[Req, Resp any](c Config[Req, Resp]) (*Guard[Req, Resp], error) {
	c.Providers = slices.Clone(c.Providers)
	if err := c.check(); err != nil {
		return nil, err
	}
	g := &Guard[Req, Resp]{cfg: c, origin: time.Now(), byName: make(map[string]*provider[Req, Resp]), probeAsk: make(chan struct{}, 1)}
	for i := range c.Providers {
		p := &provider[Req, Resp]{Provider: c.Providers[i], index: i}
		if p.Weight == 0 {
			p.Weight = 1
		}
		g.weights += p.Weight
		p.tell = func(changes []machine.Transition) { g.tell(p, changes) }
		p.m = newMachine(c.machineConfig(&p.Provider))
		if c.Shared {
			p.joinAt = never
		}
		p.setShare(0, 1, p.joinAt)
		g.providers = append(g.providers, p)
		g.byName[p.Name] = p
	}
	if len(g.providers) > 1 || c.Retries > 0 {
		g.budget = &budget{share: max(c.Failover, 0), tokens: failoverRate}
	}
	return g, nil
}

// never is longer than a guard lives.
const never = 100 * 365 * 24 * time.Hour

// now is the machines' time.
func (g *Guard[Req, Resp]) now() time.Duration { return time.Since(g.origin) }

// Result is what a call came to: an answer, or a ticket for a later one.
type Result[Resp any] struct {
	Value    Resp
	Provider string // that answered; empty if the request was put off
	Attempts int
	Ticket   *Ticket[Resp] // nil: it was answered
}

// Deferred reports whether the request was put off.
func (r Result[Resp]) Deferred() bool { return r.Ticket != nil }

// Do sends a request with the first provider that takes it, or puts it off. It
// returns the provider's answer, with its error if the request itself was at fault
// (then the answer stands beside it); a result with a Ticket for a request that is
// durably queued; [UncertainError] for one that must not be repeated and whose effect
// is unknown; [ErrUnavailable] for one that may not be put off; [ErrNotQueued] where
// the queue refused it; or the error of ctx if the caller cancelled. While all is
// well it allocates nothing.
func (g *Guard[Req, Resp]) Do(ctx context.Context, req Req) (Result[Resp], error) {
	var d Deferral
	if g.cfg.Deferral != nil {
		d = g.cfg.Deferral(req)
	}
	if d.Key != "" && g.keyWaits(ctx, d.Key) {
		return g.putOff(ctx, req, d, "", reasonOrder, nil)
	}
	t := call[Req, Resp]{g: g, req: req, d: d}
	var order [maxProviders]uint8
	n := g.order(ctx, req, &order)
	if g.budget != nil {
		g.budget.earn(g.now())
	}
	t.all(ctx, order[:n])
	if t.answered {
		return t.result, t.err
	}
	if t.uncertain {
		return t.result, g.keepUncertain(ctx, req, d, t.sentTo, t.err)
	}
	if err := ctx.Err(); errors.Is(err, context.Canceled) {
		return t.result, err
	}
	reason := reasonRefused
	if t.result.Attempts > 0 {
		reason = reasonFailed
	}
	res, err := g.putOff(ctx, req, d, t.sentTo, reason, t.err)
	res.Attempts = t.result.Attempts
	return res, err
}

// order fills in the providers to be tried and returns how many.
func (g *Guard[Req, Resp]) order(ctx context.Context, req Req, order *[maxProviders]uint8) int {
	if g.cfg.Pick != nil {
		n := 0
		for _, name := range g.cfg.Pick(ctx, req) {
			if p, ok := g.byName[name]; ok && n < maxProviders {
				order[n] = uint8(p.index) //nolint:gosec // less than maxProviders
				n++
			}
		}
		return n
	}
	n := len(g.providers)
	for i := range n {
		order[i] = uint8(i)
	}
	if n == 1 {
		return 1
	}
	switch g.cfg.Order {
	case ByWeight:
		g.shuffle(order, n)
	case ByHealth:
		var share [maxProviders]float64
		now := g.now()
		for i, p := range g.providers {
			p.mu.Lock()
			share[i] = p.m.Stats(now).Share
			p.unlock()
		}
		for i := 1; i < n; i++ {
			for j := i; j > 0 && share[order[j]] > share[order[j-1]]; j-- {
				order[j], order[j-1] = order[j-1], order[j]
			}
		}
	}
	return n
}

// shuffle orders by chance, by the weights.
func (g *Guard[Req, Resp]) shuffle(order *[maxProviders]uint8, n int) {
	left := g.weights
	for i := range n - 1 {
		x := rand.IntN(left)
		j := i
		for x >= g.providers[order[j]].Weight {
			x -= g.providers[order[j]].Weight
			j++
		}
		left -= g.providers[order[j]].Weight
		order[i], order[j] = order[j], order[i]
	}
}

// Func returns the guard as a function like the one it wraps; a request that was put
// off is a [DeferredError].
func (g *Guard[Req, Resp]) Func() Call[Req, Resp] {
	return func(ctx context.Context, req Req) (Resp, error) {
		res, err := g.Do(ctx, req)
		if err == nil && res.Deferred() {
			err = &DeferredError{Ref: res.Ticket.Ref()}
		}
		return res.Value, err
	}
}

// Force sets the state of a provider. Down, Limited and Isolated end after d, by
// default after an hour; a provider that was isolated is then probed.
func (g *Guard[Req, Resp]) Force(name string, s State, d time.Duration) error {
	p, ok := g.byName[name]
	if !ok {
		return fmt.Errorf("guard %s: %w: no provider %q", g.cfg.Name, redrive.ErrNotFound, name)
	}
	if s < Healthy || s > Isolated || d < 0 {
		return fmt.Errorf("guard %s: %w: state %q for %s", g.cfg.Name, redrive.ErrInvalid, s, d)
	}
	if d == 0 {
		d = time.Hour
	}
	p.mu.Lock()
	defer p.unlock()
	p.m.Force(g.now(), s, d, "forced")
	return nil
}

// tell passes changes of state on.
func (g *Guard[Req, Resp]) tell(p *provider[Req, Resp], changes []machine.Transition) {
	for _, c := range changes {
		if c.From == c.To {
			g.cfg.Logger.Debug("the provider is still "+c.To.String(), "guard", g.cfg.Name, "provider", p.Name, "reason", c.Reason)
			continue
		}
		g.cfg.Logger.Warn("provider "+c.To.String(), "guard", g.cfg.Name, "provider", p.Name, "from", c.From.String(), "reason", c.Reason)
		g.event(Event{Guard: g.cfg.Name, Provider: p.Name, At: g.origin.Add(c.At), From: c.From, To: c.To, Reason: c.Reason})
	}
	g.poke()
}

// event tells of an event. A panic there must not end a call that was just let through.
func (g *Guard[Req, Resp]) event(e Event) {
	defer func() {
		if r := recover(); r != nil {
			g.cfg.Logger.Error("OnEvent failed", "guard", g.cfg.Name, "panic", r)
		}
	}()
	g.cfg.OnEvent(e)
}
