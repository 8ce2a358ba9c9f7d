package redrive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
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
	dryRunGroups = 100
)

// PlansOptions configures [NewPlans]. Every field has a default.
type PlansOptions struct {
	// Instance names this process start. Defaults to a new id.
	Instance string
	// Logger gets a line when a plan ends and when it is in trouble. Defaults to
	// discarding.
	Logger *slog.Logger
}

// Plans makes plans and carries them out. All methods are safe for concurrent use, in
// any number of processes of one store.
type Plans struct {
	store Store
	o     PlansOptions
	wake  chan struct{} // a plan was made or resumed here
}

// NewPlans returns the plans of a store. Only [Plans.Run] carries them out.
func NewPlans(store Store, o PlansOptions) *Plans {
	if o.Instance == "" {
		o.Instance = NewID()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Plans{store: store, o: o, wake: make(chan struct{}, 1)}
}

// Create makes a plan, durably, with the store's present time as its cutoff. It
// returns an error that wraps [ErrInvalid] for a request that makes no sense.
func (p *Plans) Create(ctx context.Context, r PlanRequest) (Plan, error) {
	plan, run, err := p.prepare(ctx, &r)
	if err != nil {
		return Plan{}, err
	}
	plan.Total, plan.TotalMore = run.Total, run.More
	value, err := encodePlan(&plan)
	if err != nil {
		return Plan{}, err
	}
	if len(value) > MaxRecordSize-planReserve {
		return Plan{}, &Error{Op: "plan", Err: fmt.Errorf("%w plan: %d names are more than a record holds", ErrInvalid, len(r.Refs)),
			Hint: "use a filter, or several plans"}
	}
	if err := p.write(ctx, plan.ID, value, 0, 0); err != nil {
		return Plan{}, fmt.Errorf("plan %s: %w", plan.ID, err)
	}
	p.rouse()
	return plan, nil
}

// DryRun counts what a plan made now would change, and what would be refused.
func (p *Plans) DryRun(ctx context.Context, r PlanRequest) (DryRun, error) {
	plan, run, err := p.prepare(ctx, &r)
	if err != nil {
		return DryRun{}, err
	}
	if len(r.Refs) == 0 && r.Action == ActRedrive {
		if !r.ConfirmUncertain {
			run.refuse("uncertain", run.ByReason[ReasonUncertain])
		}
		if r.MaxRedrives > 0 {
			err = p.scan(ctx, &plan, func(e *Entry) {
				if e.Redrives >= r.MaxRedrives && (e.Reason != ReasonUncertain || r.ConfirmUncertain) {
					run.refuse("loop", 1)
				}
			}, &run.RefusedMore)
		}
	}
	return run, err
}

// prepare checks a request and counts what it selects.
func (p *Plans) prepare(ctx context.Context, r *PlanRequest) (Plan, DryRun, error) {
	if err := r.check(); err != nil {
		return Plan{}, DryRun{}, err
	}
	now, err := p.store.Now(ctx)
	if err != nil {
		return Plan{}, DryRun{}, fmt.Errorf("plan: %w", err)
	}
	plan := newPlan(NewID(), r, now)
	run := DryRun{ByReason: make(map[Reason]int64), Refused: make(map[string]int64), Cutoff: plan.Cutoff}
	switch {
	case len(r.Refs) > 0:
		err = p.countNamed(ctx, &plan, &run)
	case r.Query.State == StateWaiting:
		err = p.scan(ctx, &plan, func(*Entry) { run.Total++ }, &run.More)
	default:
		err = p.countGroups(ctx, &plan, &run)
	}
	if err != nil {
		return Plan{}, DryRun{}, fmt.Errorf("plan: counting: %w", err)
	}
	return plan, run, nil
}

func (p *Plans) countGroups(ctx context.Context, plan *Plan, run *DryRun) error {
	groups, complete, err := p.store.Groups(ctx, plan.query(MaxPage))
	if err != nil {
		return err
	}
	for i := range groups {
		run.Total += groups[i].Count
		run.ByReason[groups[i].Reason] += groups[i].Count
	}
	run.More = !complete
	run.Groups = groups[:min(len(groups), dryRunGroups)]
	return nil
}

// countNamed looks at each named message.
func (p *Plans) countNamed(ctx context.Context, plan *Plan, run *DryRun) error {
	r := &plan.Request
	for refs := range slices.Chunk(r.Refs, planNamed) {
		entries, err := p.store.Get(ctx, refs)
		if err != nil {
			return err
		}
		for _, e := range entries {
			err := plan.admits(e)
			switch {
			case err != nil:
			case r.Action != ActRedrive:
			case e.Reason == ReasonUncertain && !r.ConfirmUncertain:
				err = ErrUncertain
			case r.MaxRedrives > 0 && e.Redrives >= r.MaxRedrives:
				err = ErrLoop
			}
			if err != nil {
				run.refuse(errorKind(err), 1)
			}
			run.Total++
			if e != nil && e.State == StateDead {
				run.ByReason[e.Reason]++
			}
		}
	}
	return nil
}

// scan looks at the first pages of what a plan selects.
func (p *Plans) scan(ctx context.Context, plan *Plan, see func(*Entry), more *bool) error {
	q := plan.query(MaxPage)
	for range dryRunScan {
		page, err := p.store.Find(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Entries {
			see(&page.Entries[i])
		}
		if page.Next == "" {
			return nil
		}
		q.After = page.Next
	}
	*more = true
	return nil
}

// Get returns a plan, or [ErrNotFound]. A plan is kept for 30 days after its end.
func (p *Plans) Get(ctx context.Context, id string) (Plan, error) {
	r, err := p.store.GetRecord(ctx, planSpace, id)
	if err != nil {
		return Plan{}, fmt.Errorf("plan %s: %w", id, err)
	}
	return decodePlan(&r)
}

// List returns all plans, the newest first.
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
				plan = Plan{ID: records[i].Key, State: PlanFailed, Problem: err.Error()}
			}
			all = append(all, plan)
			after = records[i].Key
		}
		if len(records) < page {
			slices.Reverse(all) // keys are ids in order of time
			return all, nil
		}
	}
}

