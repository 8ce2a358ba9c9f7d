package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/text"
)

// Request asks for a change of many dead letters at a pace.
type Request struct {
	// ID names the plan, so that a start that is repeated makes no second one: see [Plans.Create].
	// Defaults to a new id.
	ID string `json:"-"`
	// Fingerprint tells requests under one ID apart. Defaults to a hash of the request; who
	// asks by what changes from one try to the next, as a time before now does, gives another.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Reason is why, for people: at most 2 kB. Optional.
	Reason string `json:"reason,omitempty"`
	// Action is [driver.ActRedrive], [driver.ActDrop], [driver.ActArchive], [driver.ActEdit] with
	// a Repair or a Restore, or [driver.ActDueNow], which lets what waits for a retry be tried at once.
	Action driver.Action `json:"action"`
	// Query selects what is changed; one without a condition selects all dead letters, and
	// needs All. Its State
	// defaults to [redrive.StateDead]; ActDrop may also be asked for [redrive.StateWaiting], and ActDueNow is
	// of that, and of what is Retrying, only. After,
	// Limit and Bodies are ignored, NotPlan must be empty.
	Query redrive.Query `json:"query"`
	// All allows a Query without a condition. With one, or with Refs, it is refused.
	All bool `json:"all,omitempty"`
	// View says what Query.Text and Query.Header look at where its asker may not see
	// everything. It is kept with the plan: see [Options.Views]. Empty: everything.
	View string `json:"view,omitempty"`
	// Refs names what is changed, instead of Query. A record must hold them: about
	// a thousand fit. They are kept until the plan ends.
	Refs []redrive.Ref `json:"-"`
	// To, NewID, ConfirmUncertain, ConfirmCorrupt and MaxRedrives are those of [driver.Change].
	To               string `json:"to,omitempty"`
	NewID            bool   `json:"new_id,omitempty"`
	ConfirmUncertain bool   `json:"confirm_uncertain,omitempty"`
	ConfirmCorrupt   bool   `json:"confirm_corrupt,omitempty"`
	MaxRedrives      int    `json:"max_redrives,omitempty"`
	// Repair is the rule by which ActEdit changes each message. The plan stops by itself at the first
	// message of each kind that is refused, but for those that the rule would leave as they are, and
	// those that others took meanwhile.
	Repair []Operation `json:"repair,omitempty"`
	// Restore is the id of a plan with a Repair whose messages ActEdit makes again what was published:
	// those that are still dead and as that plan left them. There is no Query then.
	Restore string `json:"restore,omitempty"`
	// Rate is how many messages are changed a second. Defaults to 100, of ActEdit to 2000.
	Rate float64 `json:"rate"`
	// Canary is how many messages ActRedrive or ActDueNow tries first, at most 200. The others
	// follow only when all of these were delivered (with ActDueNow: were tried, and less than half failed), at a growing rate, and the plan
	// stops by itself when their cause of death is back; see [Canary]. 0: none.
	Canary int `json:"canary,omitempty"`
	// Watch is how long a canary that was delivered is watched for its return before the others follow:
	// for messages that go to a broker, where whoever takes them fails later. Those that come back as
	// dead letters of this plan stop it, as [redrive.Lineage] tells. At most a day. 0: not at all.
	Watch time.Duration `json:"watch,omitempty"`
	// Propose makes a plan that stands still until another than its Actor releases it: see [Plans.Release].
	Propose bool `json:"propose,omitempty"`
	// Actor is who asked, for the record. Optional.
	Actor string `json:"actor,omitempty"`
}

// Defaults and bounds of plans.
const (
	DefaultRate     = 100.0
	DefaultEditRate = 2000.0 // nobody is called

	maxPlanRate   = 100_000.0
	maxPlanErrors = 16 // kinds of errors counted apart
	planReserve   = 8 << 10
	planBatches   = 4 // a second
	planBatch     = 500
	planNamed     = 32 // a batch of names, which are looked at with their bodies
	maxCanary     = 200
	maxReason     = 2 << 10
	maxWatch      = 24 * time.Hour
)

