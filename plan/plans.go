package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/deadletter"
	"github.com/redrive/redrive/driver"
)

// Where plans are kept, and how their runner waits.
const (
	planSpace    = "plans"
	planKeep     = 30 * 24 * time.Hour // a plan that ended
	planPoll     = 10 * time.Second    // for plans that others made
	planBusy     = time.Second         // while another runner works
	planFaultMax = 30 * time.Second    // after faults in a row, at most
	planSave     = 20                  // attempts to write a record that others write too

	dryRunScan   = 10 // pages that are looked at one by one
	dryRunCauses = 100
	retryLooks   = 8 // pages of what waits for a retry, looked at for their causes

	progressPages = 5 // of each state that are looked at
)

// Options configures [New]. Every field has a default.
type Options struct {
	// Instance names this process start. Defaults to a new id.
	Instance string
	// Logger gets a line when a plan ends and when it is in trouble. Defaults to
	// [slog.Default].
	Logger *slog.Logger
	// Archive is where [driver.ActArchive] takes dead letters before it removes them. Without
	// it there are no such plans.
	Archive deadletter.Archiver
	// Views returns what a plan looks for its messages in when its request has that
	// View, or nil for a View that it does not know. Such a plan is neither made nor
	// carried out where there is none: the store itself would look at everything.
	Views func(view string) Finder
	// Shown returns a body as a View shows it; nil: whole. A repair that would tell what does not
	// show is refused for a message.
	Shown func(view string, m *redrive.Message) []byte
	// Ended returns records that become durable in the step in which a plan ends. It may be
	// asked again about the same plan.
	Ended func(p *Plan) []driver.RecordWrite
}

// Finder finds what a query selects, as a [driver.Store] does.
type Finder interface {
	Find(ctx context.Context, q redrive.Query) (driver.Page, error)
	Causes(ctx context.Context, q redrive.Query) (causes []driver.Cause, complete bool, err error)
	Count(ctx context.Context, q redrive.Query) (driver.Count, error)
}

// Plans makes plans and carries them out. All methods are safe for concurrent use, in
// any number of processes of one store.
type Plans struct {
	store driver.Store
	o     Options
	wake  chan struct{} // a plan was made or resumed here
}

