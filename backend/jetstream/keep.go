package jetstream

import (
	"context"
	"time"
)

// keepShare is by which part of AckWait the server learns that we are at work.
const keepShare = 3

// keep looks after what this process has, as long as the source lives.
func (s *Source) keep() {
	s.mu.Lock()
	every := s.consumer.ackWait / (2 * keepShare)
	s.mu.Unlock()
	tick := time.NewTicker(max(min(every, bufferStale), 10*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.keepOnce(time.Now())
		case <-s.alive.Done():
			return
		}
	}
}

func (s *Source) keepOnce(now time.Time) {
	s.mu.Lock()
	wait := s.consumer.ackWait
	var back, alive []ack
	var kept []*item
	if len(s.buffer) > 0 && now.Sub(s.claimed) > 2*wait && now.Sub(s.buffer[0].since) > 2*wait {
		s.resting = true
		for _, it := range s.buffer {
			back = append(back, ack{it.reply, nak})
			delete(s.items, it.meta.Sequence.Stream)
		}
		s.buffer, s.bytes, s.asked = nil, 0, 0
		s.changeLocked() // who claims again finds out that there may be something
	}
	if len(s.buffer) > 0 && now.Sub(s.buffer[0].since) > bufferStale {
		s.target = max(s.target/2, bufferLeast)
	}
	for sequence, it := range s.items {
		switch {
		case it.inFlight && !now.Before(it.until):
			if now.Sub(it.known) > 10*wait { // it will never be settled
				delete(s.items, sequence)
				s.inFlight--
			}
		case now.Sub(it.known) >= wait/keepShare && !it.naked:
			alive = append(alive, ack{it.reply, working})
			kept = append(kept, it)
		}
	}
	silent := s.asked > 0 && now.Sub(s.heard) > 3*pullHeartbeat
	s.mu.Unlock()
	if silent {
		s.check()
	}
	ctx, cancel := context.WithTimeout(s.alive, wait/keepShare)
	defer cancel()
	s.acks.send(ctx, back) // if that fails, AckWait passes
	s.knows(kept, s.acks.send(ctx, alive), now)
}

// knows notes that the server knows, since a time, that items are ours.
func (s *Source) knows(items []*item, errs []error, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, it := range items {
		if (errs == nil || errs[i] == nil) && at.After(it.known) {
			it.known = at
		}
	}
}

// recent remembers the last messages that were acknowledged, with the time at which they
// were stored: a stream that was made again counts from 1.
type recent struct {
	at   map[uint64]int64
	ring []uint64
	next int
}

func newRecent(most int) *recent {
	return &recent{at: make(map[uint64]int64, most), ring: make([]uint64, 0, most)}
}

func (r *recent) add(sequence uint64, stored int64) {
	if len(r.ring) < cap(r.ring) {
		r.ring = append(r.ring, sequence)
	} else {
		delete(r.at, r.ring[r.next])
		r.ring[r.next] = sequence
		r.next = (r.next + 1) % len(r.ring)
	}
	r.at[sequence] = stored
}

func (r *recent) has(sequence uint64, stored int64) bool {
	at, ok := r.at[sequence]
	return ok && at == stored
}
