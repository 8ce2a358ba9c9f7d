package memory

import (
	"context"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Update implements driver.Store.
func (s *Store) Update(ctx context.Context, sel driver.Selection, c driver.Change, limit int) ([]driver.Updated, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if err := s.enterExclusively(ctx); err != nil {
		return nil, err
	}
	defer s.step.Unlock()
	now := s.now()
	if limit <= 0 {
		limit = redrive.MaxPage
	}
	refs, condition := sel.Refs, sel.Query
	if len(refs) == 0 && sel.Query != nil {
		condition = nil // they were just found by it
		err := s.scan(sel.Query, now, func(_ *queue, it *item, _ cursor) bool {
			if it.matches(sel.Query) {
				refs = append(refs, it.msg.Ref())
			}
			return len(refs) < limit
		})
		if err != nil {
			return nil, err
		}
	}
	refs = refs[:min(len(refs), limit)]
	results := make([]driver.Updated, len(refs))
	for i, ref := range refs {
		results[i] = driver.Updated{Ref: ref}
		results[i].New, results[i].Err = s.change(ref, condition, &c, now)
	}
	return results, nil
}

// change changes one message, if it meets the condition, and returns its new name, if
// it has one.
func (s *Store) change(ref redrive.Ref, condition *redrive.Query, c *driver.Change, now int64) (redrive.Ref, error) {
	q := s.lookup(ref.Queue)
	if q == nil {
		return redrive.Ref{}, redrive.ErrNotFound
	}
	q.refresh(now)
	it := q.byID[ref.ID]
	if it == nil {
		return redrive.Ref{}, redrive.ErrNotFound
	}
	if condition != nil && (condition.Queue != "" && condition.Queue != ref.Queue || !it.matches(condition)) {
		return redrive.Ref{}, redrive.ErrState
	}
	needsDead := c.Action == driver.ActRedrive || c.Action == driver.ActArchive
	needsWaiting := c.Action == driver.ActKill || c.Action == driver.ActDueNow
	if it.place == leased || needsDead && !it.dead || needsWaiting && it.dead {
		return redrive.Ref{}, redrive.ErrState
	}
	c, err := c.For(&it.msg)
	if err != nil {
		return redrive.Ref{}, err
	}
	switch c.Action {
	case driver.ActRedrive:
		return s.redrive(q, it, c, now)
	case driver.ActDrop:
		if !it.dead {
			s.reply(it, redrive.OutcomeDrop, reasonOf(c), nil, now)
		}
		q.ledger.Dropped++
		q.release(it.memory, redrive.OutcomeDrop, reasonOf(c), now)
		q.remove(it, now)
	case driver.ActArchive:
		q.ledger.Archived++
		q.release(it.memory, redrive.OutcomeDead, it.reason, now)
		q.remove(it, now)
	case driver.ActKill:
		s.kill(q, it, c, now)
	case driver.ActEdit:
		q.edit(it, c.Edit, now)
		if c.Plan != "" {
			it.msg.Plan = c.Plan
		}
	case driver.ActDueNow:
		if c.Plan != "" {
			it.msg.Plan = c.Plan
		}
		if it.due > now { // what is due already keeps its place
			q.detach(it)
			it.due = now
			q.stand(it, now)
		}
	}
	return redrive.Ref{}, nil
}

// kill makes a dead letter of a waiting message, with the note as its failure history.
func (s *Store) kill(q *queue, it *item, c *driver.Change, now int64) {
	f := &redrive.Failure{At: moment(now), Attempt: it.attempts, Reason: reasonOf(c), Types: []string{"redrive.killed"}, Message: c.Note}
	f.Clean()
	it.record(f, false)
	s.reply(it, redrive.OutcomeDead, reasonOf(c), f, now)
	q.die(it, reasonOf(c), now)
}

func reasonOf(c *driver.Change) redrive.Reason {
	if c.Reason == 0 {
		return redrive.ReasonManual
	}
	return c.Reason
}

// reply publishes the result of a message that ends by a change, if it wants one.
func (s *Store) reply(it *item, o redrive.Outcome, reason redrive.Reason, f *redrive.Failure, now int64) {
	if m, ok := driver.ResultMessage(&it.msg, o, reason, f, nil); ok {
		_ = s.publishOne(&m, now) // there already is as good; a ReplyTo that names no queue has no taker
	}
}

// redrive gives a dead letter another life, here or in another queue.
func (s *Store) redrive(q *queue, it *item, c *driver.Change, now int64) (redrive.Ref, error) {
	if err := c.CheckRedrive(&it.msg, it.reason); err != nil {
		return redrive.Ref{}, err
	}
	if c.To != "" && c.To != q.name {
		return s.move(q, it, c, now)
	}
	q.edit(it, c.Edit, now)
	it.confirm(c)
	if !c.NewID {
		q.revive(it, c.Plan, 0, now)
		return redrive.Ref{}, nil
	}
	q.rename(it, now)
	q.revive(it, c.Plan, 0, now)
	return it.msg.Ref(), nil
}

// rename gives a message a new id; it keeps its place among those of its key.
func (q *queue) rename(it *item, now int64) {
	q.release(it.memory, 0, 0, now)
	it.memory = nil
	delete(q.byID, it.msg.ID)
	it.msg.EditedFrom = it.msg.Ref().String()
	it.msg.ID = redrive.NewID()
	q.byID[it.msg.ID] = it
}

// move redrives a dead letter into another queue.
func (s *Store) move(q *queue, it *item, c *driver.Change, now int64) (redrive.Ref, error) {
	to, old := s.queue(c.To), it.msg.Ref()
	if !c.NewID && (to.byID[old.ID] != nil || to.recall(old.ID, now) != nil) {
		return redrive.Ref{}, redrive.ErrConflict
	}
	q.edit(it, c.Edit, now)
	it.confirm(c)
	if c.NewID {
		q.rename(it, now)
	}
	moved := to.newItem()
	moved.msg, moved.history, moved.original, moved.token = it.msg, it.history, it.original, it.token
	moved.sum, moved.firstSum = it.sum, it.firstSum
	moved.msg.Queue, moved.msg.Origin = to.name, old.String()
	moved.redriven(c.Plan, now)
	moved.ordered = to.settings.OrderByKey && moved.msg.Key != ""
	moved.due, moved.seq = now, to.nextSeq()
	to.byID[moved.msg.ID] = moved
	if it.memory != nil {
		to.remember(moved, it.memory.hash, now)
	}
	q.release(it.memory, 0, 0, now)
	q.remove(it, now)
	q.ledger.MovedOut++
	to.ledger.MovedIn++
	to.enter(moved)
	to.stand(moved, now)
	return moved.msg.Ref(), nil
}

// edit replaces parts of a message that is not leased, and keeps the original. With
// another key it stands behind what that key holds.
func (q *queue) edit(it *item, e *redrive.Edit, now int64) {
	if e == nil {
		return
	}
	if it.original == nil {
		original := it.msg
		it.original, it.firstSum = &original, it.sum
	}
	moves := e.Key != nil && *e.Key != it.msg.Key
	inChain := it.chain != nil
	wasLeased := it.place == leased
	if moves && !wasLeased {
		q.detach(it)
	}
	if moves {
		q.unchain(it, now)
	}
	size, sound := it.msg.Size(), e.Body != nil || it.sound()
	e.Apply(&it.msg)
	if sound { // another key does not mend a body
		it.sum = driver.Checksum(&it.msg)
	}
	if driver.Restored(&it.msg, it.original) && driver.Checksum(it.original) == it.firstSum {
		it.original, it.sum = nil, it.firstSum
	}
	if !it.dead {
		q.bytes += int64(it.msg.Size() - size)
		it.held = false // what was claimed is not what is there
	}
	if !moves {
		return
	}
	it.ordered = q.settings.OrderByKey && it.msg.Key != ""
	if inChain || !it.dead {
		q.join(it)
	}
	if !wasLeased {
		q.stand(it, now)
	}
}

// sound reports whether a message is still as it was given. Who publishes gives the body away:
// one that was changed afterwards is not sound.
func (it *item) sound() bool { return driver.Checksum(&it.msg) == it.sum }

// confirm takes a corrupt dead letter as it is for what was meant.
func (it *item) confirm(c *driver.Change) {
	if c.ConfirmCorrupt && it.reason == redrive.ReasonCorrupt {
		it.sum = driver.Checksum(&it.msg)
	}
}
