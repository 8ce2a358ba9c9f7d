package guard

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/guard/internal/machine"
)

// Spaces of the records that a guard keeps in its store.
const (
	stateSpace    = "guard.states"    // by guard and provider
	instanceSpace = "guard.instances" // by guard and instance
	probeSpace    = "guard.probes"    // by guard and provider: who probes
)

// How often the store is looked at, how long an instance is known that no longer looks,
// and how long a new one waits until all others have counted it.
const (
	syncEvery    = time.Second
	instanceLife = 5 * time.Second
	joinWait     = 3 * time.Second
)

// The lease of a probe runs longer than what is done under it.
const (
	probeLease  = 5 * time.Second
	probeMargin = 500 * time.Millisecond
)

// stateRecord is the state of a provider as a record.
type stateRecord struct {
	machine.Saved
	Instance string    `json:"instance"`
	At       time.Time `json:"at"` // by the store's clock
}

// Run keeps the guard's state in its store until ctx ends, so that a restart does not
// forget it, and shares it with other instances if the configuration says so. With
// Config.Shared, no provider with a MaxRate is called before it runs. A store that
// fails is asked again; meanwhile each instance decides for itself.
func (g *Guard[Req, Resp]) Run(ctx context.Context) error {
	if g.cfg.Store == nil {
		<-ctx.Done()
		return nil
	}
	if err := g.loadKeys(ctx); err != nil {
		g.cfg.Logger.Error("the keys that wait could not be read", "guard", g.cfg.Name, "error", err)
	}
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for first := true; ; {
		if err := g.sync(ctx, first); err == nil {
			first = false
		} else if ctx.Err() == nil {
			g.cfg.Logger.Error("the guard's state could not be kept", "guard", g.cfg.Name, "error", err)
		}
		select {
		case <-ctx.Done():
			g.leave(context.WithoutCancel(ctx))
			return nil
		case <-tick.C:
		case <-g.probeAsk:
		}
	}
}

// poke has the state kept soon.
func (g *Guard[Req, Resp]) poke() {
	select {
	case g.probeAsk <- struct{}{}:
	default:
	}
}

// sync reads and writes the records of all providers. first says that nothing was read
// before, so what is found is ours.
func (g *Guard[Req, Resp]) sync(ctx context.Context, first bool) error {
	at, err := g.cfg.Store.Now(ctx)
	if err != nil {
		return err
	}
	if g.cfg.Shared {
		if err := g.join(ctx, first); err != nil {
			return err
		}
	}
	for _, p := range g.providers {
		if err := g.read(ctx, p, at, first); err != nil {
			return err
		}
		if err := g.write(ctx, p, at); err != nil {
			return err
		}
		if g.cfg.Shared {
			if err := g.lease(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// join shows this instance to the others and takes its part of the rates.
func (g *Guard[Req, Resp]) join(ctx context.Context, first bool) error {
	prefix := g.cfg.Name + "/"
	list, err := g.cfg.Store.ListRecords(ctx, instanceSpace, prefix, redrive.MaxPage)
	if err != nil {
		return err
	}
	others := 0
	for _, r := range list {
		if id, ok := strings.CutPrefix(r.Key, prefix); ok && id != g.cfg.Instance {
			others++
		}
	}
	_, err = g.cfg.Store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{{Space: instanceSpace, Key: prefix + g.cfg.Instance,
		Value: []byte("{}"), Version: driver.AnyVersion, Expires: instanceLife}}})
	if err != nil {
		return err
	}
	for _, p := range g.providers {
		p.mu.Lock()
		from, now := p.joinAt, g.now()
		if first {
			from = now
			if others > 0 {
				from += joinWait
			}
		}
		p.setShare(now, 1/float64(others+1), from)
		p.unlock()
	}
	return nil
}

// leave gives this instance's part of the rates back.
func (g *Guard[Req, Resp]) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	at, err := g.cfg.Store.Now(ctx)
	for _, p := range g.providers {
		if err == nil {
			err = g.write(ctx, p, at)
		}
	}
	if err == nil && g.cfg.Shared {
		_, err = g.cfg.Store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{{Space: instanceSpace,
			Key: g.cfg.Name + "/" + g.cfg.Instance, Version: driver.AnyVersion}}})
	}
	if err != nil {
		g.cfg.Logger.Error("the guard's state could not be kept", "guard", g.cfg.Name, "error", err)
	}
}

