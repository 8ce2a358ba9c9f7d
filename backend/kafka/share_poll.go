package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// hide keeps the client from accepting what it must not. Each of its polls accepts what
// the one before returned and nobody has acknowledged; it finds the state of a record by the
// record's context. A record is polled with a context that tells nothing, so that the client
// does not note it, and gets its own back afterwards: then only we acknowledge it.
type hide struct{}

var _ kgo.HookFetchRecordBuffered = hide{}

// OnFetchRecordBuffered implements kgo.HookFetchRecordBuffered.
func (hide) OnFetchRecordBuffered(r *kgo.Record) { r.Context = hidden{r.Context} }

// hidden is a context without values.
type hidden struct{ context.Context } //nolint:containedctx // it is one

func (hidden) Value(any) any { return nil }

// errNotHidden says that the client does not do what hide relies on.
var errNotHidden = errors.New("the client would accept records by itself: this version of it cannot be used")

// reveal gives a polled record its context back. It reports whether it was hidden.
func reveal(r *kgo.Record) bool {
	h, ok := r.Context.(hidden)
	if !ok || r.DeliveryCount() != 0 {
		return false
	}
	r.Context = h.Context
	return r.DeliveryCount() > 0
}

// poll fetches records when the buffer is empty, as long as the source lives.
func (s *Share) poll() {
	for s.awaitRoom() {
		fetches := s.client.PollRecords(s.alive, shareBatch)
		if fetches.IsClientClosed() {
			return
		}
		now := time.Now()
		var late []*kgo.Record
		s.mu.Lock()
		fetches.EachError(func(_ string, _ int32, err error) {
			if s.alive.Err() == nil {
				s.fault = err
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			if !s.tookLocked(r, now) {
				late = append(late, r)
			}
		})
		s.changeLocked()
		s.mu.Unlock()
		if len(late) > 0 {
			s.release(late)
		}
	}
}

// tookLocked takes a record into the buffer, unless its lock ran out meanwhile.
func (s *Share) tookLocked(r *kgo.Record, now time.Time) bool {
	if !reveal(r) {
		s.fault = errNotHidden
		s.stop()
		return true
	}
	left := r.AcquisitionDeadline().Sub(now)
	s.lock = max(s.lock, left)
	it := &sharedRecord{Record: r, at: sharedAt{place{r.Topic, r.Partition}, r.Offset}, deliveries: r.DeliveryCount(), until: now.Add(left - s.lock/10)}
	if !now.Before(it.until) {
		return false
	}
	delete(s.inflight, it.at) // its lock ran out before
	s.newest[it.at.place] = max(s.newest[it.at.place], r.Offset)
	s.buffer = append(s.buffer, it)
	return true
}

// release gives records back that were not claimed.
func (s *Share) release(records []*kgo.Record) {
	s.acking.Lock()
	defer s.acking.Unlock()
	for _, r := range records {
		r.Ack(kgo.AckRelease)
	}
	_, _ = s.flush(s.alive) // what could not be released comes again by itself
}

// awaitRoom waits until the buffer is empty.
func (s *Share) awaitRoom() bool {
	for {
		s.mu.Lock()
		room, changed := len(s.buffer) == 0 && len(s.inflight) < shareInflight, s.changed
		s.mu.Unlock()
		if s.alive.Err() != nil {
			return false
		}
		if room {
			return true
		}
		select {
		case <-changed:
		case <-s.alive.Done():
			return false
		}
	}
}

// keepEvery is how often the locks are looked at.
const keepEvery = 100 * time.Millisecond

// keep renews the locks of what this process has, as long as the source lives.
func (s *Share) keep() {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.renew(time.Now())
		case <-s.alive.Done():
			return
		}
	}
}

// renew renews the locks of which half is over. Records whose lock ran out are dropped: they
// come again.
func (s *Share) renew(now time.Time) {
	s.acking.Lock()
	defer s.acking.Unlock()
	s.mu.Lock()
	var due []*sharedRecord
	kept := s.buffer[:0]
	for _, it := range s.buffer {
		if now.Before(it.until) {
			kept = append(kept, it)
		}
	}
	if len(kept) < len(s.buffer) {
		clear(s.buffer[len(kept):])
		s.buffer = kept
		s.changeLocked()
	}
	look := func(it *sharedRecord) {
		if !it.sent && s.renews && now.Before(it.until) && it.until.Sub(now) < s.lock/2 {
			due = append(due, it)
		}
	}
	for _, it := range s.buffer {
		look(it)
	}
	for at, it := range s.inflight {
		if !now.Before(it.until) {
			delete(s.inflight, at)
			s.changeLocked()
			continue
		}
		look(it)
	}
	s.mu.Unlock()
	if len(due) == 0 {
		return
	}
	for _, it := range s.renewAll(now, due) { // one that is lost refuses the others of its partition
		s.renewAll(now, []*sharedRecord{it})
	}
}

// renewAll renews the locks of records and returns those that were refused.
func (s *Share) renewAll(now time.Time, due []*sharedRecord) (refused []*sharedRecord) {
	for _, it := range due {
		it.Ack(kgo.AckRenew)
	}
	failed, err := s.flush(s.alive)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, it := range due {
		if failed[it.at.place] == nil {
			it.until = now.Add(s.lock - s.lock/10)
		} else {
			refused = append(refused, it)
		}
	}
	return refused
}
