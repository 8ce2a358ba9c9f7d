package api

import (
	"time"
)

// PlanRequest asks for dead letters to be redriven, dropped or archived: those that
// match the filter until now, or those that are named.
type PlanRequest struct {
	Action string   `json:"action"` // redrive, drop or archive
	Filter *Filter  `json:"filter,omitempty"`
	Refs   []string `json:"refs,omitempty"` // "queue/id"

	To               string `json:"to,omitempty"`     // redrive into another queue
	Rate             string `json:"rate,omitempty"`   // "50/s"; absent: 100/s
	NewID            bool   `json:"new_id,omitempty"` // under new ids, for receivers that deduplicate
	ConfirmUncertain bool   `json:"confirm_uncertain,omitempty"`
	MaxRedrives      int    `json:"max_redrives,omitempty"` // refuse what was redriven so often
	DryRun           bool   `json:"dry_run,omitempty"`      // count only
}

// Plan is a durable redrive.
type Plan struct {
	ID        string           `json:"id"`
	State     string           `json:"state"` // running, paused, done, cancelled or failed
	Request   PlanRequest      `json:"request"`
	Actor     string           `json:"actor,omitempty"` // who asked for it
	Cutoff    time.Time        `json:"cutoff"`          // what died later is not part of it
	Total     int64            `json:"total"`           // counted at the start
	TotalMore bool             `json:"total_more,omitempty"`
	Done      int64            `json:"done"`
	Failed    int64            `json:"failed"`
	Errors    map[string]int64 `json:"errors,omitempty"`
	CreatedAt time.Time        `json:"created_at"`
	UpdatedAt time.Time        `json:"updated_at"`
	EndedAt   *time.Time       `json:"ended_at,omitempty"`
}

// DryRun tells what a plan would do.
type DryRun struct {
	DryRun  bool             `json:"dry_run"` // true
	Total   int64            `json:"total"`
	More    bool             `json:"total_more,omitempty"` // there are more than that
	Refused int64            `json:"refused"`              // of those, the ones it would refuse
	Reasons map[string]int64 `json:"reasons,omitempty"`    // counts by reason
	Refusal map[string]int64 `json:"refusals,omitempty"`   // refused ones by error
	Groups  []Group          `json:"groups,omitempty"`
}

// The states of a plan.
const (
	PlanRunning   = "running"
	PlanPaused    = "paused"
	PlanDone      = "done"
	PlanCancelled = "cancelled"
	PlanFailed    = "failed"
)

// Ended reports whether the plan works no more.
func (p *Plan) Ended() bool {
	return p.State == PlanDone || p.State == PlanCancelled || p.State == PlanFailed
}