// New returns the plans of a store. Only [Plans.Run] carries them out.
func New(store driver.Store, o Options) *Plans {
	if o.Instance == "" {
		o.Instance = redrive.NewID()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &Plans{store: store, o: o, wake: make(chan struct{}, 1)}
}

// Create makes a plan, durably, with the store's present time as its cutoff. It
// returns an error that wraps [redrive.ErrInvalid] for a request that makes no sense. With the ID
// of a plan that is there, it returns that plan and [redrive.ErrDuplicate] if it was made by the
// same request, else [redrive.ErrConflict].
func (p *Plans) Create(ctx context.Context, r Request) (Plan, error) {
	if err := r.bounded(); err != nil {
		return Plan{}, err
	}
	if err := r.check(); err != nil {
		return Plan{}, err
	}
	if r.ID != "" {
		r.Fingerprint = r.fingerprint()
		if there, err := p.repeated(ctx, &r); !errors.Is(err, redrive.ErrNotFound) {
			return there, err
		}
	}
	plan, run, err := p.prepare(ctx, &r)
	if err != nil {
		return Plan{}, err
	}
	plan.Total, plan.TotalMore, plan.Examined = run.Total, run.More, run.Examined
	if plan.Lives() {
		plan.Causes = run.causes
	}
	value, err := encodePlan(&plan)
	if err != nil {
		return Plan{}, err
	}
	if len(value) > driver.MaxRecordSize-planReserve {
		return Plan{}, &redrive.Error{Op: "plan", Err: fmt.Errorf("%w plan: %d names and %d operations are more than a record holds", redrive.ErrInvalid, len(r.Refs), len(r.Repair)),
			Hint: "use a filter, or several plans"}
	}
	switch err := p.save(ctx, &plan); {
	case r.ID != "" && errors.Is(err, redrive.ErrVersion): // another try was faster
		return p.repeated(ctx, &r)
	case err != nil:
		return Plan{}, fmt.Errorf("plan %s: %w", plan.ID, err)
	}
	p.rouse()
	return plan, nil
}

// repeated returns the plan that is there under the ID of a request, and what [Plans.Create] says of it.
func (p *Plans) repeated(ctx context.Context, r *Request) (Plan, error) {
	there, err := p.Get(ctx, r.ID)
	if err != nil {
		return Plan{}, err
	}
	if there.Request.Fingerprint != r.Fingerprint {
		return Plan{}, &redrive.Error{Op: "plan", ID: r.ID, Err: fmt.Errorf("%w: there is a plan with this id and another request", redrive.ErrConflict), Hint: "use another id"}
	}
	return there, &redrive.Error{Op: "plan", ID: r.ID, Err: redrive.ErrDuplicate}
}

// DryRun counts what a plan made now would change, and what would be refused.
func (p *Plans) DryRun(ctx context.Context, r Request) (DryRun, error) {
	plan, run, err := p.prepare(ctx, &r)
	if err != nil {
		return DryRun{}, err
	}
	switch {
	case len(r.Repair) > 0:
		run.Repair, err = p.preview(ctx, &plan, &run)
	case len(r.Refs) == 0 && r.Action == driver.ActRedrive:
		err = p.countRefused(ctx, &plan, &run)
	}
	return run, err
}

// finder returns what a plan looks for its messages in.
func (p *Plans) finder(r *Request) (Finder, error) {
	if r.View == "" {
		return p.store, nil
	}
	if p.o.Views != nil && (p.o.Shown != nil || len(r.Repair) == 0) {
		if f := p.o.Views(r.View); f != nil {
			return f, nil
		}
	}
	return nil, &redrive.Error{Op: "plan", Err: fmt.Errorf("this process does not know the view %q", r.View), Hint: "let the daemon carry the plan out"}
}

// prepare checks a request and counts what it selects.
func (p *Plans) prepare(ctx context.Context, r *Request) (Plan, DryRun, error) {
	if err := r.check(); err != nil {
		return Plan{}, DryRun{}, err
	}
	if r.Action == driver.ActArchive && p.o.Archive == nil {
		return Plan{}, DryRun{}, &redrive.Error{Op: "plan", Err: fmt.Errorf("%w plan: there is no archive", redrive.ErrInvalid), Hint: "configure one, or drop"}
	}
	now, err := p.store.Now(ctx)
	if err != nil {
		return Plan{}, DryRun{}, fmt.Errorf("plan: %w", err)
	}
	plan := newPlan(cmp.Or(r.ID, redrive.NewID()), r, now)
	run := DryRun{ByReason: make(map[redrive.Reason]int64), Refused: make(map[string]int64), Cutoff: plan.Cutoff}
	switch {
	case r.Restore != "":
		err = p.countRepaired(ctx, &plan, &run)
	case len(r.Refs) > 0:
		err = p.countNamed(ctx, &plan, &run)
	case r.Query.State == redrive.StateWaiting:
		err = p.countWaiting(ctx, &plan, &run)
	default:
		err = p.countCauses(ctx, &plan, &run)
	}
	if err != nil {
		return Plan{}, DryRun{}, fmt.Errorf("plan: counting: %w", err)
	}
	return plan, run, nil
}

// Get returns a plan, or [redrive.ErrNotFound]. A plan is kept for 30 days after its end.
func (p *Plans) Get(ctx context.Context, id string) (Plan, error) {
	r, err := p.store.GetRecord(ctx, planSpace, id)
	if err != nil {
		return Plan{}, fmt.Errorf("plan %s: %w", id, err)
	}
	return decodePlan(&r)
}

// List returns all plans, the newest first, and at the end those that cannot be read.
func (p *Plans) List(ctx context.Context) ([]Plan, error) {
	const page = 100
	var all []Plan
	for after := ""; ; {
		records, err := p.store.ListRecords(ctx, planSpace, after, page)
		if err != nil {
			return nil, fmt.Errorf("plans: %w", err)
		}
		for i := range records {
			plan, err := decodePlan(&records[i])
			if err != nil { // it must not hide the others
				plan = Plan{ID: records[i].Key, State: Failed, Problem: err.Error()}
			}
			all = append(all, plan)
			after = records[i].Key
		}
		if len(records) < page {
			slices.SortStableFunc(all, func(a, b Plan) int { return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID)) })
			return all, nil
		}
	}
}

