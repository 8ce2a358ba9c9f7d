package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
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

// fingerprint tells a request from others, whoever asks.
func (r *Request) fingerprint() string {
	if r.Fingerprint != "" {
		return r.Fingerprint
	}
	asked := Plan{Request: *r}
	asked.Request.Actor = ""
	b, err := encodePlan(&asked)
	if err != nil {
		panic(err) // a checked request can always be encoded
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

func decodePlan(r *driver.Record) (Plan, error) {
	var p planRecord
	if err := json.Unmarshal(r.Value, &p); err != nil {
		return Plan{}, &redrive.Error{Op: "plan", ID: r.Key, Err: fmt.Errorf("%w: record of a plan: %w", redrive.ErrCorrupt, err)}
	}
	for _, name := range p.Refs {
		queue, id, _ := strings.Cut(name, "/")
		p.Request.Refs = append(p.Request.Refs, redrive.Ref{Queue: queue, ID: id})
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
	Gone bool   `json:"g,omitempty"` // it was gone when its batch was done again
	Had  int    `json:"h,omitempty"` // how many failures it had
	From string `json:"f,omitempty"` // the plan that redrove or repaired it before
	Sum  uint32 `json:"c,omitempty"` // of a repair: the checksum that it left, or that a restore must find

	err error // of this process; Err is its short name
}

func (r *planResult) ref() redrive.Ref { return parseName(r.Name) }

// now is where the message is.
func (r *planResult) now() redrive.Ref {
	if r.New != "" {
		return parseName(r.New)
	}
	return r.ref()
}

func (r *planResult) refuse(err error) { r.err, r.Err = err, text.Clean(errorKind(err), 80) }

func parseName(name string) redrive.Ref {
	queue, id, _ := strings.Cut(name, "/")
	return redrive.Ref{Queue: queue, ID: id}
}

// planRecordError is a refusal read back from its record.
type planRecordError string

func (e planRecordError) Error() string { return string(e) }

func (planRecordError) ErrorName() string { return "plan.RecordError" }

func resultKey(plan string, n int) string { return fmt.Sprintf("%s/%08d", plan, n) }

// resultWrites returns the records of results from the n-th on.
func resultWrites(plan string, n int, results []planResult) ([]driver.RecordWrite, error) {
	var writes []driver.RecordWrite
	for len(results) > 0 {
		part := results[:min(len(results), planResultSlice)]
		results = results[len(part):]
		value, err := json.Marshal(part)
		if err != nil {
			return nil, fmt.Errorf("plan %s: %w", plan, err)
		}
		writes = append(writes, driver.RecordWrite{Space: planResultSpace, Key: resultKey(plan, n), Value: value, Version: driver.AnyVersion, Expires: planResultKeep})
		n++
	}
	return writes, nil
}

func decodeResults(r *driver.Record) ([]planResult, error) {
	var results []planResult
	if err := json.Unmarshal(r.Value, &results); err != nil {
		return nil, &redrive.Error{Op: "plan", ID: r.Key, Err: fmt.Errorf("%w: record of results: %w", redrive.ErrCorrupt, err)}
	}
	for i := range results {
		if results[i].Err != "" {
			results[i].err = planRecordError(results[i].Err)
		}
	}
	return results, nil
}

// Outcome is what became of a message that a plan worked on.
type Outcome string

// The outcomes.
const (
	Delivered Outcome = "delivered" // redriven, and gone since
	Waiting   Outcome = "waiting"   // redriven, and not at its end
	DiedAgain Outcome = "dead"      // redriven, and among the dead letters again
	Taken     Outcome = "taken"     // redriven, and changed since by another plan, a person or retention: it died again, or still waited
	Dropped   Outcome = "dropped"
	Archived  Outcome = "archived"
	Repaired  Outcome = "repaired"
	Restored  Outcome = "restored"
	Gone      Outcome = "gone" // this plan changed it, or another ended it: the plan's process died meanwhile
	Refused   Outcome = "refused"
	Pending   Outcome = "pending" // about to be changed
)

// Result is what became of one message of a plan.
type Result struct {
	redrive.Ref
	New     redrive.Ref // where it is, if the plan moved it or gave it a new id
	Outcome Outcome
	Error   string         // why it was refused
	Entry   *redrive.Entry // as it stands now, with its history; nil if it is gone
}

// outcome draws what became of a message from how it stands now.
func (r *planResult) outcome(plan *Plan, pending bool, e *redrive.Entry, took bool) Outcome {
	request := &plan.Request
	switch action := request.Action; {
	case r.Err != "":
		return Refused
	case pending:
		return Pending
	case r.Gone && action != driver.ActRedrive && action != driver.ActDueNow:
		return Gone
	case len(request.Repair) > 0:
		return Repaired
	case request.Restore != "":
		return Restored
	case action == driver.ActDrop:
		return Dropped
	case action == driver.ActArchive:
		return Archived
	case plan.lost(e, took):
		return Taken
	case e == nil:
		return Delivered
	case e.State == redrive.StateDead:
		return DiedAgain
	}
	return Waiting
}

// lost reports whether a message that the plan redrove is its own no longer, as it stands now.
func (p *Plan) lost(e *redrive.Entry, took bool) bool {
	if e == nil {
		return took
	}
	return e.Plan != p.ID
}

// Progress is what became of all that a plan redrove.
type Progress struct {
	Delivered int64 // gone since, but for Taken
	DiedAgain int64
	NewCauses int64 // of those that died again: of other causes than the plan set out to redrive
	Waiting   int64
	// Taken is what died again, or still waited, when another plan, a person or retention changed it. What a
	// processor of dead letters or another program than the daemon took counts as Delivered.
	Taken int64
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