// check reports a request that no plan can carry out, and fills in defaults.
func (r *Request) check() error {
	if err := r.checkAction(); err != nil {
		return err
	}
	if r.Query.State == 0 {
		r.Query.State = redrive.StateDead
		if r.Action == driver.ActDueNow {
			r.Query.State = redrive.StateWaiting
		}
	}
	named := r.Query
	retries := r.Action == driver.ActDueNow
	r.Query.Retrying = retries && len(r.Refs) == 0
	r.Query.After, r.Query.Limit, r.Query.Bodies = "", 0, false
	switch {
	case retries != (r.Query.State == redrive.StateWaiting) && !(r.Action == driver.ActDrop && r.Query.State == redrive.StateWaiting), r.Query.State != redrive.StateDead && r.Query.State != redrive.StateWaiting:
		return invalid(fmt.Sprintf("%s of messages that are %s", r.Action, r.Query.State), "only dead letters can be redriven or archived; waiting messages can be dropped, or be due now")
	case retries && r.Query.Reason != 0:
		return invalid("a reason of messages that wait", "only dead letters have one; give the signature of the last failure")
	case r.Query.NotPlan != "":
		return invalid("a filter on what a plan left out", "leave NotPlan empty; the plan sets it itself")
	case len(r.Refs) > 0 && (named != redrive.Query{State: named.State}):
		return invalid("both names and a filter", "give one of them")
	case r.Action != driver.ActRedrive && (r.To != "" || r.NewID || r.ConfirmUncertain || r.ConfirmCorrupt || r.MaxRedrives != 0 || !retries && (r.Canary != 0 || r.Watch != 0)):
		return invalid("options of a redrive with another action", "leave to, new-id, confirm-uncertain, confirm-corrupt, max-redrives, canary and watch empty")
	case r.Canary < 0 || r.Canary > maxCanary:
		return invalid(fmt.Sprintf("a canary of %d", r.Canary), fmt.Sprintf("use up to %d, or 0 for none", maxCanary))
	case r.Watch < 0 || r.Watch > maxWatch:
		return invalid(fmt.Sprintf("a watch of %s", r.Watch), "use up to 24h, or 0 for none")
	case r.MaxRedrives < 0:
		return invalid(fmt.Sprintf("at most %d redrives", r.MaxRedrives), "use 0 for no limit, or more")
	case math.IsNaN(r.Rate) || r.Rate < 0 || r.Rate > maxPlanRate:
		return invalid(fmt.Sprintf("a rate of %v/s", r.Rate), fmt.Sprintf("use up to %v/s, or 0 for %v/s", maxPlanRate, DefaultRate))
	case len(r.Actor) > redrive.MaxKeyLength || !text.Printable(r.Actor):
		return invalid("actor", "an actor is at most 256 bytes of printable UTF-8")
	case len(r.Reason) > maxReason || !utf8.ValidString(r.Reason):
		return invalid("reason", fmt.Sprintf("a reason is at most %d bytes of UTF-8", maxReason))
	case r.ID != "":
		if err := driver.CheckID(r.ID); err != nil {
			return &redrive.Error{Op: "plan", Err: err}
		}
	}
	if r.Rate == 0 {
		r.Rate = DefaultRate
		if r.Action == driver.ActEdit {
			r.Rate = DefaultEditRate
		}
	}
	for _, queue := range []string{r.To, r.Query.Queue} {
		if queue == "" {
			continue
		}
		if err := driver.CheckQueue(queue); err != nil {
			return &redrive.Error{Op: "plan", Err: err}
		}
	}
	for _, ref := range r.Refs {
		if err := errors.Join(driver.CheckQueue(ref.Queue), driver.CheckID(ref.ID)); err != nil {
			return &redrive.Error{Op: "plan", Err: fmt.Errorf("name %q: %w", ref, err), Hint: "a name is QUEUE/ID"}
		}
	}
	return nil
}

func invalid(what, hint string) error {
	return &redrive.Error{Op: "plan", Err: fmt.Errorf("%w plan: %s", redrive.ErrInvalid, what), Hint: hint}
}