// Pause stops a plan until it is resumed. It returns [redrive.ErrState] if the plan has ended.
func (p *Plans) Pause(ctx context.Context, id string) error { return p.set(ctx, id, Paused) }

// Resume lets a plan go on that was paused or stopped by itself, at another pace if one is given. One
// that stopped begins with a canary, if it has one. It returns [redrive.ErrState] if the plan has ended.
func (p *Plans) Resume(ctx context.Context, id string, pace Pace) error {
	return p.alter(ctx, id, func(plan *Plan, now time.Time) (bool, error) {
		resumed, err := plan.set(Running, now)
		if err != nil {
			return false, err
		}
		changed, err := plan.adjust(pace, now)
		return resumed || changed, err
	})
}

// Change gives a plan another pace. It takes effect at once, also while the plan runs. It returns
// [redrive.ErrState] if the plan has ended.
func (p *Plans) Change(ctx context.Context, id string, pace Pace) error {
	return p.alter(ctx, id, func(plan *Plan, now time.Time) (bool, error) { return plan.adjust(pace, now) })
}

// Release lets a plan run that was proposed by another than by. Its Cutoff stays that of the proposal.
// It returns [redrive.ErrState] if the plan is none that waits for this.
func (p *Plans) Release(ctx context.Context, id, by string) error {
	return p.alter(ctx, id, func(plan *Plan, now time.Time) (bool, error) {
		err := plan.release(by, now)
		return err == nil, err
	})
}

// Cancel ends a plan; what it changed stays changed. It returns [redrive.ErrState] if the plan
// has ended otherwise.
func (p *Plans) Cancel(ctx context.Context, id string) error { return p.set(ctx, id, Cancelled) }

func (p *Plans) set(ctx context.Context, id string, to State) error {
	return p.alter(ctx, id, func(plan *Plan, now time.Time) (bool, error) { return plan.set(to, now) })
}

// alter changes a plan at somebody's wish.
func (p *Plans) alter(ctx context.Context, id string, f func(plan *Plan, now time.Time) (bool, error)) error {
	_, err := p.modify(ctx, id, f)
	if err == nil {
		p.rouse()
	}
	return err
}

// modify changes a plan's record, and does so again if another changed it meanwhile: f decides by the
// record as it is then.
func (p *Plans) modify(ctx context.Context, id string, f func(plan *Plan, now time.Time) (bool, error)) (Plan, error) {
	for range planSave {
		plan, err := p.Get(ctx, id)
		if err != nil {
			return Plan{}, err
		}
		now, err := p.store.Now(ctx)
		if err != nil {
			return Plan{}, fmt.Errorf("plan %s: %w", id, err)
		}
		if changed, err := f(&plan, now); err != nil || !changed {
			return plan, err
		}
		if plan.State.Final() {
			plan.Request.Refs = nil
		}
		if err := p.save(ctx, &plan); !errors.Is(err, redrive.ErrVersion) {
			return plan, err
		}
	}
	return Plan{}, &redrive.Error{Op: "plan", ID: id, Err: redrive.ErrVersion, Hint: "too many write the plan at once; try again"}
}

// save writes a plan that nobody has changed since it was read, and what is to be written in
// the same step.
func (p *Plans) save(ctx context.Context, plan *Plan) error {
	value, err := encodePlan(plan)
	if err != nil {
		return err
	}
	writes := append([]driver.RecordWrite{{Space: planSpace, Key: plan.ID, Value: value, Version: plan.version, Expires: plan.keepFor()}}, plan.also...)
	plan.also = nil
	if plan.State.Final() && p.o.Ended != nil {
		writes = append(writes, p.o.Ended(plan)...)
	}
	_, err = p.store.Apply(ctx, driver.Batch{Records: writes})
	return err
}

