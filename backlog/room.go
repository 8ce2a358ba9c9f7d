package backlog

import (
	"math"
	"time"
)

// Room tells how many messages still have room, and what the limit is, in messages,
// while a queue or the store is above its soft mark; below it, limit is 0. left falls to 0
// at the hard mark and stays there until publishes are taken again. Limits of bytes are
// counted in messages of the mean size of what waits; an age takes away the share that
// it has come on its way from the soft to the hard mark. reset is how long it takes to
// be below the soft mark, by how fast the queue drains: from 1 s to 60 s. Room goes by
// what [Limiter.Publish] and [Limiter.Level] have learnt, and reads nothing.
func (w *Limiter) Room(queue string) (left, limit int64, reset time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left, limit, reset = w.total.room(w.o.Total)
	m := w.marks[queue]
	if m == nil {
		return left, limit, reset
	}
	switch l, of, after := m.room(w.limits(queue)); {
	case of == 0:
	case limit == 0, l < left:
		left, limit, reset = l, of, max(reset, after)
	default:
		reset = max(reset, after)
	}
	return left, limit, reset
}

// room returns what is left of the limits, in messages; limit is 0 below the soft mark.
func (m *mark) room(l Limits) (left, limit int64, reset time.Duration) {
	u := m.now()
	if l.none() || !m.known || m.below(l, u) {
		return 0, 0, 0
	}
	of := max(float64(u.count), 1) // for want of a limit in messages
	free := of
	if l.Depth > 0 {
		of, free = float64(l.Depth), float64(l.Depth-u.count)
	}
	if l.Bytes > 0 && u.bytes > 0 {
		mean := float64(u.bytes) / max(float64(u.count), 1)
		if n := float64(l.Bytes-u.bytes) / mean; l.Depth <= 0 || n < free {
			of, free = float64(l.Bytes)/mean, n
		}
	}
	if l.Age > 0 {
		age, soft := float64(m.read.age)/float64(l.Age), l.soft()
		switch {
		case age >= 1:
			free = 0
		case age > soft:
			free *= (1 - age) / (1 - soft)
		}
	}
	if m.refused {
		free = 0
	}
	return int64(max(free, 0)), int64(math.Ceil(of)), m.retryAfter(l)
}