// checkAction reports an action that is none, or that lacks its rule.
func (r *Request) checkAction() error {
	edits := r.Action == driver.ActEdit
	switch {
	case r.Action != driver.ActRedrive && r.Action != driver.ActDrop && r.Action != driver.ActArchive && r.Action != driver.ActDueNow && !edits:
		return invalid("action "+r.Action.String(), "use redrive, drop, archive, edit or due-now")
	case !edits && (len(r.Repair) > 0 || r.Restore != ""):
		return invalid("a repair with another action", "leave repair and restore empty")
	case edits && (len(r.Repair) > 0) == (r.Restore != ""):
		return invalid("an edit without a rule", "give either repair or restore")
	case r.Restore != "" && (len(r.Refs) > 0 || r.Query != redrive.Query{State: r.Query.State, Queue: r.Query.Queue}):
		return invalid("a restore with a filter", "it is of the messages of the plan that it names")
	case r.Restore != "":
		return driver.CheckID(r.Restore)
	case edits:
		_, err := NewRepair(r.Repair)
		return err
	}
	return nil
}

// bounded refuses a request for everything that does not say so, as one whose filter was
// forgotten, and one that says so and names something. A dry run needs nothing of it.
func (r *Request) bounded() error {
	q := r.Query
	q.State, q.Retrying, q.After, q.Limit, q.Bodies = 0, false, "", 0, false
	everything := r.Restore == "" && len(r.Refs) == 0 && q == redrive.Query{}
	switch {
	case everything && !r.All:
		return invalid("it is about every message of every queue", "name a queue or another filter, or ask for all")
	case !everything && r.All:
		return invalid("both all and a filter or names", "give one of them")
	}
	return nil
}

// State is where a plan stands.
type State uint8

// The states. The last three are final.
const (
	Running   State = iota + 1 // changes messages, or waits for a runner
	Paused                     // until it is resumed
	Stopped                    // by itself, as its canary failed or a repair was refused; it can be resumed, with another canary
	Proposed                   // nothing was touched yet; it waits for its release
	Done                       // nothing was left to change
	Cancelled                  // by a person; what was changed stays changed
	Failed                     // it cannot be carried out; see Plan.Problem
)

var planStateNames = []string{"", "running", "paused", "stopped", "proposed", "done", "cancelled", "failed"}

// String returns the state in lower case.
func (s State) String() string { return text.Enum(planStateNames, s) }

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *State) UnmarshalText(b []byte) (err error) {
	*s, err = text.ParseEnum[State](redrive.ErrInvalid, planStateNames, string(b), "plan state")
	return err
}

// Final reports whether the state is one that does not change any more.
func (s State) Final() bool { return s >= Done }

// Plan is a change of many messages: a durable record of what was asked and how far
// it got. It touches each message at most once: only what had died by the Cutoff is
// changed, and a dead letter that it redrove and that died again has died after it.
// All times are by the store's clock.
type Plan struct {
	ID      string  `json:"id"`
	Request Request `json:"request"`
	State   State   `json:"state"`
	// Cutoff is frozen when the plan is made.
	Cutoff time.Time `json:"cutoff"`
	// Total is how many messages matched when the plan was made; TotalMore says that
	// there may be more, as only Examined were looked at.
	Total     int64 `json:"total"`
	TotalMore bool  `json:"total_more,omitempty"`
	Examined  int64 `json:"examined,omitempty"`
	// Done and Failed count what was changed and what was refused.
	Done   int64 `json:"done"`
	Failed int64 `json:"failed"`
	// Errors counts the refusals by name (see [driver.ErrorName]): loop, uncertain, body-gone, not-found, state, conflict,
	// or the error's masked text.
	Errors map[string]int64 `json:"errors,omitempty"`
	// Problem is why the plan failed or stopped, or what keeps it from going on at the
	// moment.
	Problem   string    `json:"problem,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`
	// ReleasedBy and ReleasedAt are of a plan that was proposed.
	ReleasedBy string    `json:"released_by,omitempty"`
	ReleasedAt time.Time `json:"released_at,omitzero"`

	// Causes are the signatures of what the plan selected when it was made, the most frequent
	// first, at most 64, if its messages are handled anew.
	Causes []string `json:"causes,omitempty"`
	// Measured is how fast it works.
	Measured Speed `json:"measured,omitzero"`

	// Canary is what a plan with a canary has seen, else nil.
	Canary *Canary `json:"canary,omitempty"`

	// Cursor is how far the runner got: a position of the store, or a number of names.
	Cursor string `json:"cursor,omitempty"`
	Named  int    `json:"named,omitempty"`
	// Looked is how many records of results of the plan that it restores were taken.
	Looked int `json:"looked,omitempty"`
	// Taken says that nothing is left to take.
	Taken bool `json:"taken,omitempty"`
	// Records is how many records of results there are, of which the last Pending ones
	// hold messages that are about to be changed: who takes the plan over does them
	// again, and nothing is skipped or counted twice.
	Records int `json:"records,omitempty"`
	Pending int `json:"pending,omitempty"`

	version int64                // of the record
	also    []driver.RecordWrite // what is written with it, the next time
}

