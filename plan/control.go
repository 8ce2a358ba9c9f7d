package plan

import (
	"fmt"
	"math"
	"time"

	"github.com/redrive/redrive"
)

// Pace is how fast and how carefully a plan goes on.
type Pace struct {
	// Rate is how many messages are changed a second. 0: as before.
	Rate float64
	// Canary is how many messages it tries before the others; 0: none, and the plan stops by itself
	// no more. A plan that is past its canary begins another one. nil: as before.
	Canary *int
}

// set moves a plan to another state at somebody's wish. It returns false if it is
// there already, and [redrive.ErrState] if there is no way.
func (p *Plan) set(to State, now time.Time) (changed bool, err error) {
	switch {
	case p.State == to:
		return false, nil
	case p.State.Final():
		return false, &redrive.Error{Op: "plan", ID: p.ID, Err: fmt.Errorf("%w: the plan is %s", redrive.ErrState, p.State), Hint: "make a new plan"}
	}
	if p.State == Proposed && to != Cancelled {
		return false, &redrive.Error{Op: "plan", ID: p.ID, Err: fmt.Errorf("%w: the plan is %s", redrive.ErrState, p.State), Hint: "release it, or cancel it"}
	}
	if p.State == Stopped && to == Running && p.Canary != nil {
		p.Canary = p.begin(now)
	}
	if to == Running {
		p.Problem, p.Measured = "", Speed{}
	}
	p.State, p.UpdatedAt = to, now
	if to.Final() {
		p.EndedAt = now
	}
	return true, nil
}

// release lets a plan that was proposed run.
func (p *Plan) release(by string, now time.Time) error {
	switch {
	case p.State != Proposed:
		return &redrive.Error{Op: "plan", ID: p.ID, Err: fmt.Errorf("%w: the plan is %s", redrive.ErrState, p.State), Hint: "only what was proposed is released"}
	case by == p.Request.Actor:
		return invalid("a release by who proposed it", "have another release it")
	}
	p.State, p.ReleasedBy, p.ReleasedAt, p.UpdatedAt = Running, by, now, now
	if p.Canary != nil {
		p.Canary = p.begin(now)
	}
	return nil
}

// adjust gives a plan another pace. It returns false if it has that already.
func (p *Plan) adjust(pace Pace, now time.Time) (changed bool, err error) {
	switch c := pace.Canary; {
	case p.State.Final() && pace != (Pace{}):
		return false, &redrive.Error{Op: "plan", ID: p.ID, Err: fmt.Errorf("%w: the plan is %s", redrive.ErrState, p.State), Hint: "make a new plan"}
	case math.IsNaN(pace.Rate) || pace.Rate < 0 || pace.Rate > maxPlanRate:
		return false, invalid(fmt.Sprintf("a rate of %v/s", pace.Rate), fmt.Sprintf("use up to %v/s", maxPlanRate))
	case c != nil && (*c < 0 || *c > maxCanary):
		return false, invalid(fmt.Sprintf("a canary of %d", *c), fmt.Sprintf("use up to %d, or 0 for none", maxCanary))
	case c != nil && *c > 0 && !p.Lives():
		return false, invalid(fmt.Sprintf("a canary of a plan to %s", p.Request.Action), "leave it out: only what is delivered anew can be tried")
	}
	if pace.Rate != 0 && pace.Rate != p.Request.Rate {
		p.Request.Rate, p.Measured, changed = pace.Rate, Speed{}, true
	}
	if c := pace.Canary; c != nil && (*c != p.Request.Canary || p.Canary != nil && p.Canary.Stage != StageCanary) {
		p.Request.Canary, changed = *c, true
		switch {
		case *c == 0:
			p.Canary = nil
			p.finish(now)
		case p.Canary == nil || p.Canary.Stage != StageCanary:
			p.Canary = p.begin(now)
		}
	}
	if changed {
		p.UpdatedAt = now
	}
	return changed, nil
}

// begin is a canary of what the plan changes from now on, also of what it is about to change.
func (p *Plan) begin(now time.Time) *Canary {
	return &Canary{Stage: StageCanary, Since: now, Record: p.Records - p.Pending}
}
