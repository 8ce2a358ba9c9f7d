package engine_test

import (
	"context"
	"errors"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// errInjected is a fault that passes.
var errInjected = errors.New("injected fault")

// chaos is a store as one process sees it: calls are slow, fail before or after their
// effect, or fail for some items only, as the simulation's dice fall. When the
// process is dead, nothing of it has an effect any more. What really happens is reported
// to the history.
type chaos struct {
	driver.Store
	p *process
}

// trouble is what happens to one call.
type trouble struct{ before, after, partial error }

func (c *chaos) trouble() (t trouble) {
	s := c.p.sim
	if !s.faulty.Load() {
		return t
	}
	if s.roll(0.02 * s.severity) {
		s.sleep(3*time.Second, c.p)
	}
	if s.roll(0.001 * s.severity) {
		s.sleep(25*time.Second, c.p) // longer than a lease
	}
	switch {
	case s.away():
		t.before = errInjected
	case s.roll(0.01 * s.severity):
		t.before = errInjected
	case s.roll(0.01 * s.severity):
		t.before = redrive.ErrUnknown
	case s.roll(0.01 * s.severity):
		t.after = redrive.ErrUnknown
	case s.roll(0.02 * s.severity):
		t.partial = errInjected
	}
	return t
}

// do runs a call on the store while nothing else happens, unless the process is dead.
func (c *chaos) do(call func() error) error {
	c.p.sim.mu.Lock()
	defer c.p.sim.mu.Unlock()
	if c.p.dead {
		return redrive.ErrClosed
	}
	return call()
}

func (c *chaos) Claim(ctx context.Context, req driver.ClaimRequest) (ds []redrive.Delivery, err error) {
	t := c.trouble()
	if t.before != nil {
		return nil, t.before
	}
	err = c.do(func() error {
		ds, err = c.Store.Claim(ctx, req)
		for i := range ds {
			c.p.sim.history.claimed(&ds[i], req)
		}
		if t.after != nil {
			c.p.sim.history.lost(ds)
		}
		return err
	})
	if t.after != nil {
		return nil, t.after
	}
	return ds, err
}

func (c *chaos) Settle(ctx context.Context, batch []driver.Settlement) []error {
	t := c.trouble()
	if t.before != nil {
		return all(len(batch), t.before)
	}
	errs := make([]error, len(batch))
	var sent []driver.Settlement
	var at []int
	for i := range batch {
		if t.partial != nil && c.p.sim.roll(0.3) {
			errs[i] = t.partial
			continue
		}
		sent, at = append(sent, batch[i]), append(at, i)
	}
	if len(sent) == 0 {
		return errs
	}
	err := c.do(func() error {
		each := c.Store.Settle(ctx, sent)
		for i := range sent {
			if each != nil {
				errs[at[i]] = each[i]
			}
			if errs[at[i]] == nil {
				c.p.sim.history.settled(&sent[i])
			}
		}
		return nil
	})
	if err == nil {
		err = t.after
	}
	if err != nil {
		return all(len(batch), err)
	}
	return errs
}

func (c *chaos) Extend(ctx context.Context, rs []redrive.Receipt, lease time.Duration) (errs []error) {
	t := c.trouble()
	if t.before != nil {
		return all(len(rs), t.before)
	}
	err := c.do(func() error {
		errs = c.Store.Extend(ctx, rs, lease)
		return nil
	})
	if err == nil {
		err = t.after
	}
	if err != nil {
		return all(len(rs), err)
	}
	return errs
}

func (c *chaos) Wait(ctx context.Context, w []driver.Watch) ([]driver.Event, error) {
	events, err := c.Store.Wait(ctx, w)
	if t := c.trouble(); t.after != nil || t.partial != nil {
		return nil, errInjected // the event is lost; the next call has it again
	}
	return events, err
}
