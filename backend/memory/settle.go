package memory

import (
	"context"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Settle implements driver.Source.
func (s *Store) Settle(ctx context.Context, list []driver.Settlement) []error {
	if slices.ContainsFunc(list, func(t driver.Settlement) bool { return len(t.Emit) > 0 }) {
		return s.settleExclusively(ctx, list)
	}
	if err := s.enter(ctx); err != nil {
		return failAll(len(list), err)
	}
	defer s.step.RUnlock()
	var (
		errs []error
		q    *queue
		now  = s.now()
	)
	for i := range list {
		t := &list[i]
		if err := t.Validate(); err != nil {
			errs = result(errs, i, len(list), err)
			continue
		}
		if q == nil || q.name != t.Receipt.Queue {
			if q != nil {
				q.mu.Unlock()
			}
			if q = s.lookup(t.Receipt.Queue); q == nil {
				errs = result(errs, i, len(list), redrive.ErrNotFound)
				continue
			}
			q.mu.Lock()
			q.refresh(now)
		}
		it, err := q.holds(&t.Receipt)
		if err == nil {
			err = q.settle(it, t, now)
		}
		errs = result(errs, i, len(list), err)
	}
	if q != nil {
		q.mu.Unlock()
	}
	return errs
}

// settleExclusively settles what emits into other queues.
func (s *Store) settleExclusively(ctx context.Context, list []driver.Settlement) []error {
	if err := s.enterExclusively(ctx); err != nil {
		return failAll(len(list), err)
	}
	defer s.step.Unlock()
	var errs []error
	now := s.now()
	for i := range list {
		errs = result(errs, i, len(list), s.settleEmitting(&list[i], now))
	}
	return errs
}

func (s *Store) settleEmitting(t *driver.Settlement, now int64) error {
	if err := t.Validate(); err != nil {
		return err
	}
	q := s.lookup(t.Receipt.Queue)
	if q == nil {
		return redrive.ErrNotFound
	}
	q.refresh(now)
	it, err := q.holds(&t.Receipt)
	if err != nil {
		return err
	}
	if err := s.checkEmits(t.Emit, now); err != nil {
		return err
	}
	if err := q.settle(it, t, now); err != nil {
		return err
	}
	for i := range t.Emit {
		_ = s.publishOne(&t.Emit[i], now) // it was checked; what is there already counts as done
	}
	return nil
}

// holds returns the item of a receipt that is still the newest claim's.
func (q *queue) holds(r *redrive.Receipt) (*item, error) {
	it := q.byID[r.ID]
	switch {
	case it == nil:
		return nil, redrive.ErrNotFound
	case !it.held || it.token != r.Token:
		return nil, redrive.ErrLeaseLost
	}
	return it, nil
}

// settle carries one settlement out.
func (q *queue) settle(it *item, t *driver.Settlement, now int64) error {
	if it.dead {
		return q.settleDead(it, t, now)
	}
	if it.lapsed {
		q.unlapse(it)
	}
	switch t.Outcome {
	case redrive.OutcomeDone:
		q.ledger.Done++
		q.release(it.memory, t.Outcome, 0, now)
		q.remove(it, now)
	case redrive.OutcomeDrop:
		q.ledger.Dropped++
		q.release(it.memory, t.Outcome, t.Reason, now)
		q.remove(it, now)
	case redrive.OutcomeDead:
		it.record(t.Failure, true)
		q.die(it, t.Reason, now)
	case redrive.OutcomeRetry:
		it.record(t.Failure, true)
		q.giveBack(it, t.After, now, redrive.LaneRetry, false)
	case redrive.OutcomeRelease:
		it.record(t.Failure, false)
		it.attempts--
		q.giveBack(it, t.After, now, it.lane, it.suspect)
	case redrive.OutcomeRepeat:
		q.ledger.Done++
		q.ledger.Repeated++
		q.repeat(it, t.After, now)
	}
	return nil
}

// giveBack makes a claimed item wait again.
func (q *queue) giveBack(it *item, after time.Duration, now int64, l redrive.Lane, suspect bool) {
	q.detach(it)
	q.setLane(it, l)
	it.suspect, it.held, it.isolated = suspect, false, false
	it.due = later(now, after)
	q.stand(it, now)
}

// repeat starts the next generation of a recurring message, behind what waits.
func (q *queue) repeat(it *item, after time.Duration, now int64) {
	q.detach(it)
	q.unchain(it, now)
	q.leave(it)
	it.msg.Generation++
	it.msg.PublishedAt = moment(now)
	it.attempts, it.failures, it.crashes = 0, 0, 0
	it.history, it.original = redrive.History{}, nil
	it.suspect, it.held, it.isolated = false, false, false
	it.lane = redrive.LaneFresh
	it.due = later(now, after)
	it.seq = q.nextSeq()
	it.memory.revive(now)
	q.enter(it)
	q.stand(it, now)
}

// settleDead settles a dead letter that was claimed.
func (q *queue) settleDead(it *item, t *driver.Settlement, now int64) error {
	switch t.Outcome {
	case redrive.OutcomeDone:
		q.ledger.Done++
		q.release(it.memory, t.Outcome, 0, now)
		q.remove(it, now)
	case redrive.OutcomeDrop:
		q.ledger.Dropped++
		q.release(it.memory, t.Outcome, t.Reason, now)
		q.remove(it, now)
	case redrive.OutcomeRepeat:
		q.edit(it, t.Edit, now)
		q.revive(it, "", t.After, now)
	case redrive.OutcomeRetry:
		q.recordDead(it, t.Failure)
		q.keepDead(it, later(now, t.After), now)
	case redrive.OutcomeRelease:
		it.attempts--
		q.keepDead(it, later(now, t.After), now)
	case redrive.OutcomeDead:
		q.edit(it, t.Edit, now)
		q.recordDead(it, t.Failure)
		q.keepDead(it, now, now)
	}
	return nil
}

// keepDead leaves a claimed dead letter where it is, claimable again when due.
func (q *queue) keepDead(it *item, due, now int64) {
	q.detach(it)
	it.held = false
	it.due = due
	q.stand(it, now)
}

// recordDead records a failure of what works on a dead letter, whose cause it may change.
func (q *queue) recordDead(it *item, f *redrive.Failure) {
	q.count(it, -1)
	it.record(f, false)
	q.count(it, 1)
}

func (it *item) record(f *redrive.Failure, counted bool) {
	if counted && f != nil {
		it.failures++
	}
	it.history.Record(f, counted)
}

// Extend implements driver.Source.
func (s *Store) Extend(ctx context.Context, receipts []redrive.Receipt, lease time.Duration) []error {
	if err := s.enter(ctx); err != nil {
		return failAll(len(receipts), err)
	}
	defer s.step.RUnlock()
	now := s.now()
	var errs []error
	for i := range receipts {
		errs = result(errs, i, len(receipts), s.extend(&receipts[i], max(lease, minLease), now))
	}
	return errs
}

func (s *Store) extend(r *redrive.Receipt, lease time.Duration, now int64) error {
	q := s.lookup(r.Queue)
	if q == nil {
		return redrive.ErrNotFound
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refresh(now)
	it, err := q.holds(r)
	if err != nil {
		return err
	}
	if it.place != leased {
		return redrive.ErrLeaseLost
	}
	q.lease(it, later(now, lease))
	return nil
}
