package plan

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Preview is what a repair would make of a sample of its messages.
type Preview struct {
	Looked  int            // messages of the sample
	Changed int            // of these
	Refused map[string]int // of these, by kind as in Plan.Errors: unchanged, not-json, name-taken, masked, invalid and so on
	Before  int64          // bytes of the bodies that would change
	After   int64          // and what they would be
	// Diffs are the first, the last, the largest and the smallest of those that would change, and
	// four from in between.
	Diffs []Diff
}

// Diff is a message before and after a repair.
type Diff struct {
	Before, After redrive.Message
}

const (
	previewSample = 200
	previewParts  = 8 // by time
)

// sampled gathers a preview. Of all bodies it holds those that it shows.
type sampled struct {
	Preview
	seen                           map[redrive.Ref]bool
	first, last, largest, smallest *Diff
	between, few                   []Diff // the last of each part; the first of all
}

// preview repairs a sample, without changing anything: of a filter, messages from each eighth of the
// time between the first and the last death.
func (p *Plans) preview(ctx context.Context, plan *Plan, run *DryRun) (*Preview, error) {
	by, err := NewRepair(plan.Request.Repair)
	if err != nil {
		return nil, err
	}
	s := sampled{seen: make(map[redrive.Ref]bool), Preview: Preview{Refused: make(map[string]int)}}
	see := func(e *redrive.Entry) { s.see(p, plan, by, e) }
	if refs := plan.Request.Refs; len(refs) > 0 {
		err := p.read(ctx, refs[:min(len(refs), previewSample)], func(_ redrive.Ref, e *redrive.Entry) {
			if plan.admits(e) == nil {
				see(e)
			}
		})
		return s.result(), err
	}
	in, err := p.finder(&plan.Request)
	if err != nil {
		return nil, err
	}
	for _, q := range plan.parts(run.Causes) {
		for left := previewSample / previewParts; left > 0; {
			q.Limit = min(left, planLook)
			page, err := in.Find(ctx, q)
			if err != nil {
				return nil, err
			}
			for i := range page.Entries {
				see(&page.Entries[i])
			}
			left -= len(page.Entries)
			if q.After = page.Next; page.Next == "" || !page.Complete {
				break
			}
		}
		s.part()
	}
	return s.result(), nil
}

// parts are the queries of a sample: each eighth of the time in which the messages died.
func (p *Plan) parts(causes []driver.Cause) []redrive.Query {
	q := p.query(0)
	q.Bodies = true
	if len(causes) == 0 {
		return []redrive.Query{q}
	}
	first, last := causes[0].First, causes[0].Last
	for i := range causes {
		if causes[i].First.Before(first) {
			first = causes[i].First
		}
		if causes[i].Last.After(last) {
			last = causes[i].Last
		}
	}
	if last.After(p.Cutoff) {
		last = p.Cutoff
	}
	var parts []redrive.Query
	for i := range previewParts {
		part := q
		if since := first.Add(last.Sub(first) / previewParts * time.Duration(i)); since.After(q.Since) {
			part.Since = since
		}
		parts = append(parts, part)
	}
	end := q
	if last.After(q.Since) {
		end.Since = last
	}
	return append(parts, end)
}

// see counts one message of the sample.
func (s *sampled) see(p *Plans, plan *Plan, by *Repair, e *redrive.Entry) {
	if s.seen[e.Ref()] {
		return
	}
	s.seen[e.Ref()] = true
	s.Looked++
	edit, err := p.repair(&plan.Request, by, e)
	if err != nil {
		s.Refused[errorKind(err)]++
		return
	}
	d := Diff{Before: e.Message, After: e.Message}
	edit.Apply(&d.After)
	s.Changed++
	s.Before += int64(len(d.Before.Body))
	s.After += int64(len(d.After.Body))
	if s.first == nil {
		s.first = &d
	}
	if s.largest == nil || len(d.Before.Body) > len(s.largest.Before.Body) {
		s.largest = &d
	}
	if s.smallest == nil || len(d.Before.Body) < len(s.smallest.Before.Body) {
		s.smallest = &d
	}
	s.last = &d
	if len(s.few) < previewParts {
		s.few = append(s.few, d)
	}
}

// part ends a part of the sample, of which the last shows.
func (s *sampled) part() {
	if s.last != nil {
		s.between = append(s.between, *s.last)
	}
}

// result returns the preview with its diffs, each message once.
func (s *sampled) result() *Preview {
	shown := make(map[redrive.Ref]bool)
	add := func(d *Diff) {
		if d != nil && !shown[d.Before.Ref()] {
			shown[d.Before.Ref()] = true
			s.Diffs = append(s.Diffs, *d)
		}
	}
	add(s.first)
	add(s.last)
	add(s.largest)
	add(s.smallest)
	for i := 0; i < len(s.between) && len(s.Diffs) < previewParts; i += 2 {
		add(&s.between[i])
	}
	for i := 1; i < len(s.between) && len(s.Diffs) < previewParts; i += 2 {
		add(&s.between[i])
	}
	for i := 0; i < len(s.few) && len(s.Diffs) < previewParts; i++ {
		add(&s.few[i])
	}
	return &s.Preview
}