// Pause stops a plan until it is resumed. It returns [ErrState] if the plan has ended.
func (p *Plans) Pause(ctx context.Context, id string) error { return p.set(ctx, id, PlanPaused) }

// Resume lets a paused plan go on. It returns [ErrState] if the plan has ended.
func (p *Plans) Resume(ctx context.Context, id string) error { return p.set(ctx, id, PlanRunning) }

// Cancel ends a plan; what it changed stays changed. It returns [ErrState] if the plan
// has ended otherwise.
func (p *Plans) Cancel(ctx context.Context, id string) error { return p.set(ctx, id, PlanCancelled) }

func (p *Plans) set(ctx context.Context, id string, to PlanState) error {
	_, err := p.modify(ctx, id, func(plan *Plan, now time.Time) (bool, error) { return plan.set(to, now) })
	if err == nil {
		p.rouse()
	}
	return err
}

// modify changes a plan's record, and does so again if another changed it meanwhile.
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
		var keep time.Duration
		if plan.State.Final() {
			keep, plan.Request.Refs = planKeep, nil
		}
		value, err := encodePlan(&plan)
		if err != nil {
			return Plan{}, err
		}
		if err = p.write(ctx, id, value, plan.version, keep); !errors.Is(err, ErrVersion) {
			return plan, err
		}
	}
	return Plan{}, &Error{Op: "plan", ID: id, Err: ErrVersion, Hint: "too many write the plan at once; try again"}
}

func (p *Plans) write(ctx context.Context, id string, value []byte, version int64, keep time.Duration) error {
	_, err := p.store.Apply(ctx, Batch{Records: []RecordWrite{{Space: planSpace, Key: id, Value: value, Version: version, Expires: keep}}})
	return err
}

