package redisstream

import (
	"context"
	"slices"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Update implements driver.Store. Every 100 messages are one atomic step.
func (s *Store) Update(ctx context.Context, sel driver.Selection, c driver.Change, limit int) ([]driver.Updated, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if limit <= 0 {
		limit = redrive.MaxPage
	}
	refs, condition := sel.Refs, sel.Query
	if len(refs) == 0 && sel.Query != nil {
		var err error
		if refs, err = s.names(ctx, *sel.Query, limit); err != nil {
			return nil, err
		}
	}
	refs = refs[:min(len(refs), limit)]
	results := make([]driver.Updated, len(refs))
	for i, ref := range refs {
		results[i].Ref = ref
	}
	for page := range slices.Chunk(results, stepPage) {
		if err := s.updatePage(ctx, page, condition, &c); err != nil {
			for i := range page {
				page[i].Err = err
			}
			if &page[0] == &results[0] {
				return nil, err
			}
		}
	}
	return results, nil
}

// names returns what a query selects, at most limit.
func (s *Store) names(ctx context.Context, q redrive.Query, limit int) (refs []redrive.Ref, err error) {
	q.Bodies = false
	for len(refs) < limit {
		q.Limit = min(limit-len(refs), redrive.MaxPage)
		page, err := s.Find(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range page.Entries {
			refs = append(refs, page.Entries[i].Ref())
		}
		if q.After = page.Next; page.Next == "" {
			break
		}
	}
	return refs, nil
}

// updateTries is how often a page is planned anew for messages that changed between its
// reading and its step.
const updateTries = 5

// updatePage changes a page of messages. It plans on what it read; the script refuses
// what changed since.
func (s *Store) updatePage(ctx context.Context, page []driver.Updated, condition *redrive.Query, c *driver.Change) error {
	if s.parts != nil {
		return s.updateParts(ctx, page, condition, c)
	}
	var which []int
	for i := range page {
		which = append(which, i)
	}
	for range updateTries {
		refs := make([]redrive.Ref, len(which))
		for n, i := range which {
			refs[n] = page[i].Ref
		}
		found, memories, err := s.lookup(ctx, refs)
		if err != nil {
			return err
		}
		st := s.step(ctx)
		var index []int
		for n, i := range which {
			o, err := s.change(found[n], memories[n], condition, c)
			if err == nil {
				err = st.add(o)
			}
			if page[i].Err = err; err != nil {
				continue
			}
			if o.to != nil || o.idTo != "" {
				page[i].New = o.it.msg.Ref()
			}
			index = append(index, i)
		}
		results, err := st.run(ctx, scriptStep)
		if err != nil {
			return err
		}
		which = which[:0]
		for n, i := range index {
			code := number(at(items(at(results, n)), 0))
			if page[i].Err = codeError(code); page[i].Err != nil {
				page[i].New = redrive.Ref{}
			}
			if code == codeChanged {
				which = append(which, i)
			}
		}
		if len(which) == 0 {
			break
		}
	}
	return nil
}

// change plans the change of one message, if it meets the condition.
func (s *Store) change(it *item, memories string, condition *redrive.Query, c *driver.Change) (*changeOp, error) {
	if it == nil {
		return nil, redrive.ErrNotFound
	}
	if condition != nil && (condition.Queue != "" && condition.Queue != it.q.name || !it.matches(condition)) {
		return nil, redrive.ErrState
	}
	needsDead := c.Action == driver.ActRedrive || c.Action == driver.ActArchive
	needsWaiting := c.Action == driver.ActKill || c.Action == driver.ActDueNow
	if it.leased || needsDead && !it.dead() || needsWaiting && it.dead() {
		return nil, redrive.ErrState
	}
	c, err := c.For(&it.msg)
	if err != nil {
		return nil, err
	}
	o := &changeOp{it: it, checks: true, what: "remove"}
	reason := c.Reason
	if reason == 0 {
		reason = redrive.ReasonManual
	}
	switch c.Action {
	case driver.ActRedrive:
		return o, s.redrive(o, memories, c)
	case driver.ActDrop:
		o.ledger = []any{"dropped", 1}
		o.memory = memory{outcome: redrive.OutcomeDrop, reason: reason, ended: true}
		if !it.dead() {
			o.reply(redrive.OutcomeDrop, reason, nil)
		}
	case driver.ActArchive:
		o.ledger = []any{"archived", 1}
		o.memory = memory{outcome: redrive.OutcomeDead, reason: it.reason, ended: true}
	case driver.ActKill:
		f := &redrive.Failure{At: moment(it.now), Attempt: int(it.attempts), Reason: reason, Types: []string{"redrive.killed"}, Message: c.Note}
		f.Clean()
		it.record(f, false)
		o.reply(redrive.OutcomeDead, reason, f)
		o.memory = memory{outcome: redrive.OutcomeDead, reason: reason}
		o.die(reason)
	case driver.ActEdit:
		it.edit(c.Edit)
		if c.Plan != "" {
			it.msg.Plan = c.Plan
		}
		o.stay()
		return o, o.follow()
	case driver.ActDueNow:
		if c.Plan != "" {
			it.msg.Plan = c.Plan
		}
		if it.due <= it.now { // what is due already keeps its place
			o.stay()
			return o, nil
		}
		o.what = "wait"
		it.dueIn(0)
	}
	return o, nil
}

// stay leaves the message where it is.
func (o *changeOp) stay() {
	it := o.it
	o.what = "wait"
	if it.dead() {
		o.what = "die"
		o.fields = it.fields()
	}
}

// reply adds the result of a message that ends, if it wants one.
func (o *changeOp) reply(outcome redrive.Outcome, reason redrive.Reason, f *redrive.Failure) {
	m, ok := driver.ResultMessage(&o.it.msg, outcome, reason, f, nil)
	if ok && m.Validate() == nil { // a ReplyTo that names no queue has no taker
		o.emits = append(o.emits, &newOp{m: &m, account: "published"})
	}
}

// redrive plans another life of a dead letter, here or in another queue.
func (s *Store) redrive(o *changeOp, memories string, c *driver.Change) error {
	it := o.it
	if err := c.CheckRedrive(&it.msg, it.reason); err != nil {
		return err
	}
	if it.reason == redrive.ReasonCorrupt && c.ConfirmCorrupt {
		it.sum = checksum{}
	}
	it.edit(c.Edit)
	old := it.msg.Ref()
	o.revive(c.Plan)
	if c.NewID {
		it.msg.EditedFrom, it.msg.ID = old.String(), it.q.s.newID()
		o.idTo = it.msg.ID
		it.flags &^= flagRemembered
		o.memory = memory{ended: true}
	}
	if c.To == "" || c.To == it.q.name {
		return o.follow()
	}
	o.to = s.queue(c.To)
	it.msg.Queue, it.msg.Origin = c.To, old.String()
	it.flags &^= flagOrdered
	o.ledger, o.ledgerTo = []any{"movedout", 1}, []any{"movedin", 1}
	o.memory = memory{ended: true}
	if len(memories) > 16 && !c.NewID {
		o.memory.moved = memories[:16]
	}
	return o.follow()
}
