package memory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Apply implements driver.Store.
func (s *Store) Apply(ctx context.Context, b driver.Batch) ([]error, error) {
	if err := checkRecords(b.Records); err != nil {
		return nil, err
	}
	if err := s.enterExclusively(ctx); err != nil {
		return nil, err
	}
	defer s.step.Unlock()
	clock := s.clock()
	now := nanos(clock)
	if err := s.checkVersions(b.Records, clock); err != nil {
		return nil, err
	}
	var errs []error
	n := len(b.Publish) + len(b.Put)
	for i := range b.Publish {
		errs = result(errs, i, n, s.publishOne(&b.Publish[i], now))
	}
	for i := range b.Put {
		errs = result(errs, len(b.Publish)+i, n, s.put(&b.Put[i], &b, now))
	}
	s.writeRecords(b.Records, clock)
	for i := range b.Delete {
		s.deleteRange(&b.Delete[i], now)
	}
	return errs, nil
}

// put takes an entry in as it is.
func (s *Store) put(e *redrive.Entry, b *driver.Batch, now int64) error {
	if err := driver.CheckEntry(e); err != nil {
		return err
	}
	q := s.queue(e.Queue)
	chosen := e.ID != ""
	hash := s.masks.BodyHash(&e.Message)
	if chosen {
		if b.Restore {
			q.forgetRemoved(e.ID)
		}
		if err := q.collision(&e.Message, hash, now); err != nil {
			return err
		}
	} else {
		e.ID = redrive.NewID()
	}
	it := q.newItem()
	it.msg = e.Message
	if e.PublishedAt.IsZero() {
		it.msg.PublishedAt = moment(now)
	}
	it.lane = e.Lane
	it.attempts, it.crashes, it.failures = e.Attempts, e.Crashes, e.History.Count
	it.token = e.Token
	it.history, it.original = e.History, e.Original
	it.sum = driver.GivenChecksum(&it.msg, e.Checksum)
	if it.original != nil {
		it.firstSum = driver.GivenChecksum(it.original, e.OriginalChecksum)
	}
	it.ordered = q.settings.OrderByKey && e.Key != ""
	q.byID[e.ID] = it
	if chosen {
		q.remember(it, hash, now)
	}
	enter(&q.ledger, b.Entered)
	if e.State == redrive.StateDead {
		q.putDead(it, e, now)
		return nil
	}
	it.seq = q.nextSeq()
	it.suspect = e.Suspect
	it.due = firstDue(&e.Message, now)
	if !e.Due.IsZero() {
		it.due = nanos(e.Due)
	}
	q.enter(it)
	q.stand(it, now)
	return nil
}

func (q *queue) putDead(it *item, e *redrive.Entry, now int64) {
	it.reason, it.died = e.Reason, now
	if !e.DiedAt.IsZero() {
		it.died = nanos(e.DiedAt)
	}
	it.due = min(it.died, now)
	q.enterDead(it)
	q.noteDeath(it, now)
	if it.ordered && !q.settings.DeadRelease {
		q.join(it)
	}
	it.memory.end(redrive.OutcomeDead, e.Reason, now)
	q.stand(it, now)
}

// deleteRange ends the waiting messages of a key up to an id as done. An id that is
// not there any more names nothing: it was deleted before.
func (s *Store) deleteRange(r *driver.Range, now int64) {
	q := s.lookup(r.Queue)
	if q == nil {
		return
	}
	last := q.byID[r.UpTo]
	c := q.chains[r.Key]
	if last == nil || c == nil || last.chain != c {
		return
	}
	first := c.head
	if r.Single {
		first = last
	}
	for it := first; it != nil; {
		next, end := it.knext, it == last
		if !it.dead {
			q.ledger.Done++
			q.release(it.memory, redrive.OutcomeDone, 0, now)
			q.remove(it, now)
		}
		if end {
			return
		}
		it = next
	}
}

// checkRecords reports writes that could never be carried out.
func checkRecords(writes []driver.RecordWrite) error {
	for i := range writes {
		w := &writes[i]
		var err error
		switch {
		case len(w.Value) > driver.MaxRecordSize:
			err = fmt.Errorf("%w record of %d bytes", redrive.ErrInvalid, len(w.Value))
		case w.Space == "" || w.Key == "":
			err = fmt.Errorf("%w record: it needs a space and a key", redrive.ErrInvalid)
		case w.Expires < 0 || w.Version < driver.AnyVersion:
			err = fmt.Errorf("%w record: negative expiry or version", redrive.ErrInvalid)
		}
		if err != nil {
			return &redrive.Error{Op: "apply", Err: err}
		}
	}
	return nil
}

func (s *Store) checkVersions(writes []driver.RecordWrite, now time.Time) error {
	s.recordsMu.Lock()
	defer s.recordsMu.Unlock()
	for i := range writes {
		w := &writes[i]
		if w.Version == driver.AnyVersion {
			continue
		}
		r, err := s.record(w.Space, w.Key, now)
		if err != nil && !errors.Is(err, redrive.ErrNotFound) {
			return err
		}
		if r.Version != w.Version {
			return redrive.ErrVersion
		}
	}
	return nil
}

// enter counts an entry that was put.
func enter(b *driver.Ledger, how driver.Entered) {
	switch how {
	case driver.EnteredParked:
		b.Parked++
	case driver.EnteredImported:
		b.Imported++
	case driver.EnteredMoved:
		b.MovedIn++
	}
}