// rouse wakes the runner of this process.
func (p *Plans) rouse() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Results returns what became of the messages of a plan, in the order in which it
// worked on them, from the given cursor on, and the cursor of the next page; it is empty
// at the end. Of very large plans it knows the first 100,000 messages. Bodies are left
// out.
func (p *Plans) Results(ctx context.Context, id, after string, limit int) (results []Result, next string, err error) {
	plan, err := p.Get(ctx, id)
	if err != nil {
		return nil, "", err
	}
	var from, skip int
	if after != "" {
		if _, err := fmt.Sscanf(after, "%d.%d", &from, &skip); err != nil || from < 0 || skip < 0 {
			return nil, "", &redrive.Error{Op: "plan", ID: id, Err: fmt.Errorf("%w page cursor %q", redrive.ErrInvalid, after), Hint: "use the Next of the page before"}
		}
	}
	limit = (&redrive.Query{Limit: limit}).PageLimit()
	for n := from; n < plan.Records; n, skip = n+1, 0 {
		r, err := p.store.GetRecord(ctx, planResultSpace, resultKey(id, n))
		if errors.Is(err, redrive.ErrNotFound) { // beyond what it keeps, or too old
			continue
		}
		if err != nil {
			return nil, "", err
		}
		slice, err := decodeResults(&r)
		if err != nil {
			return nil, "", err
		}
		pending := n >= plan.Records-plan.Pending
		slice = slice[min(skip, len(slice)):]
		if room := limit - len(results); len(slice) > room {
			slice, next = slice[:room], fmt.Sprintf("%d.%d", n, skip+room)
		}
		if results, err = p.standing(ctx, &plan, slice, pending, results); err != nil || next != "" {
			return results, next, err
		}
	}
	return results, "", nil
}

// standing adds how messages stand now.
func (p *Plans) standing(ctx context.Context, plan *Plan, slice []planResult, pending bool, to []Result) ([]Result, error) {
	refs := make([]redrive.Ref, len(slice))
	for i := range slice {
		refs[i] = slice[i].now()
	}
	first, i := len(to), 0
	err := p.read(ctx, refs, func(_ redrive.Ref, e *redrive.Entry) {
		s := &slice[i]
		i++
		r := Result{Ref: s.ref(), Error: s.Err, Entry: e}
		if s.New != "" {
			r.New = s.now()
		}
		if e != nil {
			e.Body, e.Headers, e.Original = nil, nil, nil
		}
		to = append(to, r)
	})
	if err != nil {
		return to, err
	}
	var took map[redrive.Ref]bool
	if plan.Lives() {
		if took, _, err = p.takenOf(ctx, plan.ID); err != nil {
			return to, err
		}
	}
	for i := range slice {
		r := &to[first+i]
		r.Outcome = slice[i].outcome(plan, pending, r.Entry, took[refs[i]])
	}
	return to, nil
}

// Progress returns what became of all that a plan redrove.
func (p *Plans) Progress(ctx context.Context, plan *Plan) (Progress, error) {
	if !plan.Lives() {
		return Progress{Complete: true}, nil
	}
	if t := plan.Canary; t != nil && plan.State == Stopped && t.Waiting == 0 && int64(t.Size) == plan.Done {
		// The canary is all that it redrove. Others may have repaired or redriven of it since.
		return Progress{Delivered: int64(t.Delivered), DiedAgain: int64(t.Dead), Waiting: int64(t.Waiting), Complete: true}, nil
	}
	// What waits may die meanwhile, and what is dead may be taken: in this order it is seen at least once.
	out := Progress{Complete: true}
	living := redrive.Query{Plan: plan.ID, Queue: plan.target(), Limit: redrive.MaxPage}
	for _, living.State = range []redrive.State{redrive.StateWaiting, redrive.StateLeased, redrive.StateBlocked} {
		living.After = ""
		for range progressPages {
			page, err := p.store.Find(ctx, living)
			if err != nil {
				return Progress{}, err
			}
			out.Waiting += int64(len(page.Entries))
			if living.After = page.Next; page.Next == "" {
				break
			}
		}
		out.Complete = out.Complete && living.After == ""
	}
	q := plan.again()
	q.Since = plan.CreatedAt
	again, complete, err := p.store.Causes(ctx, q)
	if err != nil {
		return Progress{}, err
	}
	out.Complete = out.Complete && complete
	for i := range again {
		out.DiedAgain += again[i].Count
		if !plan.known(again[i].Signature) {
			out.NewCauses += again[i].Count
		}
	}
	if _, out.Taken, err = p.takenOf(ctx, plan.ID); err != nil {
		return Progress{}, err
	}
	out.Delivered = max(plan.Done-out.DiedAgain-out.Waiting-out.Taken, 0)
	return out, nil
}
