package wire

import (
	"strconv"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/plan"
)

// PlanRequest asks for dead letters to be redriven, dropped, archived or repaired: those that
// match the filter until now, or those that are named. A restore has neither: it is of what a repair changed.
type PlanRequest struct {
	ID     string   `json:"id,omitempty"`     // names the plan: a start that is repeated under it makes no second one
	Reason string   `json:"reason,omitempty"` // why, for people and the audit log: at most 2 kB
	Action string   `json:"action"`           // redrive, drop, archive, repair, restore, or retry: what waits for a retry is tried at once
	Filter *Filter  `json:"filter,omitempty"`
	Refs   []string `json:"refs,omitempty"` // "queue/id"
	All    bool     `json:"all,omitempty"`  // every dead letter of every queue: without it, a filter or refs must say which

	To               string   `json:"to,omitempty"`     // redrive into another queue
	Rate             string   `json:"rate,omitempty"`   // "50/s"; absent: 100/s
	NewID            bool     `json:"new_id,omitempty"` // under new ids, for receivers that deduplicate
	ConfirmUncertain bool     `json:"confirm_uncertain,omitempty"`
	ConfirmCorrupt   bool     `json:"confirm_corrupt,omitempty"`
	MaxRedrives      int      `json:"max_redrives,omitempty"` // refuse what was redriven so often
	Canary           int      `json:"canary,omitempty"`       // try so many first; the others follow if all of these were delivered
	Watch            Duration `json:"watch,omitzero"`         // how long to look out, after the canary was delivered, for what comes back; absent: 1m where a queue delivers to a broker
	DryRun           bool     `json:"dry_run,omitempty"`      // count only

	Repair  []plan.Operation `json:"repair,omitempty"`  // the rule of a repair: at most 20 operations, each on the result of those before
	Restore string           `json:"restore,omitempty"` // of a restore: the plan of the repair
}

// Plan is a durable redrive.
type Plan struct {
	ID        string           `json:"id"`
	State     string           `json:"state"` // running, paused, stopped, proposed, done, cancelled or failed
	Request   PlanRequest      `json:"request"`
	Actor     string           `json:"actor,omitempty"`      // who asked for it
	Cutoff    time.Time        `json:"cutoff"`               // what died later is not part of it
	Total     int64            `json:"total"`                // counted at the start
	TotalMore bool             `json:"total_more,omitempty"` // there may be more: so many of the examined ones match
	Examined  int64            `json:"examined,omitempty"`   // with total_more: how many were looked at
	Done      int64            `json:"done"`
	Failed    int64            `json:"failed"`
	Named     int              `json:"named,omitempty"`   // names worked on; a plan forgets its names when it ends
	Errors    map[string]int64 `json:"errors,omitempty"`  // refusals by kind
	Problem   string           `json:"problem,omitempty"` // why it failed or stopped, or what holds it up
	Canary    *Canary          `json:"canary,omitempty"`  // of a plan with a canary
	Progress  *Progress        `json:"progress,omitempty"`
	Speed     float64          `json:"speed,omitempty"` // messages a second of the last seconds; absent: not known
	ETA       *time.Time       `json:"eta,omitempty"`   // when nothing will be left to change, if that is known
	CreatedAt time.Time        `json:"created_at"`
	UpdatedAt time.Time        `json:"updated_at"`
	EndedAt   *time.Time       `json:"ended_at,omitempty"`
	// Holds is what holds a plan that runs: its own trouble (store), its canary, and what keeps the messages
	// that it let go from being delivered. Absent where it does not run.
	Holds []PlanHold `json:"holds,omitempty"`
	// HoldsUnknown says that holds lacks some, as the store did not tell them. The plan is there all the same.
	HoldsUnknown bool `json:"holds_unknown,omitempty"`
	// ReleasedBy and ReleasedAt are of a plan that the actor only proposed.
	ReleasedBy string     `json:"released_by,omitempty"`
	ReleasedAt *time.Time `json:"released_at,omitempty"`
}

// PlanHold is what holds a plan, by the queue that is held; without one the plan itself is.
type PlanHold struct {
	Queue string `json:"queue,omitempty"`
	Hold
}

