package redrive

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/redrive/redrive/internal/text"
)

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

// Where results of plans are kept.
const (
	planResultSpace = "plan-results"
	planResultKeep  = planKeep
	planResultSlice = 80      // messages a record: so many names of the longest kind fit
	maxPlanResults  = 100_000 // messages of which a plan keeps the result
)

// planResult is what a plan did to one message, or is about to do.
type planResult struct {
	Name string `json:"m"`           // "queue/id"
	New  string `json:"n,omitempty"` // where it is now, if it moved
	Err  string `json:"e,omitempty"` // why it was refused

	err error // of this process; Err is its short name
}

func (r *planResult) ref() Ref { return parseName(r.Name) }

// now is where the message is.
func (r *planResult) now() Ref {
	if r.New != "" {
		return parseName(r.New)
	}
	return r.ref()
}

func (r *planResult) refuse(err error) { r.err, r.Err = err, text.Clean(errorKind(err), 80) }

func parseName(name string) Ref {
	queue, id, _ := strings.Cut(name, "/")
	return Ref{Queue: queue, ID: id}
}

// planRecordError is a refusal read back from its record.
type planRecordError string

func (e planRecordError) Error() string { return string(e) }

func resultKey(plan string, n int) string { return fmt.Sprintf("%s/%08d", plan, n) }

// resultWrites returns the records of results from the n-th on.
func resultWrites(plan string, n int, results []planResult) ([]RecordWrite, error) {
	var writes []RecordWrite
	for len(results) > 0 {
		part := results[:min(len(results), planResultSlice)]
		results = results[len(part):]
		value, err := json.Marshal(part)
		if err != nil {
			return nil, fmt.Errorf("plan %s: %w", plan, err)
		}
		writes = append(writes, RecordWrite{Space: planResultSpace, Key: resultKey(plan, n), Value: value, Version: AnyVersion, Expires: planResultKeep})
		n++
	}
	return writes, nil
}

func decodeResults(r *Record) ([]planResult, error) {
	var results []planResult
	if err := json.Unmarshal(r.Value, &results); err != nil {
		return nil, &Error{Op: "plan", ID: r.Key, Err: fmt.Errorf("%w: record of results: %w", ErrCorrupt, err)}
	}
	for i := range results {
		if results[i].Err != "" {
			results[i].err = planRecordError(results[i].Err)
		}
	}
	return results, nil
}

// PlanOutcome is what became of a message that a plan worked on.
type PlanOutcome string

// The outcomes. A message that is no longer there after a redrive was delivered, or
// somebody dropped it since.
const (
	PlanDelivered PlanOutcome = "delivered" // redriven, and gone since
	PlanWaiting   PlanOutcome = "waiting"   // redriven, and not at its end
	PlanDiedAgain PlanOutcome = "dead"      // redriven, and among the dead letters again
	PlanDropped   PlanOutcome = "dropped"
	PlanArchived  PlanOutcome = "archived"
	PlanRefused   PlanOutcome = "refused"
	PlanPending   PlanOutcome = "pending" // about to be changed
)

// PlanResult is what became of one message of a plan.
type PlanResult struct {
	Ref
	New     Ref // where it is, if the plan moved it or gave it a new id
	Outcome PlanOutcome
	Error   string // why it was refused
	Entry   *Entry // as it stands now, with its history; nil if it is gone
}

// outcome draws what became of a message from how it stands now.
func (r *planResult) outcome(action Action, pending bool, e *Entry) PlanOutcome {
	switch {
	case r.Err != "":
		return PlanRefused
	case pending:
		return PlanPending
	case action == ActDrop:
		return PlanDropped
	case action == ActArchive:
		return PlanArchived
	case e == nil:
		return PlanDelivered
	case e.State == StateDead:
		return PlanDiedAgain
	}
	return PlanWaiting
}

// PlanProgress is what became of all that a plan redrove.
type PlanProgress struct {
	Delivered int64 // gone since, or dropped by somebody
	DiedAgain int64
	Waiting   int64
	// Complete is false when there was more to look at than one look does: Delivered
	// is then too high.
	Complete bool
}

// retained reports whether a plan still keeps the results of its messages.
func (p *Plan) retained() bool { return p.Done+p.Failed < maxPlanResults }

// keepFor is how long the record of a plan is kept.
func (p *Plan) keepFor() time.Duration {
	if p.State.Final() {
		return planKeep
	}
	return 0
}
