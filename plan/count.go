package plan

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// DryRun is what a plan would do, without doing it.
type DryRun struct {
	// Total is how many messages match. By queue, reason, signature and state it is exact, and of up to
	// 200,000 that another plan changed.
	// More says that there may be more: by another filter, Examined messages were looked at.
	Total    int64
	More     bool
	Examined int64
	ByReason map[redrive.Reason]int64 // why they are dead
	Causes   []driver.Cause           // the largest; none for names or waiting messages
	// Refused counts what would be refused, by kind as in Plan.Errors. RefusedMore says
	// that not all messages were looked at for it.
	Refused     map[string]int64
	RefusedMore bool
	Cutoff      time.Time // now, by the store's clock
	Repair      *Preview  // of a plan with a Repair

	causes []string // signatures, the first maxCauses
	gone   []string // those of dead letters without a body, likewise
	part   bool     // ByReason is not of all
}

// cause notes a signature.
func (d *DryRun) cause(signature string) {
	if signature != "" && len(d.causes) < maxCauses && !slices.Contains(d.causes, signature) {
		d.causes = append(d.causes, signature)
	}
}

func (d *DryRun) refuse(kind string, n int64) {
	if n > 0 {
		d.Refused[kind] += n
	}
}

// found notes how many match.
func (d *DryRun) found(n driver.Count) {
	d.Total, d.More = n.N, !n.Complete
	if d.More {
		d.Examined = n.Examined
	}
}

// countWaiting counts what waits. Without a time counters know it by queue: what was published
// since the cutoff is no more than a moment's. What waits for a retry they know with what of it is in flight.
func (p *Plans) countWaiting(ctx context.Context, plan *Plan, run *DryRun) error {
	in, err := p.finder(&plan.Request)
	if err != nil {
		return err
	}
	q := plan.Request.Query
	if !q.Retrying {
		n, err := in.Count(ctx, q)
		run.found(n)
		return err
	}
	if rest := (redrive.Query{Queue: q.Queue, State: q.State, Retrying: true}); q == rest {
		counts, err := p.store.Counts(ctx, queueNames(q.Queue)...)
		if err != nil {
			return err
		}
		for i := range counts {
			run.Total += counts[i].Waiting[redrive.LaneRetry]
		}
		return p.failing(ctx, in, q, run)
	}
	n, err := in.Count(ctx, q)
	if run.found(n); err != nil {
		return err
	}
	return p.failing(ctx, in, q, run)
}

func queueNames(queue string) []string {
	if queue == "" {
		return nil
	}
	return []string{queue}
}