// PlanChange changes how fast and how carefully a plan goes on.
type PlanChange struct {
	Rate   string `json:"rate,omitempty"`   // "50/s"; absent: as before
	Canary *int   `json:"canary,omitempty"` // try so many before the others: past its canary, a plan begins another one; 0: none
}

// Canary is what a plan with a canary has seen of it.
type Canary struct {
	Stage     string    `json:"stage"` // canary, ramp or full
	Since     time.Time `json:"since"`
	Size      int       `json:"size"` // of the canary so far
	Delivered int       `json:"delivered"`
	DeadAgain int       `json:"dead_again"`
	Waiting   int       `json:"waiting"`
	// Until is, once all were delivered, how long it is watched whether they come back.
	Until *time.Time `json:"until,omitempty"`
}

// Progress is what became of all that a plan redrove. It is there when the parameter
// progress asks for it.
type Progress struct {
	Delivered int64 `json:"delivered"`
	DeadAgain int64 `json:"dead_again"`
	NewCauses int64 `json:"new_causes"` // of those dead again: of other causes than the plan set out to redrive
	Waiting   int64 `json:"waiting"`
	// Taken died again, or waited still, and was then changed by another plan, dropped by a person, or removed by
	// retention. What a processor of dead letters or another program took counts as delivered.
	Taken    int64 `json:"taken,omitempty"`
	Complete bool  `json:"complete"` // false: there was more than one look sees
}

// PlanResult is what became of one message of a plan: delivered, waiting, dead (again),
// taken (redriven, and changed since by another plan, a person or retention), dropped, archived, repaired, restored, gone, refused, or pending when it is about to be changed.
type PlanResult struct {
	Queue   string   `json:"queue"`
	ID      string   `json:"id"`
	Now     string   `json:"now,omitempty"` // "queue/id" where it is, if the plan moved it
	Outcome string   `json:"outcome"`
	Error   string   `json:"error,omitempty"`   // why it was refused
	Message *Message `json:"message,omitempty"` // as it stands now, with its history
}

// PlanResultOf returns a result as it goes over the wire. Without payload, what
// failures quote of bodies is left out.
func PlanResultOf(r *plan.Result, payload bool) PlanResult {
	out := PlanResult{Queue: r.Queue, ID: r.ID, Outcome: string(r.Outcome), Error: r.Error}
	if r.New != (redrive.Ref{}) {
		out.Now = r.New.String()
	}
	if r.Entry != nil {
		m := Summary(r.Entry)
		h := &r.Entry.History
		m.History = &History{Count: h.Count, First: failure(h.First, payload), Last: failure(h.Last, payload)}
		out.Message = &m
	}
	return out
}

// ProgressOf returns progress as it goes over the wire.
func ProgressOf(p *plan.Progress) *Progress {
	return &Progress{Delivered: p.Delivered, DeadAgain: p.DiedAgain, NewCauses: p.NewCauses, Waiting: p.Waiting, Taken: p.Taken, Complete: p.Complete}
}

// DryRun tells what a plan would do.
type DryRun struct {
	DryRun   bool             `json:"dry_run"` // true
	Cutoff   time.Time        `json:"cutoff"`
	Total    int64            `json:"total"`                // messages that match; exact by queue, state, reason and signature
	More     bool             `json:"total_more,omitempty"` // there may be more: so many of the examined ones match
	Examined int64            `json:"examined,omitempty"`   // with total_more: how many were looked at
	Reason   map[string]int64 `json:"by_reason,omitempty"`
	// Refused counts what would be refused, by error; RefusedMore says that not all
	// messages were looked at for it.
	Refused     map[string]int64 `json:"refused,omitempty"`
	RefusedMore bool             `json:"refused_more,omitempty"`
	Causes      []Cause          `json:"causes,omitempty"`  // the largest
	Preview     *Preview         `json:"preview,omitempty"` // of a repair
}

