package redrive

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// PlanRequest asks for a change of many dead letters at a pace.
type PlanRequest struct {
	// Action is [ActRedrive], [ActDrop] or [ActArchive].
	Action Action `json:"action"`
	// Query selects what is changed; the zero Query selects all dead letters. Its State
	// defaults to [StateDead]; ActDrop may also be asked for [StateWaiting]. After,
	// Limit and Bodies are ignored, Plan and NotPlan must be empty.
	Query Query `json:"query"`
	// Refs names what is changed, instead of Query. A record must hold them: about
	// a thousand fit. They are kept until the plan ends.
	Refs []Ref `json:"-"`
	// To, NewID, ConfirmUncertain and MaxRedrives are those of [Change].
	To               string `json:"to,omitempty"`
	NewID            bool   `json:"new_id,omitempty"`
	ConfirmUncertain bool   `json:"confirm_uncertain,omitempty"`
	MaxRedrives      int    `json:"max_redrives,omitempty"`
	// Rate is how many messages are changed a second. Defaults to 100.
	Rate float64 `json:"rate"`
	// Actor is who asked, for the record. Optional.
	Actor string `json:"actor,omitempty"`
}

// Defaults and bounds of plans.
const (
	DefaultPlanRate = 100.0

	maxPlanRate   = 100_000.0
	maxPlanErrors = 16 // kinds of errors counted apart
	planReserve   = 8 << 10
	planBatches   = 4 // a second
	planBatch     = 500
	planNamed     = 32 // a batch of names, which are looked at with their bodies
)

// check reports a request that no plan can carry out, and fills in defaults.
func (r *PlanRequest) check() error {
	invalid := func(what, hint string) error {
		return &Error{Op: "plan", Err: fmt.Errorf("%w plan: %s", ErrInvalid, what), Hint: hint}
	}
	switch r.Action {
	case ActRedrive, ActDrop, ActArchive:
	default:
		return invalid("action "+r.Action.String(), "use redrive, drop or archive")
	}
	if r.Query.State == 0 {
		r.Query.State = StateDead
	}
	named := r.Query
	r.Query.After, r.Query.Limit, r.Query.Bodies = "", 0, false
	switch {
	case r.Query.State != StateDead && (r.Action != ActDrop || r.Query.State != StateWaiting):
		return invalid(fmt.Sprintf("%s of messages that are %s", r.Action, r.Query.State), "only dead letters can be redriven or archived; waiting messages can be dropped")
	case r.Query.Plan != "" || r.Query.NotPlan != "":
		return invalid("a filter on plans", "leave plan and not-plan empty; the plan sets them itself")
	case len(r.Refs) > 0 && (named != Query{State: named.State}):
		return invalid("both names and a filter", "give one of them")
	case r.Action != ActRedrive && (r.To != "" || r.NewID || r.ConfirmUncertain || r.MaxRedrives != 0):
		return invalid("options of a redrive with another action", "leave to, new-id, confirm-uncertain and max-redrives empty")
	case r.MaxRedrives < 0:
		return invalid(fmt.Sprintf("at most %d redrives", r.MaxRedrives), "use 0 for no limit, or more")
	case math.IsNaN(r.Rate) || r.Rate < 0 || r.Rate > maxPlanRate:
		return invalid(fmt.Sprintf("a rate of %v/s", r.Rate), fmt.Sprintf("use up to %v/s, or 0 for %v/s", maxPlanRate, DefaultPlanRate))
	case len(r.Actor) > MaxKeyLength || !printable(r.Actor):
		return invalid("actor", "an actor is at most 256 bytes of printable UTF-8")
	}
	if r.Rate == 0 {
		r.Rate = DefaultPlanRate
	}
	for _, queue := range []string{r.To, r.Query.Queue} {
		if queue == "" {
			continue
		}
		if err := CheckQueue(queue); err != nil {
			return &Error{Op: "plan", Err: err}
		}
	}
	for _, ref := range r.Refs {
		if err := errors.Join(CheckQueue(ref.Queue), CheckID(ref.ID)); err != nil {
			return &Error{Op: "plan", Err: fmt.Errorf("name %q: %w", ref, err), Hint: "a name is QUEUE/ID"}
		}
	}
	return nil
}

