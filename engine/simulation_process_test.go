package engine_test

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/engine"
)

// process is an engine with its own view of the store. It can die.
type process struct {
	sim    *simulation
	name   string
	engine *engine.Engine
	cancel context.CancelFunc
	done   chan struct{}
	err    error // of Run, once it is done
	killed chan struct{}
	dead   bool // under the simulation's lock
}

var errKilled = errors.New("the process was killed")

// boot starts a process.
func (s *simulation) boot() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.booted++
	p := &process{sim: s, name: "process-" + strconv.Itoa(s.booted), killed: make(chan struct{}), done: make(chan struct{})}
	p.engine = engine.New(&chaos{Store: s.store, p: p}, engine.Options{Instance: p.name, Grace: 2 * time.Second})
	p.engine.IsolateProcess()
	policy := engine.Policies{Default: redrive.Policy{MaxAttempts: simAttempts, MaxCrashes: simCrashes, Timeout: 4 * time.Second,
		Backoff: redrive.Exponential{Base: 500 * time.Millisecond, Max: 10 * time.Second}}}
	for _, queue := range []string{queuePlain, queueOrdered, queueEmitted, queueResults} {
		o := engine.QueueOptions{Concurrency: s.concurrency, Lease: s.lease, Target: s.target, Policies: policy}
		if err := p.engine.Handle(queue, redrive.HandlerFunc(p.handle), o); err != nil {
			s.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	s.processes = append(s.processes, p)
	go func() {
		p.err = p.engine.Run(ctx)
		close(p.done)
	}()
}

// kill lets a process die at once of a message: what it had claimed is lost to it.
func (p *process) kill(of redrive.Ref) {
	s := p.sim
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.dead {
		return
	}
	p.dead = true
	s.kills++
	s.history.killed(p.name, of)
	s.store.Crash(p.name)
	close(p.killed)
	p.cancel()
	p.gone()
}

// stop shuts a process down in good order, which must succeed if no fault is left.
func (p *process) stop(quiet bool) {
	s := p.sim
	p.cancel()
	<-p.done
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.dead {
		return
	}
	p.dead = true
	if p.err != nil && quiet {
		s.t.Errorf("%s: %v", p.name, p.err)
	}
	if n := p.engine.InFlight(); n != 0 && p.err == nil {
		s.t.Errorf("%s: %d in flight after Run returned", p.name, n)
	}
	s.store.Crash(p.name) // nothing may be left to it, unless the store was away
	close(p.killed)
	p.gone()
}

// gone takes the process off the list and has another one take its place.
func (p *process) gone() {
	s := p.sim
	for i, o := range s.processes {
		if o == p {
			s.processes = append(s.processes[:i], s.processes[i+1:]...)
			break
		}
	}
	if !s.over {
		delay := time.Duration(s.rnd.IntN(2000)) * time.Millisecond
		time.AfterFunc(delay, s.boot)
	}
}

// sleep ends early when the process dies.
func (p *process) sleep(d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-p.killed:
		return errKilled
	}
}

// handle behaves as the message's body says.
func (p *process) handle(ctx context.Context, d *redrive.Delivery) error {
	behaviour, times, _ := strings.Cut(string(d.Body), " ")
	n, _ := strconv.Atoi(times)
	if err := p.sleep(p.sim.someTime(200 * time.Millisecond)); err != nil {
		return err
	}
	first := d.Failures < n // what it does at first
	switch behaviour {
	case "fail":
		if first {
			return errSick
		}
	case "permanent":
		return redrive.Permanent(errSick)
	case "panic":
		if first {
			panic("simulated")
		}
	case "goexit":
		if first {
			runtime.Goexit()
		}
	case "hang":
		if first {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-p.killed:
				return errKilled
			}
		}
	case "deaf":
		if first {
			return p.sleep(15 * time.Second) // nil, but far too late
		}
	case "slow":
		return p.sleep(3 * time.Second)
	case "release":
		if p.sim.roll(0.5) {
			return redrive.Uncounted(errSick, p.sim.someTime(5*time.Second))
		}
	case "repeat":
		if d.Generation < n {
			return redrive.RepeatAfter(p.sim.someTime(5 * time.Second))
		}
	case "emit":
		for range 2 {
			if err := redrive.Emit(ctx, redrive.Message{Queue: queueEmitted, Body: []byte("ok")}); err != nil {
				return err
			}
		}
		if first {
			return errSick
		}
	case "poison":
		p.kill(d.Ref())
		return errKilled
	}
	return nil
}
