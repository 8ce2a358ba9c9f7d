package engine

import (
	"time"

	"github.com/redrive/redrive"
)

// IsolateProcess makes the engine count as a process of its own, as far as suspects
// are concerned: tests run several in one.
func (e *Engine) IsolateProcess() { e.isolation = new(isolation) }

// ShareProcess makes two engines count as one process, apart from all others.
func (e *Engine) ShareProcess(other *Engine) { e.isolation = other.isolation }

// InFlight is how many deliveries the engine's process has in flight, as it reckons.
func (e *Engine) InFlight() int {
	e.isolation.mu.Lock()
	defer e.isolation.mu.Unlock()
	return e.isolation.active
}

// Compile returns the choice of policies as a consumer makes it.
func Compile(p *Policies) func(*redrive.Message) *redrive.Policy { return p.compile().of }

// MaxAge returns the age beyond which every message has expired.
func MaxAge(p *Policies) time.Duration { return p.compile().maxAge }
