package machine

import "time"

// The error window: slots of a twentieth of Health.Window, of which the newest four
// are looked at by themselves, because a whole window by itself sees an outage late.
const (
	windowSlots = 20
	shortSlots  = 4
)

type tally struct{ calls, bad int32 }

// window counts calls and failures of the newest time.
type window struct {
	width time.Duration
	slots [windowSlots]tally
	at    int64 // index of the newest slot since the origin
	total tally
}

func (w *window) reset() {
	w.slots = [windowSlots]tally{}
	w.total = tally{}
}

func (w *window) advance(now time.Duration) {
	at := int64(now / w.width)
	if at == w.at {
		return
	}
	for i := max(w.at, at-windowSlots) + 1; i <= at; i++ {
		s := &w.slots[i%windowSlots]
		w.total.calls -= s.calls
		w.total.bad -= s.bad
		*s = tally{}
	}
	w.at = max(w.at, at)
}

func (w *window) add(now time.Duration, bad bool) {
	w.advance(now)
	s := &w.slots[w.at%windowSlots]
	s.calls++
	w.total.calls++
	if bad {
		s.bad++
		w.total.bad++
	}
}

// short returns what the newest slots hold.
func (w *window) short() (t tally) {
	for i := max(w.at-shortSlots+1, 0); i <= w.at; i++ {
		t.calls += w.slots[i%windowSlots].calls
		t.bad += w.slots[i%windowSlots].bad
	}
	return t
}

// The slots of calls in flight by when they began. They must reach further back than
// the longest attempt, or an old slot is taken for a new one: 16 times SlowAfter; what
// is older stays counted in its slot.
const (
	hungSlots    = 64
	slotsPerSlow = 4
)

// hung counts calls in flight past a threshold before they end, without a timer a
// call.
type hung struct {
	width time.Duration
	slots [hungSlots]int32
	total int32 // in flight
	at    int64
}

func (h *hung) reset() {
	h.slots = [hungSlots]int32{}
	h.total = 0
}

func (h *hung) begin(now time.Duration) uint8 {
	if h.width == 0 {
		return 0
	}
	i := uint8(int64(now/h.width) % hungSlots) //nolint:gosec // less than hungSlots
	h.slots[i]++
	h.total++
	return i
}

func (h *hung) end(slot uint8) {
	if h.width == 0 {
		return
	}
	h.slots[slot]--
	h.total--
}

// overdue returns how many are in flight for longer than the threshold, and reports
// false if that was looked at before in this slot of time.
func (h *hung) overdue(now time.Duration) (int, bool) {
	if h.width == 0 {
		return 0, false
	}
	at := int64(now / h.width)
	if at == h.at {
		return 0, false
	}
	h.at = at
	if h.total == 0 {
		return 0, false
	}
	n := h.total
	for i := max(at-slotsPerSlow, 0); i <= at; i++ {
		n -= h.slots[i%hungSlots]
	}
	return int(n), true
}

// bucket is a token bucket whose rate is given with each use.
type bucket struct {
	tokens float64
	at     time.Duration
}

func (b *bucket) fill(now time.Duration, rate, burst float64) {
	if now > b.at {
		b.tokens = min(b.tokens+rate*(now-b.at).Seconds(), burst)
		b.at = now
	}
}

func (b *bucket) take(now time.Duration, rate, burst float64) bool {
	b.fill(now, rate, burst)
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// wait is how long until one token is there.
func (b *bucket) wait(rate float64) time.Duration {
	if b.tokens >= 1 {
		return 0
	}
	if rate <= 0 {
		return time.Second
	}
	return min(time.Duration((1-b.tokens)/rate*float64(time.Second))+1, time.Second)
}
