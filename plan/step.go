package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// planLook is how many messages are read at once with their bodies.
const planLook = 16

// work changes the next batch of a plan: it writes down which messages it is about to
// change, changes them, and writes down the results. Who takes over in between finds
// the batch and does it again; what was changed already is recognised.
func (p *Plans) work(ctx context.Context, plan Plan) (Plan, int, error) {
	var batch []planResult
	var err error
	again := plan.Pending > 0
	if again {
		batch, err = p.pending(ctx, &plan)
	} else {
		batch, err = p.intend(ctx, &plan)
	}
	if err != nil || plan.Pending == 0 {
		return plan, 0, err
	}
	if err := p.carryOut(ctx, &plan, batch, again); err != nil {
		return plan, 0, err
	}
	plan, err = p.note(ctx, &plan, batch)
	return plan, len(batch), err
}

// pending reads the batch that a runner before left.
func (p *Plans) pending(ctx context.Context, plan *Plan) ([]planResult, error) {
	var batch []planResult
	for n := plan.Records - plan.Pending; n < plan.Records; n++ {
		r, err := p.store.GetRecord(ctx, planResultSpace, resultKey(plan.ID, n))
		if err != nil {
			return nil, fmt.Errorf("batch of plan %s: %w", plan.ID, err)
		}
		part, err := decodeResults(&r)
		if err != nil {
			return nil, err
		}
		batch = append(batch, part...)
	}
	return batch, nil
}

// intend chooses the next batch and writes it down. If somebody else changed the plan
// meanwhile nothing is done, and plan.Pending is 0.
func (p *Plans) intend(ctx context.Context, plan *Plan) ([]planResult, error) {
	next := *plan
	choose := p.chooseFound
	switch {
	case plan.Request.Restore != "":
		choose = p.chooseRepaired
	case len(plan.Request.Refs) > 0:
		choose = p.chooseNamed
	}
	batch, err := choose(ctx, &next)
	if err != nil {
		return nil, err
	}
	now, err := p.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	writes, err := resultWrites(plan.ID, plan.Records, batch)
	if err != nil {
		return nil, err
	}
	next.Pending, next.Records = len(writes), plan.Records+len(writes)
	next.UpdatedAt, next.Problem = now, ""
	next.finish(now)
	next.also = writes
	err = p.save(ctx, &next)
	if errors.Is(err, redrive.ErrVersion) {
		return nil, nil
	}
	if err == nil {
		*plan = next
	}
	return batch, err
}

// chooseFound takes the next messages that match.
func (p *Plans) chooseFound(ctx context.Context, plan *Plan) ([]planResult, error) {
	in, err := p.finder(&plan.Request)
	if err != nil {
		return nil, err
	}
	page, err := in.Find(ctx, plan.query(plan.batch()))
	if err != nil {
		return nil, err
	}
	batch := make([]planResult, len(page.Entries))
	for i := range page.Entries {
		e := &page.Entries[i]
		batch[i].Name, batch[i].Had, batch[i].From = e.Ref().String(), e.History.Count, e.Plan
	}
	plan.Cursor, plan.Taken = page.Next, page.Next == ""
	return batch, nil
}

// chooseNamed takes the next names.
func (p *Plans) chooseNamed(ctx context.Context, plan *Plan) ([]planResult, error) {
	left := plan.Request.Refs[min(plan.Named, len(plan.Request.Refs)):]
	refs := left[:min(len(left), plan.batch())]
	entries, err := p.store.Get(ctx, refs)
	if err != nil {
		return nil, err
	}
	batch := make([]planResult, len(refs))
	for i := range refs {
		batch[i].Name = refs[i].String()
		if err := plan.admits(entries[i]); err != nil {
			batch[i].refuse(err)
			continue
		}
		batch[i].Had, batch[i].From = entries[i].History.Count, entries[i].Plan
	}
	plan.Named += len(refs)
	plan.Taken = len(refs) == len(left)
	return batch, nil
}