// rouse wakes the runner of this process.
func (p *Plans) rouse() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run carries out the plans of the store until ctx ends, and then returns nil. One
// process at a time does so: it holds a record as its lease. A plan that was
// interrupted goes on where it stopped. It may be called once.
func (p *Plans) Run(ctx context.Context) error {
	r := planRunner{p: p, lease: recordLease{store: p.store, key: planSpace, holder: p.o.Instance}, plans: make(map[string]*runningPlan)}
	defer r.lease.release(ctx)
	for {
		t := time.NewTimer(r.round(ctx))
		select {
		case <-t.C:
		case <-p.wake:
			r.listAt = time.Time{}
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// planRunner is the state of Run.
type planRunner struct {
	p      *Plans
	lease  recordLease
	listAt time.Time // when to look for plans again
	plans  map[string]*runningPlan
}

type runningPlan struct {
	next   time.Time // of its next step
	faults int       // in a row
}

// round takes a step of every plan whose time has come, and returns how long there is
// nothing to do.
func (r *planRunner) round(ctx context.Context) time.Duration {
	if !time.Now().Before(r.listAt) {
		if err := r.list(ctx); err != nil {
			r.trouble(ctx, "plans cannot be read", "", err)
			return planBusy
		}
	}
	if len(r.plans) == 0 {
		r.lease.release(ctx)
		return time.Until(r.listAt)
	}
	mine, err := r.lease.hold(ctx)
	if err != nil {
		r.trouble(ctx, "the lease of the plans cannot be taken", "", err)
	}
	if !mine {
		return planBusy
	}
	for id, s := range r.plans {
		if !time.Now().Before(s.next) && ctx.Err() == nil {
			r.step(ctx, id, s)
		}
	}
	next := min(time.Until(r.listAt), recordLeaseTTL/3)
	for _, s := range r.plans {
		next = min(next, time.Until(s.next))
	}
	return next
}

// list notes which plans run.
func (r *planRunner) list(ctx context.Context) error {
	all, err := r.p.List(ctx)
	if err != nil {
		return err
	}
	r.listAt = time.Now().Add(planPoll)
	running := make(map[string]*runningPlan)
	for i := range all {
		if all[i].State != PlanRunning {
			continue
		}
		s := r.plans[all[i].ID]
		if s == nil {
			s = new(runningPlan)
		}
		running[all[i].ID] = s
	}
	r.plans = running
	return nil
}

// step changes one batch of a plan.
func (r *planRunner) step(ctx context.Context, id string, s *runningPlan) {
	began := time.Now()
	plan, err := r.p.Get(ctx, id)
	if err == nil && plan.State != PlanRunning || errors.Is(err, ErrNotFound) {
		delete(r.plans, id)
		return
	}
	var g progress
	if err == nil {
		g, err = r.p.work(ctx, &plan)
	}
	if err == nil {
		plan, err = r.p.modify(ctx, id, func(plan *Plan, now time.Time) (bool, error) {
			plan.advance(&g, now)
			return true, nil
		})
	}
	if err != nil {
		r.fault(ctx, id, s, err)
		return
	}
	s.faults, s.next = 0, began.Add(plan.pace(len(g.results)))
	if plan.State != PlanRunning {
		delete(r.plans, id)
		r.p.o.Logger.LogAttrs(ctx, slog.LevelInfo, "plan "+plan.State.String(), slog.String("plan", id), slog.String("action", plan.Request.Action.String()),
			slog.Int64("done", plan.Done), slog.Int64("failed", plan.Failed))
	}
}

// fault repeats a step later, or ends a plan that cannot be carried out.
func (r *planRunner) fault(ctx context.Context, id string, s *runningPlan, err error) {
	if ctx.Err() != nil {
		return
	}
	r.trouble(ctx, "a step of a plan failed", id, err)
	lasting := errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnsupported) || errors.Is(err, ErrCorrupt)
	s.faults++
	s.next = time.Now().Add(min(planBusy<<min(s.faults-1, 10), planFaultMax))
	_, _ = r.p.modify(ctx, id, func(plan *Plan, now time.Time) (bool, error) { // if this fails too, the log has it
		plan.Problem = cleanText(err.Error(), 1024)
		if !lasting {
			return true, nil
		}
		return plan.set(PlanFailed, now)
	})
	if lasting {
		delete(r.plans, id)
	}
}

func (r *planRunner) trouble(ctx context.Context, what, id string, err error) {
	if ctx.Err() == nil {
		r.p.o.Logger.LogAttrs(ctx, slog.LevelWarn, what, slog.String("plan", id), slog.Any("error", err))
	}
}

// work changes the next batch of a plan.
func (p *Plans) work(ctx context.Context, plan *Plan) (progress, error) {
	if len(plan.Request.Refs) > 0 {
		return p.workNamed(ctx, plan)
	}
	// Update alone cannot tell where it stopped, and what it refuses would come first
	// again; so a page is looked at, then as many are changed from the same place on.
	// Update checks the query once more, so that nothing is changed twice.
	q := plan.query(plan.batch())
	page, err := p.store.Find(ctx, q)
	if err != nil {
		return progress{}, err
	}
	g := progress{fromCursor: plan.Cursor, cursor: page.Next, end: page.Next == ""}
	if len(page.Entries) > 0 {
		g.results, err = p.store.Update(ctx, Selection{Query: &q}, plan.change(), len(page.Entries))
	}
	return g, err
}

func (p *Plans) workNamed(ctx context.Context, plan *Plan) (progress, error) {
	left := plan.Request.Refs[min(plan.Named, len(plan.Request.Refs)):]
	batch := left[:min(len(left), plan.batch())]
	g := progress{fromNamed: plan.Named, named: len(batch), end: len(batch) == len(left)}
	if len(batch) == 0 {
		return g, nil
	}
	q := plan.query(0)
	results, err := p.store.Update(ctx, Selection{Refs: batch, Query: &q}, plan.change(), len(batch))
	if err != nil {
		return g, err
	}
	g.results = results
	return g, p.forgive(ctx, plan, results)
}

// forgive counts as done what was refused only because this plan did it before, when
// its runner died between the change and the record of it.
func (p *Plans) forgive(ctx context.Context, plan *Plan, results []Updated) error {
	var refs []Ref
	for i := range results {
		if errors.Is(results[i].Err, ErrState) {
			refs = append(refs, results[i].Ref)
		}
	}
	if len(refs) == 0 {
		return nil
	}
	entries, err := p.store.Get(ctx, refs)
	if err != nil {
		return err
	}
	ours := make(map[Ref]bool, len(entries))
	for _, e := range entries {
		if e != nil && e.Plan == plan.ID {
			ours[e.Ref()] = true
		}
	}
	for i := range results {
		if ours[results[i].Ref] {
			results[i].Err = nil
		}
	}
	return nil
}

// admits reports why a named message is not the plan's to change, or nil.
func (p *Plan) admits(e *Entry) error {
	switch dead := p.Request.Query.State == StateDead; {
	case e == nil:
		return ErrNotFound
	case dead != (e.State == StateDead), dead && e.DiedAt.After(p.Cutoff):
		return ErrState
	}
	return nil
}

// recordLease is a record with an expiry by which one process of many does what must
// be done once.
type recordLease struct {
	store  Store
	key    string
	holder string

	version int64 // of the record; 0: not held
	renewAt time.Time
}

const (
	leaseSpace     = "leases"
	recordLeaseTTL = 15 * time.Second
)

// hold takes or renews the lease, and reports whether it is ours.
func (l *recordLease) hold(ctx context.Context) (bool, error) {
	now := time.Now()
	if l.version != 0 && now.Before(l.renewAt) {
		return true, nil
	}
	version := l.version
	l.version = 0
	if version == 0 {
		r, err := l.store.GetRecord(ctx, leaseSpace, l.key)
		switch {
		case err == nil && string(r.Value) != l.holder:
			return false, nil
		case err == nil:
			version = r.Version
		case !errors.Is(err, ErrNotFound):
			return false, err
		}
	}
	_, err := l.store.Apply(ctx, Batch{Records: []RecordWrite{{Space: leaseSpace, Key: l.key, Value: []byte(l.holder), Version: version, Expires: recordLeaseTTL}}})
	if errors.Is(err, ErrVersion) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r, err := l.store.GetRecord(ctx, leaseSpace, l.key)
	if err != nil || string(r.Value) != l.holder {
		return false, err
	}
	l.version, l.renewAt = r.Version, now.Add(recordLeaseTTL/3)
	return true, nil
}

// release gives the lease back, so that another need not wait for it to expire.
func (l *recordLease) release(ctx context.Context) {
	if l.version == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = l.store.Apply(ctx, Batch{Records: []RecordWrite{{Space: leaseSpace, Key: l.key, Version: l.version}}}) // else it expires
	l.version = 0
}