// read takes the state that a record tells, if it is ours from before or another's
// that is newer.
func (g *Guard[Req, Resp]) read(ctx context.Context, p *provider[Req, Resp], at time.Time, first bool) error {
	if !first && !g.cfg.Shared {
		return nil
	}
	r, err := g.cfg.Store.GetRecord(ctx, stateSpace, g.cfg.Name+"/"+p.Name)
	if errors.Is(err, redrive.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var s stateRecord
	if err := json.Unmarshal(r.Value, &s); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.unlock()
	if r.Version == p.version {
		return nil
	}
	p.version = r.Version
	if s.Instance == g.cfg.Instance {
		return nil
	}
	now, elapsed := g.now(), max(at.Sub(s.At), 0)
	mine := p.m.Save(now)
	if !first {
		shut := func(s State) bool { return s == Down || s == Isolated }
		both := s.State == Down && mine.State == Down // then its hold counts, as it ends with a probe
		if !both && (s.State == mine.State || s.Age+elapsed >= mine.Age || !shut(s.State) && !shut(mine.State)) {
			return nil
		}
		if !shut(s.State) { // what another has tried out is tried here by our own share
			s.State = Recovering
		}
	}
	p.m.Restore(now, s.Saved, elapsed)
	p.restored = p.m.Changed()
	return nil
}

// write keeps the state if it has changed.
func (g *Guard[Req, Resp]) write(ctx context.Context, p *provider[Req, Resp], at time.Time) error {
	p.mu.Lock()
	dirty, version := p.dirty, p.version
	if !g.cfg.Shared {
		version = driver.AnyVersion
	}
	s := stateRecord{Saved: p.m.Save(g.now()), Instance: g.cfg.Instance, At: at}
	p.dirty = false
	p.unlock()
	if !dirty {
		return nil
	}
	value, err := json.Marshal(s)
	if err == nil {
		_, err = g.cfg.Store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{{Space: stateSpace, Key: g.cfg.Name + "/" + p.Name,
			Value: value, Version: version}}})
	}
	if err == nil {
		var r driver.Record
		if r, err = g.cfg.Store.GetRecord(ctx, stateSpace, g.cfg.Name+"/"+p.Name); err == nil {
			p.mu.Lock()
			p.version = r.Version
			p.mu.Unlock()
			return nil
		}
	}
	p.mu.Lock()
	p.dirty = true
	p.mu.Unlock()
	if errors.Is(err, redrive.ErrVersion) { // another was faster: it is read next time
		return nil
	}
	return err
}

// lease asks for the right to probe a provider that is down.
func (g *Guard[Req, Resp]) lease(ctx context.Context, p *provider[Req, Resp]) error {
	now := g.now()
	p.mu.Lock()
	due, down := p.m.ProbeDue(now)
	p.unlock()
	if !down || due > now+syncEvery {
		return nil
	}
	life := max(due-now, 0) + probeLease
	_, err := g.cfg.Store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{{Space: probeSpace, Key: g.cfg.Name + "/" + p.Name,
		Value: []byte(`"` + g.cfg.Instance + `"`), Expires: life}}})
	switch {
	case errors.Is(err, redrive.ErrVersion):
		return nil
	case err != nil:
		return err
	}
	p.mu.Lock()
	p.m.Lend(now + life - probeMargin)
	p.mu.Unlock()
	return nil
}