// carryOut changes the messages of a batch and notes the results in it.
func (p *Plans) carryOut(ctx context.Context, plan *Plan, batch []planResult, again bool) error {
	if plan.Request.Action == driver.ActEdit {
		return p.edit(ctx, plan, batch, again)
	}
	refs := make([]redrive.Ref, 0, len(batch))
	at := make(map[redrive.Ref]*planResult, len(batch))
	for i := range batch {
		if batch[i].err == nil {
			refs = append(refs, batch[i].ref())
			at[batch[i].ref()] = &batch[i]
		}
	}
	if len(refs) == 0 {
		return nil
	}
	if plan.Request.Action == driver.ActArchive {
		if err := p.archive(ctx, refs); err != nil {
			return err
		}
	}
	q := plan.query(0)
	results, err := p.store.Update(ctx, driver.Selection{Refs: refs, Query: &q}, plan.change(), len(refs))
	if err != nil {
		return err
	}
	gone, err := p.forgive(ctx, plan, results, again)
	if err != nil {
		return err
	}
	for i := range results {
		r := at[results[i].Ref]
		if r == nil {
			continue
		}
		r.Gone = gone[results[i].Ref]
		if moved := results[i].New; moved != (redrive.Ref{}) && moved != results[i].Ref {
			r.New = moved.String()
		}
		if results[i].Err != nil {
			r.refuse(results[i].Err)
		}
	}
	return nil
}

// archive archives what is about to be removed; a batch that is done again may be
// archived again.
func (p *Plans) archive(ctx context.Context, refs []redrive.Ref) error {
	if p.o.Archive == nil {
		return &redrive.Error{Op: "plan", Err: errors.New("this process has no archive"), Hint: "configure one"}
	}
	for len(refs) > 0 {
		part := refs[:min(len(refs), planLook)]
		refs = refs[len(part):]
		found, err := p.store.Get(ctx, part)
		if err != nil {
			return err
		}
		var entries []redrive.Entry
		for _, e := range found {
			if e != nil && e.State == redrive.StateDead {
				entries = append(entries, *e)
			}
		}
		if err := p.o.Archive.Archive(ctx, entries); err != nil {
			return err
		}
	}
	return nil
}

// forgive counts as done what was refused only because this plan did it before, when
// its runner died between the change and the record of it. Of a batch that is done
// again that includes what is gone: this plan removed it, or another did meanwhile.
func (p *Plans) forgive(ctx context.Context, plan *Plan, results []driver.Updated, again bool) (gone map[redrive.Ref]bool, err error) {
	var refs []redrive.Ref
	gone = make(map[redrive.Ref]bool)
	for i := range results {
		switch err := results[i].Err; {
		case errors.Is(err, redrive.ErrNotFound) && again:
			results[i].Err = nil
			gone[results[i].Ref] = true
		case errors.Is(err, redrive.ErrState):
			refs = append(refs, results[i].Ref)
		}
	}
	ours := make(map[redrive.Ref]bool, len(refs))
	err = p.read(ctx, refs, func(r redrive.Ref, e *redrive.Entry) {
		gone[r] = e == nil && again
		ours[r] = e != nil && e.Plan == plan.ID || gone[r]
	})
	for i := range results {
		if ours[results[i].Ref] {
			results[i].Err = nil
		}
	}
	return gone, err
}

// read reads messages a few at a time, as they come with their bodies.
func (p *Plans) read(ctx context.Context, refs []redrive.Ref, see func(r redrive.Ref, e *redrive.Entry)) error {
	for len(refs) > 0 {
		part := refs[:min(len(refs), planLook)]
		refs = refs[len(part):]
		entries, err := p.store.Get(ctx, part)
		if err != nil {
			return err
		}
		for i, e := range entries {
			see(part[i], e)
		}
	}
	return nil
}

// note writes down the results of a batch, unless another runner did.
func (p *Plans) note(ctx context.Context, plan *Plan, batch []planResult) (Plan, error) {
	first := plan.Records - plan.Pending
	writes, err := resultWrites(plan.ID, first, batch)
	if err != nil {
		return *plan, err
	}
	took, err := takenWrites(ctx, p.store, plan.takes(batch), plan.retained())
	if err != nil {
		return *plan, err
	}
	return p.modify(ctx, plan.ID, func(now *Plan, at time.Time) (bool, error) {
		if now.Pending != plan.Pending || now.Records != plan.Records {
			return false, nil
		}
		now.also = slices.Concat(writes, took)
		if !now.retained() && !now.tries() { // a canary may have begun with this batch
			for i := range writes {
				now.also[i].Value, now.also[i].Expires = nil, 0
			}
		}
		now.count(batch, at)
		return true, nil
	})
}