// newPlan makes a running plan of a checked request.
func newPlan(id string, r *Request, now time.Time) Plan {
	p := Plan{ID: id, Request: *r, State: Running, Cutoff: now, CreatedAt: now, UpdatedAt: now}
	if until := r.Query.Until; !until.IsZero() && until.Before(now) {
		p.Cutoff = until
	}
	if r.Propose {
		p.State = Proposed
	}
	if r.Canary > 0 {
		p.Canary = &Canary{Stage: StageCanary, Since: now}
	}
	return p
}

// query returns what the plan still selects, from its cursor on.
func (p *Plan) query(limit int) redrive.Query {
	q := p.Request.Query
	q.Until, q.After, q.Limit = p.Cutoff, p.Cursor, limit
	if p.stamps() {
		q.NotPlan = p.ID
	}
	return q
}

func (p *Plan) change() driver.Change {
	r := &p.Request
	c := driver.Change{Action: r.Action, To: r.To, NewID: r.NewID, MaxRedrives: r.MaxRedrives, ConfirmUncertain: r.ConfirmUncertain, ConfirmCorrupt: r.ConfirmCorrupt}
	if p.stamps() {
		c.Plan = p.ID
	}
	return c
}

// stamps reports whether what the plan changed bears its id.
func (p *Plan) stamps() bool {
	return p.Lives() || p.Request.Action == driver.ActEdit
}

// Lives reports whether what the plan changed is handled anew.
func (p *Plan) Lives() bool {
	return p.Request.Action == driver.ActRedrive || p.Request.Action == driver.ActDueNow
}

// batch is how many messages are changed in one step: several steps a second, so that
// the rate is even and a pause takes effect soon.
func (p *Plan) batch() int {
	most := planBatch
	if len(p.Request.Refs) > 0 {
		most = planNamed
	}
	n := int(min(max(math.Ceil(p.Request.Rate/planBatches), 1), float64(most)))
	if p.Canary != nil {
		n = p.Canary.left(p.Request.Canary, n)
	}
	return n
}

// pace is how long a number of changes takes at the plan's rate.
func (p *Plan) pace(n int, now time.Time) time.Duration {
	rate := p.Request.Rate
	if p.Canary != nil {
		rate = p.Canary.rate(rate, now)
	}
	return text.Duration(float64(n) / rate * float64(time.Second))
}

// count adds the results of a batch, which are then no longer pending. A plan that was
// paused or cancelled meanwhile keeps its state.
func (p *Plan) count(results []planResult, now time.Time) {
	stop := ""
	for i := range results {
		if results[i].err == nil {
			p.Done++
			continue
		}
		p.Failed++
		if kind := errorKind(results[i].err); len(p.Request.Repair) > 0 && stop == "" && p.Errors[kind] == 0 && !expected(results[i].err) {
			stop = fmt.Sprintf("%s was refused: %s; resume goes on, whatever else is refused for that", results[i].Name, kind)
		}
		p.countError(results[i].err)
	}
	p.Pending, p.UpdatedAt, p.Problem = 0, now, ""
	p.Measured.count(p.Done+p.Failed, now)
	if p.Canary != nil {
		p.Canary.add(results)
	}
	p.finish(now)
	p.stop(stop, now)
}

// expected reports a refusal at which a repair does not stop.
func expected(err error) bool {
	kind := errorKind(err)
	return kind == errUnchanged.Error() || slices.ContainsFunc([]error{redrive.ErrNotFound, redrive.ErrState, redrive.ErrConflict}, func(e error) bool { return driver.ErrorName(e) == kind })
}

// finish ends a plan that has nothing left to do.
func (p *Plan) finish(now time.Time) {
	if p.Taken && p.Pending == 0 && !p.State.Final() && !p.tries() {
		p.State, p.EndedAt = Done, now
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

// errorKind is the name of a refusal, or, of an error without one, its text.
func errorKind(err error) string {
	return cmp.Or(driver.ErrorName(err), text.Clean(driver.MaskMessage(err.Error()), 200))
}