// PlanState is where a plan stands.
type PlanState uint8

// The states. The last three are final.
const (
	PlanRunning   PlanState = iota + 1 // changes messages, or waits for a runner
	PlanPaused                         // until it is resumed
	PlanDone                           // nothing was left to change
	PlanCancelled                      // by a person; what was changed stays changed
	PlanFailed                         // it cannot be carried out; see Plan.Problem
)

var planStateNames = []string{"", "running", "paused", "done", "cancelled", "failed"}

// String returns the state in lower case.
func (s PlanState) String() string { return enumName(planStateNames, s) }

// MarshalText implements encoding.TextMarshaler.
func (s PlanState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *PlanState) UnmarshalText(b []byte) (err error) {
	*s, err = parseEnum[PlanState](planStateNames, string(b), "plan state")
	return err
}

// Final reports whether the state is one that does not change any more.
func (s PlanState) Final() bool { return s >= PlanDone }

// Plan is a change of many messages: a durable record of what was asked and how far
// it got. It touches each message at most once: only what had died by the Cutoff is
// changed, and a dead letter that it redrove and that died again has died after it.
// All times are by the store's clock.
type Plan struct {
	ID      string      `json:"id"`
	Request PlanRequest `json:"request"`
	State   PlanState   `json:"state"`
	// Cutoff is frozen when the plan is made.
	Cutoff time.Time `json:"cutoff"`
	// Total is how many messages matched when the plan was made; TotalMore says that
	// there were more than were counted.
	Total     int64 `json:"total"`
	TotalMore bool  `json:"total_more,omitempty"`
	// Done and Failed count what was changed and what was refused. After a crash of its
	// runner they may lack one batch.
	Done   int64 `json:"done"`
	Failed int64 `json:"failed"`
	// Errors counts the refusals by kind: loop, uncertain, not_found, state, conflict,
	// or the error's masked text.
	Errors map[string]int64 `json:"errors,omitempty"`
	// Problem is why the plan failed, or what keeps it from going on at the moment.
	Problem   string    `json:"problem,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`

	// Cursor is how far the runner got: a position of the store, or a number of names.
	Cursor string `json:"cursor,omitempty"`
	Named  int    `json:"named,omitempty"`

	version int64 // of the record
}

// newPlan makes a running plan of a checked request.
func newPlan(id string, r *PlanRequest, now time.Time) Plan {
	p := Plan{ID: id, Request: *r, State: PlanRunning, Cutoff: now, CreatedAt: now, UpdatedAt: now}
	if until := r.Query.Until; !until.IsZero() && until.Before(now) {
		p.Cutoff = until
	}
	return p
}

// query returns what the plan still selects, from its cursor on.
func (p *Plan) query(limit int) Query {
	q := p.Request.Query
	q.Until, q.After, q.Limit = p.Cutoff, p.Cursor, limit
	if p.Request.Action == ActRedrive {
		q.NotPlan = p.ID
	}
	return q
}

func (p *Plan) change() Change {
	r := &p.Request
	c := Change{Action: r.Action, To: r.To, NewID: r.NewID, MaxRedrives: r.MaxRedrives, ConfirmUncertain: r.ConfirmUncertain}
	if r.Action == ActRedrive {
		c.Plan = p.ID
	}
	return c
}

// batch is how many messages are changed in one step: several steps a second, so that
// the rate is even and a pause takes effect soon.
func (p *Plan) batch() int {
	most := planBatch
	if len(p.Request.Refs) > 0 {
		most = planNamed
	}
	return int(min(max(math.Ceil(p.Request.Rate/planBatches), 1), float64(most)))
}

// pace is how long a number of changes takes at the plan's rate.
func (p *Plan) pace(n int) time.Duration {
	return duration(float64(n) / p.Request.Rate * float64(time.Second))
}