// Preview is what a repair would make of a sample of at most about 200 messages, from all of the time in
// which they died.
type Preview struct {
	Looked  int            `json:"looked"`
	Changed int            `json:"changed"`           // of those looked at
	Refused map[string]int `json:"refused,omitempty"` // likewise, by kind; unchanged: the rule finds nothing to change
	Before  int64          `json:"bytes_before"`      // of the bodies that would change
	After   int64          `json:"bytes_after"`
	// Diffs are the first, the last, the largest and the smallest that would change, and up to four others.
	Diffs []Diff `json:"diffs"`
}

// Diff is a message before and after a repair, as it shows to who asks. Bodies above 256 KiB are left out.
type Diff struct {
	Before Message `json:"before"`
	After  Message `json:"after"`
}

// The states of a plan.
const (
	PlanRunning   = "running"
	PlanPaused    = "paused"
	PlanStopped   = "stopped"  // by itself: its canary failed
	PlanProposed  = "proposed" // it stands still until it is released
	PlanDone      = "done"
	PlanCancelled = "cancelled"
	PlanFailed    = "failed"
)

// Ended reports whether the plan works no more.
func (p *Plan) Ended() bool {
	return p.State == PlanDone || p.State == PlanCancelled || p.State == PlanFailed
}

// PlanOf returns a plan as it goes over the wire.
func PlanOf(p *plan.Plan) Plan {
	out := Plan{
		ID: p.ID, State: p.State.String(), Request: planRequestOf(p), Named: p.Named, Actor: p.Request.Actor,
		Cutoff: p.Cutoff.UTC(), Total: p.Total, TotalMore: p.TotalMore, Examined: p.Examined, Done: p.Done, Failed: p.Failed, Errors: p.Errors, Problem: p.Problem,
		CreatedAt: p.CreatedAt.UTC(), UpdatedAt: p.UpdatedAt.UTC(), EndedAt: moment(p.EndedAt), ReleasedBy: p.ReleasedBy, ReleasedAt: moment(p.ReleasedAt), ETA: moment(p.ETA()),
	}
	if p.State == plan.Running {
		out.Speed = p.Measured.Rate
	}
	if t := p.Canary; t != nil {
		out.Canary = &Canary{Stage: t.Stage.String(), Since: t.Since.UTC(), Size: t.Size, Delivered: t.Delivered, DeadAgain: t.Dead, Waiting: t.Waiting}
		if t.Stage == plan.StageCanary && !t.Seen.IsZero() {
			out.Canary.Until = moment(t.Seen.Add(p.Request.Watch))
		}
	}
	return out
}

// ActionOf names what a plan does.
func ActionOf(r *plan.Request) string {
	switch {
	case r.Restore != "":
		return "restore"
	case len(r.Repair) > 0:
		return "repair"
	case r.Action == driver.ActDueNow:
		return "retry"
	}
	return r.Action.String()
}

func planRequestOf(p *plan.Plan) PlanRequest {
	r := &p.Request
	out := PlanRequest{
		Reason: r.Reason,
		Action: ActionOf(r), Repair: r.Repair, Restore: r.Restore, To: r.To, NewID: r.NewID, ConfirmUncertain: r.ConfirmUncertain, ConfirmCorrupt: r.ConfirmCorrupt, MaxRedrives: r.MaxRedrives, Canary: r.Canary, Watch: Duration(r.Watch),
		Rate: strconv.FormatFloat(r.Rate, 'f', -1, 64) + "/s",
	}
	for _, ref := range r.Refs {
		out.Refs = append(out.Refs, ref.String())
	}
	if len(r.Refs) > 0 || p.Named > 0 || r.Restore != "" {
		return out
	}
	out.All = r.All
	f := FilterOf(&r.Query)
	out.Filter = &f
	return out
}

// DryRunOf returns a dry run as it goes over the wire, but for its causes.
func DryRunOf(d *plan.DryRun) DryRun {
	out := DryRun{
		DryRun: true, Cutoff: d.Cutoff.UTC(), Total: d.Total, More: d.More, Examined: d.Examined, Refused: d.Refused, RefusedMore: d.RefusedMore,
		Reason: make(map[string]int64, len(d.ByReason)),
	}
	for r, n := range d.ByReason {
		out.Reason[r.String()] = n
	}
	return out
}
