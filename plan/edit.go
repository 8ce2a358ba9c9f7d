package plan

import (
	"context"
	"errors"
	"fmt"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// editBytes is how much is changed in one step of the store, more or less.
const editBytes = 4 << 20

// editing is the edits of a batch that were not handed to the store yet.
type editing struct {
	p     *Plans
	plan  *Plan
	again bool
	by    func(m *redrive.Entry) (*redrive.Edit, error)
	at    map[redrive.Ref]*planResult
	refs  []redrive.Ref
	edits map[redrive.Ref]driver.EditOf
	size  int
}

// edit repairs or restores the messages of a batch, and notes the results in it.
func (p *Plans) edit(ctx context.Context, plan *Plan, batch []planResult, again bool) error {
	e := editing{p: p, plan: plan, again: again, at: make(map[redrive.Ref]*planResult, len(batch)), edits: make(map[redrive.Ref]driver.EditOf)}
	e.by = func(m *redrive.Entry) (*redrive.Edit, error) { return original(m), nil }
	if plan.Request.Restore == "" {
		if _, err := p.finder(&plan.Request); err != nil { // it must know the view
			return err
		}
		repair, err := NewRepair(plan.Request.Repair)
		if err != nil {
			return err
		}
		e.by = func(m *redrive.Entry) (*redrive.Edit, error) { return p.repair(&plan.Request, repair, m) }
	}
	var refs []redrive.Ref
	for i := range batch {
		if batch[i].err == nil {
			refs = append(refs, batch[i].ref())
			e.at[batch[i].ref()] = &batch[i]
		}
	}
	var failed error
	err := p.read(ctx, refs, func(r redrive.Ref, m *redrive.Entry) {
		if e.take(e.at[r], m); e.size >= editBytes && failed == nil {
			failed = e.flush(ctx)
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	return e.flush(ctx)
}

// repair returns what a rule makes of a dead letter, unless that would tell more than may be seen.
func (p *Plans) repair(request *Request, by *Repair, m *redrive.Entry) (*redrive.Edit, error) {
	if m.Reason == redrive.ReasonCorrupt {
		return nil, redrive.ErrBodyCorrupt // it would pass for sound afterwards
	}
	if request.View != "" {
		edit, err := by.change(&m.Message)
		if err != nil {
			edit = new(redrive.Edit)
		}
		if by.tells(&m.Message, edit, func(m *redrive.Message) []byte { return p.o.Shown(request.View, m) }) {
			return nil, errMasked
		}
	}
	return by.Edit(&m.Message)
}

// original is the edit that undoes all edits.
func original(m *redrive.Entry) *redrive.Edit {
	o := m.Original
	if o == nil {
		return nil
	}
	headers, body := o.Headers, o.Body
	if headers == nil {
		headers = redrive.Headers{}
	}
	if body == nil {
		body = []byte{}
	}
	return &redrive.Edit{Body: body, Headers: &headers, Kind: &o.Kind, Key: &o.Key}
}

// take decides what becomes of one message.
func (e *editing) take(r *planResult, m *redrive.Entry) {
	if m == nil && e.again {
		r.Gone = true
		return
	}
	if e.ours(r, m) {
		return
	}
	err := e.plan.admits(m)
	restores := e.plan.Request.Restore != ""
	if err == nil && restores && (m.Original == nil || driver.Checksum(&m.Message) != r.Sum) {
		err = redrive.ErrConflict
	}
	var edit *redrive.Edit
	if err == nil {
		edit, err = e.by(m)
	}
	if err != nil {
		r.refuse(err)
		return
	}
	after := m.Message
	edit.Apply(&after)
	if !restores {
		r.Sum = driver.Checksum(&after)
	}
	e.refs = append(e.refs, m.Ref())
	e.edits[m.Ref()] = driver.EditOf{Edit: *edit, Sum: driver.Checksum(&m.Message)}
	e.size += len(after.Body)
}

// ours reports whether the plan changed a message already, and notes how it left it.
func (e *editing) ours(r *planResult, m *redrive.Entry) bool {
	if m == nil || m.Plan != e.plan.ID {
		return false
	}
	if e.plan.Request.Restore == "" {
		r.Sum = driver.Checksum(&m.Message)
	}
	return true
}

// flush has the store change what was taken.
func (e *editing) flush(ctx context.Context) error {
	if len(e.refs) == 0 {
		return nil
	}
	change := driver.Change{Action: driver.ActEdit, Plan: e.plan.ID, Edits: e.edits}
	q := redrive.Query{State: redrive.StateDead, Until: e.plan.Cutoff}
	results, err := e.p.store.Update(ctx, driver.Selection{Refs: e.refs, Query: &q}, change, len(e.refs))
	if err != nil {
		return err
	}
	var refused []redrive.Ref
	for i := range results {
		if results[i].Err != nil {
			e.at[results[i].Ref].refuse(results[i].Err)
			refused = append(refused, results[i].Ref)
		}
	}
	e.refs, e.edits, e.size = nil, make(map[redrive.Ref]driver.EditOf), 0
	// Another runner of the same plan may have been faster.
	return e.p.read(ctx, refused, func(r redrive.Ref, m *redrive.Entry) {
		if e.ours(e.at[r], m) {
			e.at[r].err, e.at[r].Err = nil, ""
		}
	})
}

// repaired returns the plan that a plan restores.
func (p *Plans) repaired(ctx context.Context, plan *Plan) (Plan, error) {
	of, err := p.Get(ctx, plan.Request.Restore)
	switch {
	case err != nil:
		return of, err
	case len(of.Request.Repair) == 0:
		return of, invalid("a restore of what is no repair", "name a plan with a repair")
	case of.State == Running:
		return of, &redrive.Error{Op: "plan", ID: of.ID, Err: fmt.Errorf("%w: the repair is running", redrive.ErrState), Hint: "pause or cancel it first"}
	}
	return of, nil
}

// chooseRepaired takes the next messages that a repair changed: by its results, and, beyond those
// that it kept, by what bears its id and is what its rule makes of what was published.
func (p *Plans) chooseRepaired(ctx context.Context, plan *Plan) (batch []planResult, err error) {
	of, err := p.repaired(ctx, plan)
	if err != nil {
		return nil, err
	}
	for len(batch) == 0 && plan.Looked < of.Records {
		r, err := p.store.GetRecord(ctx, planResultSpace, resultKey(of.ID, plan.Looked))
		plan.Looked++
		if errors.Is(err, redrive.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		results, err := decodeResults(&r)
		if err != nil {
			return nil, err
		}
		for i := range results {
			if results[i].err == nil && !results[i].Gone {
				batch = append(batch, planResult{Name: results[i].Name, Sum: results[i].Sum})
			}
		}
	}
	if len(batch) > 0 || of.retained() {
		plan.Taken = plan.Looked == of.Records && of.retained()
		return batch, nil
	}
	rule, err := NewRepair(of.Request.Repair)
	if err != nil {
		return nil, err
	}
	page, err := p.store.Find(ctx, redrive.Query{Queue: of.Request.Query.Queue, State: redrive.StateDead, Plan: of.ID, Until: plan.Cutoff, After: plan.Cursor, Limit: planLook, Bodies: true})
	for i := range page.Entries {
		m := &page.Entries[i]
		if m.Original == nil {
			continue
		}
		made, sum := *m.Original, driver.Checksum(&m.Message)
		if edit, err := rule.Edit(&made); err == nil {
			if edit.Apply(&made); driver.Checksum(&made) == sum {
				batch = append(batch, planResult{Name: m.Ref().String(), Sum: sum})
			}
		}
	}
	plan.Cursor, plan.Taken = page.Next, page.Next == ""
	return batch, err
}

// countRepaired counts what a restore finds of its repair.
func (p *Plans) countRepaired(ctx context.Context, plan *Plan, run *DryRun) error {
	of, err := p.repaired(ctx, plan)
	if err != nil {
		return err
	}
	plan.Request.Query.Queue, run.Total = of.Request.Query.Queue, of.Done
	looked := *plan
	for n := 0; !looked.Taken; {
		if n += planResultSlice; n > redrive.Examined/2 {
			run.RefusedMore = true
			break
		}
		batch, err := p.chooseRepaired(ctx, &looked)
		if err != nil {
			return err
		}
		e := editing{p: p, plan: plan, edits: make(map[redrive.Ref]driver.EditOf), by: func(m *redrive.Entry) (*redrive.Edit, error) { return original(m), nil }}
		refs := make([]redrive.Ref, len(batch))
		for i := range batch {
			refs[i] = batch[i].ref()
		}
		i := 0
		err = p.read(ctx, refs, func(_ redrive.Ref, m *redrive.Entry) {
			e.take(&batch[i], m)
			if batch[i].err != nil {
				run.refuse(errorKind(batch[i].err), 1)
			}
			clear(e.edits)
			i++
		})
		if err != nil {
			return err
		}
	}
	return nil
}