// progress is what one step of a runner did.
type progress struct {
	fromCursor string // where the step began
	fromNamed  int
	results    []Updated
	cursor     string // of the next step
	named      int    // names worked on
	end        bool   // nothing is left
}

// advance adds a step. A plan that was paused or cancelled meanwhile keeps its state,
// but what was done is counted. If another runner, whose lease had run out, took the
// same step, the place stays as it is, and only what surely counts once is counted.
func (p *Plan) advance(g *progress, now time.Time) {
	first := p.Cursor == g.fromCursor && p.Named == g.fromNamed
	for i := range g.results {
		err := g.results[i].Err
		switch {
		case err == nil && (first || g.named == 0):
			p.Done++
		case err != nil && first:
			p.Failed++
			p.countError(err)
		}
	}
	p.UpdatedAt, p.Problem = now, ""
	if !first {
		return
	}
	p.Cursor, p.Named = g.cursor, g.fromNamed+g.named
	if g.end && !p.State.Final() {
		p.State, p.EndedAt = PlanDone, now
	}
}

func (p *Plan) countError(err error) {
	kind := errorKind(err)
	if p.Errors == nil {
		p.Errors = make(map[string]int64, 1)
	}
	if _, ok := p.Errors[kind]; !ok && len(p.Errors) >= maxPlanErrors {
		kind = "other"
	}
	p.Errors[kind]++
}

// errorKind is the short name of a refusal.
func errorKind(err error) string {
	for _, k := range []struct {
		err  error
		name string
	}{{ErrLoop, "loop"}, {ErrUncertain, "uncertain"}, {ErrNotFound, "not_found"}, {ErrState, "state"},
		{ErrConflict, "conflict"}, {ErrDuplicate, "conflict"}} {
		if errors.Is(err, k.err) {
			return k.name
		}
	}
	return cleanText(MaskMessage(err.Error()), 200)
}

// set moves a plan to another state at somebody's wish. It returns false if it is
// there already, and [ErrState] if there is no way.
func (p *Plan) set(to PlanState, now time.Time) (changed bool, err error) {
	switch {
	case p.State == to:
		return false, nil
	case p.State.Final():
		return false, &Error{Op: "plan", ID: p.ID, Err: fmt.Errorf("%w: the plan is %s", ErrState, p.State), Hint: "make a new plan"}
	}
	p.State, p.UpdatedAt = to, now
	if to.Final() {
		p.EndedAt = now
	}
	return true, nil
}

// planRecord is a plan as it is stored, with names in short.
type planRecord struct {
	Plan
	Refs []string `json:"refs,omitempty"`
}

func encodePlan(p *Plan) ([]byte, error) {
	r := planRecord{Plan: *p}
	for _, ref := range p.Request.Refs {
		r.Refs = append(r.Refs, ref.String())
	}
	b, err := json.Marshal(&r)
	if err != nil {
		return nil, fmt.Errorf("plan %s: %w", p.ID, err)
	}
	return b, nil
}

func decodePlan(r *Record) (Plan, error) {
	var p planRecord
	if err := json.Unmarshal(r.Value, &p); err != nil {
		return Plan{}, &Error{Op: "plan", ID: r.Key, Err: fmt.Errorf("%w: record of a plan: %w", ErrCorrupt, err)}
	}
	for _, name := range p.Refs {
		queue, id, _ := strings.Cut(name, "/")
		p.Request.Refs = append(p.Request.Refs, Ref{Queue: queue, ID: id})
	}
	p.version = r.Version
	return p.Plan, nil
}

// DryRun is what a plan would do, without doing it.
type DryRun struct {
	Total    int64            // messages that match
	More     bool             // there are more than were counted
	ByReason map[Reason]int64 // why they are dead
	Groups   []Group          // the largest groups by cause; none for names or waiting messages
	// Refused counts what would be refused, by kind as in Plan.Errors. RefusedMore says
	// that not all messages were looked at for it.
	Refused     map[string]int64
	RefusedMore bool
	Cutoff      time.Time // now, by the store's clock
}

func (d *DryRun) refuse(kind string, n int64) {
	if n > 0 {
		d.Refused[kind] += n
	}
}