// failing notes of what the first of those failed that wait for a retry.
func (p *Plans) failing(ctx context.Context, in Finder, q redrive.Query, run *DryRun) error {
	if q.Signature != "" {
		run.cause(q.Signature)
		return nil
	}
	q.Bodies, q.Limit = true, planLook
	for range retryLooks {
		page, err := in.Find(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Entries {
			if f := page.Entries[i].History.Latest(); f != nil {
				run.cause(f.Signature)
			}
		}
		if q.After = page.Next; page.Next == "" || !page.Complete {
			break
		}
	}
	return nil
}

// countCauses counts dead letters, and by cause. The total is that of the cutoff; causes are
// counted without it unless the request asks for one, as counters know these.
func (p *Plans) countCauses(ctx context.Context, plan *Plan, run *DryRun) error {
	in, err := p.finder(&plan.Request)
	if err != nil {
		return err
	}
	q := plan.Request.Query
	q.State, q.Limit = redrive.StateDead, redrive.MaxPage
	causes, complete, err := in.Causes(ctx, q)
	if err != nil {
		return err
	}
	frozen := q
	frozen.Until = plan.Cutoff
	n, err := in.Count(ctx, frozen)
	if err == nil && !n.Complete && q.Plan != "" {
		n, err = countPlan(ctx, in, frozen)
	}
	if err != nil {
		return err
	}
	run.found(n)
	see := func(c *driver.Cause) {
		run.ByReason[c.Reason] += c.Count
		run.cause(c.Signature)
		if c.Type == driver.TypeBodyGone && len(run.gone) < maxCauses && !slices.Contains(run.gone, c.Signature) {
			run.gone = append(run.gone, c.Signature)
		}
	}
	counted := redrive.Query{Queue: q.Queue, Reason: q.Reason, Signature: q.Signature, State: q.State, Limit: q.Limit}
	if complete || q != counted {
		for i := range causes {
			see(&causes[i])
		}
	} else { // more than a page of them
		complete = true
		for c, err := range driver.AllCauses(ctx, in, q) {
			if err != nil {
				return err
			}
			see(c)
		}
	}
	if run.part = !complete; run.part && n.Complete && q.Reason != 0 {
		run.ByReason[q.Reason], run.part = n.N, false
	}
	run.Causes = causes[:min(len(causes), dryRunCauses)]
	return nil
}

// planCounted is how much of what another plan changed is counted.
const planCounted = 10 * redrive.Examined

// countPlan counts what another plan changed, which most stores find by an index: as long as few others
// are looked at for it.
func countPlan(ctx context.Context, in Finder, q redrive.Query) (n driver.Count, err error) {
	for q.Limit = redrive.MaxPage; n.N < planCounted && n.Examined-n.N < redrive.Examined; {
		page, err := in.Find(ctx, q)
		if err != nil {
			return n, err
		}
		n.N += int64(len(page.Entries))
		n.Examined += int64(page.Examined)
		if q.After = page.Next; page.Next == "" {
			n.Complete = true
			break
		}
	}
	return n, nil
}

// countRefused counts what a redrive by a filter would leave as it is.
func (p *Plans) countRefused(ctx context.Context, plan *Plan, run *DryRun) error {
	r, change := &plan.Request, plan.change()
	for reason, confirmed := range map[redrive.Reason]bool{redrive.ReasonUncertain: r.ConfirmUncertain, redrive.ReasonCorrupt: r.ConfirmCorrupt} {
		if err := change.CheckRedrive(&redrive.Message{}, reason); !confirmed && err != nil {
			run.refuse(errorKind(err), run.ByReason[reason])
			run.RefusedMore = run.RefusedMore || run.part
		}
	}
	if r.MaxRedrives > 0 {
		err := p.scan(ctx, r, plan.query(redrive.MaxPage), func(e *redrive.Entry) {
			if errors.Is(change.CheckRedrive(&e.Message, e.Reason), redrive.ErrLoop) {
				run.refuse(errorKind(redrive.ErrLoop), 1)
			}
		}, &run.RefusedMore)
		if err != nil {
			return err
		}
	}
	return p.countGone(ctx, plan, run)
}

// countGone counts the dead letters without a body that were not edited since.
func (p *Plans) countGone(ctx context.Context, plan *Plan, run *DryRun) error {
	change := plan.change()
	for _, signature := range run.gone {
		q := plan.query(redrive.MaxPage)
		q.Signature, q.Bodies = signature, true // of which there are none
		err := p.scan(ctx, &plan.Request, q, func(e *redrive.Entry) {
			if errors.Is(change.CheckRedrive(&e.Message, e.Reason), redrive.ErrBodyGone) {
				run.refuse(errorKind(redrive.ErrBodyGone), 1)
			}
		}, &run.RefusedMore)
		if err != nil {
			return err
		}
	}
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
			case r.Action != driver.ActRedrive:
			default:
				c := plan.change()
				err = c.CheckRedrive(&e.Message, e.Reason)
			}
			if err != nil {
				run.refuse(errorKind(err), 1)
			}
			run.Total++
			if e != nil && e.State == redrive.StateDead {
				run.ByReason[e.Reason]++
				if f := e.History.Latest(); f != nil {
					run.cause(f.Signature)
				}
			}
		}
	}
	return nil
}

// scan looks at the first pages of what a query of a plan's selects.
func (p *Plans) scan(ctx context.Context, r *Request, q redrive.Query, see func(*redrive.Entry), more *bool) error {
	in, err := p.finder(r)
	if err != nil {
		return err
	}
	for range dryRunScan {
		page, err := in.Find(ctx, q)
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
