package memory

import (
	"context"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// SetMasks implements driver.Masked.
func (s *Store) SetMasks(m driver.Masks) { s.masks = m }

// Publish implements redrive.Sink. Body and headers belong to the store from then on.
func (s *Store) Publish(ctx context.Context, msgs []redrive.Message) []error {
	if err := s.enter(ctx); err != nil {
		return failAll(len(msgs), err)
	}
	defer s.step.RUnlock()
	var (
		errs []error
		q    *queue
		now  = s.now()
	)
	for i := range msgs {
		m := &msgs[i]
		if err := m.Validate(); err != nil {
			errs = result(errs, i, len(msgs), err)
			continue
		}
		chosen := m.ID != ""
		var hash uint64
		if chosen {
			hash = s.masks.BodyHash(m)
		} else {
			m.ID = redrive.NewID()
		}
		if q == nil || q.name != m.Queue {
			if q != nil {
				q.mu.Unlock()
			}
			q = s.queue(m.Queue)
			q.mu.Lock()
		}
		errs = result(errs, i, len(msgs), q.publish(m, chosen, hash, now))
	}
	if q != nil {
		q.mu.Unlock()
	}
	return errs
}

// publish takes a valid message with an id in, unless the id is taken.
func (q *queue) publish(m *redrive.Message, chosen bool, hash uint64, now int64) error {
	if chosen {
		q.forgetSome(2, now)
		if err := q.collision(m, hash, now); err != nil {
			return err
		}
	}
	it := q.newItem()
	it.msg = *m
	it.sum = driver.Checksum(m)
	it.msg.PublishedAt = moment(now)
	it.due = firstDue(m, now)
	it.lane = redrive.LaneFresh
	it.ordered = q.settings.OrderByKey && m.Key != ""
	it.seq = q.nextSeq()
	q.byID[m.ID] = it
	if chosen {
		q.remember(it, hash, now)
	}
	q.ledger.Published++
	q.enter(it)
	q.stand(it, now)
	return nil
}

// firstDue is the later of Delay and DeliverAt, and now.
func firstDue(m *redrive.Message, now int64) int64 {
	due := later(now, m.Delay)
	if !m.DeliverAt.IsZero() {
		due = max(due, nanos(m.DeliverAt))
	}
	return due
}

// publishOne publishes a message when the step lock is held exclusively.
func (s *Store) publishOne(m *redrive.Message, now int64) error {
	if err := m.Validate(); err != nil {
		return err
	}
	chosen := m.ID != ""
	var hash uint64
	if chosen {
		hash = s.masks.BodyHash(m)
	} else {
		m.ID = redrive.NewID()
	}
	return s.queue(m.Queue).publish(m, chosen, hash, now)
}

// checkEmits returns what keeps messages from becoming part of a step.
func (s *Store) checkEmits(msgs []redrive.Message, now int64) error {
	for i := range msgs {
		m := &msgs[i]
		if err := m.Validate(); err != nil {
			return err
		}
		if m.ID == "" {
			continue
		}
		hash := s.masks.BodyHash(m)
		if q := s.lookup(m.Queue); q != nil && q.collision(m, hash, now) == redrive.ErrConflict { //nolint:errorlint // collision returns it bare
			return redrive.ErrConflict
		}
		for j := range i {
			if msgs[j].Ref() == m.Ref() && s.masks.BodyHash(&msgs[j]) != hash {
				return redrive.ErrConflict
			}
		}
	}
	return nil
}