// look sees what became of what a plan with a canary redrove, and draws the
// conclusion.
func (p *Plans) look(ctx context.Context, plan *Plan, s *runningPlan) error {
	now, err := p.store.Now(ctx)
	if err != nil {
		return err
	}
	s.skew = time.Until(now)
	if plan.tries() {
		return p.lookAtCanary(ctx, plan, now)
	}
	again, err := p.diedAgain(ctx, plan)
	if err != nil {
		return err
	}
	stop := plan.returned(again)
	if stop == "" && !plan.ramped(now) {
		return nil
	}
	since := plan.Canary.Since
	*plan, err = p.modify(ctx, plan.ID, func(plan *Plan, now time.Time) (bool, error) {
		if plan.State != Running || plan.Canary == nil || plan.tries() || !plan.Canary.Since.Equal(since) {
			return false, nil
		}
		full := plan.ramped(now)
		if full {
			plan.Canary.Stage = StageFull
		}
		plan.stop(stop, now)
		return full || stop != "", nil
	})
	return err
}

func (p *Plans) lookAtCanary(ctx context.Context, plan *Plan, now time.Time) error {
	var refs []redrive.Ref
	had := make(map[redrive.Ref]int)
	for n := plan.Canary.Record; n < plan.Records; n++ {
		r, err := p.store.GetRecord(ctx, planResultSpace, resultKey(plan.ID, n))
		if err != nil {
			return fmt.Errorf("canary of plan %s: %w", plan.ID, err)
		}
		results, err := decodeResults(&r)
		if err != nil {
			return err
		}
		for i := range results {
			if results[i].err == nil {
				refs = append(refs, results[i].now())
				had[results[i].now()] = results[i].Had
			}
		}
	}
	var seen canarySeen
	stand := make(map[redrive.Ref]*redrive.Entry, len(refs))
	err := p.read(ctx, refs, func(r redrive.Ref, e *redrive.Entry) {
		if stand[r] = e; e != nil {
			e.Body, e.Headers, e.Original = nil, nil, nil
		}
	})
	if err != nil {
		return err
	}
	took, _, err := p.takenOf(ctx, plan.ID)
	if err != nil {
		return err
	}
	for _, r := range refs {
		seen.look(plan, stand[r], had[r], took[r])
	}
	if plan.Request.Watch > 0 && len(seen.dead) == 0 {
		again, err := p.diedAgain(ctx, plan)
		if err != nil {
			return err
		}
		seen.comeBack(again)
	}
	before := *plan.Canary
	stop, through := plan.judge(&seen, now)
	if after := *plan.Canary; stop == "" && !through && after.Delivered == before.Delivered && after.Waiting == before.Waiting && after.Seen.Equal(before.Seen) {
		return nil
	}
	*plan, err = p.modify(ctx, plan.ID, func(plan *Plan, now time.Time) (bool, error) {
		if !plan.tries() || plan.Canary.Record != before.Record || plan.Canary.Size != before.Size {
			return false, nil // another canary, or a larger one
		}
		stop, through := plan.judge(&seen, now)
		if plan.UpdatedAt = now; plan.State != Running {
			return true, nil
		}
		if plan.stop(stop, now); through && plan.canaryTaken() {
			plan.Canary.Stage, plan.Canary.Since = StageRamp, now
			plan.finish(now)
		}
		return true, nil
	})
	return err
}

// stop stops a plan for a reason, if there is one.
func (p *Plan) stop(reason string, now time.Time) {
	if reason != "" && p.State == Running {
		p.State, p.Problem, p.UpdatedAt = Stopped, reason, now
	}
}

// diedAgain groups what a plan redrove and is dead again.
func (p *Plans) diedAgain(ctx context.Context, plan *Plan) ([]driver.Cause, error) {
	again, _, err := p.store.Causes(ctx, plan.again())
	return again, err
}

// again selects what the plan redrove and is dead again, since its look-out began.
func (p *Plan) again() redrive.Query {
	q := redrive.Query{State: redrive.StateDead, Plan: p.ID, Since: p.CreatedAt, Queue: p.target(), Limit: redrive.MaxPage}
	if p.Canary != nil {
		q.Since = p.Canary.Since
	}
	return q
}

// Targets are the queues that messages go to that the plan redrives; nil: any.
func (p *Plan) Targets() []string {
	if t := p.target(); t != "" {
		return []string{t}
	}
	var queues []string
	for _, r := range p.Request.Refs {
		queues = append(queues, r.Queue)
	}
	slices.Sort(queues)
	return slices.Compact(queues)
}

// target is the queue that all messages go to, or "".
func (p *Plan) target() string {
	if p.Request.To != "" {
		return p.Request.To
	}
	return p.Request.Query.Queue
}
