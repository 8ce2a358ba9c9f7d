package machine

import (
	"math"
	"time"
)

// How a rate cap moves: fast back to a little below the last limit, then it stays
// there for a while, then it feels its way up, ever faster.
const (
	quotaNear    = 0.95 // of the last limit
	quotaBack    = 1.25 // a second, up to there
	quotaRest    = 4    // seconds there
	quotaFeel    = 0.01 // a second, at first
	quotaDouble  = 2    // seconds until that doubles
	quotaFree    = 1.2  // times the demand: then there is no limit any more
	quotaBurst   = 0.02 // of the cap
	pauseDefault = time.Second
	quotaNothing = 2 // refusals after which nothing was accepted: no rate is low enough
)

// quota is the rate cap of a provider that has asked for less.
type quota struct {
	cap         float64
	last        float64 // the limit as it was seen last
	pausedUntil time.Duration
	quiet       int // seconds near the last limit without another refusal
	inRow       int // refusals since a call was accepted; those of calls in flight count once
	live, bg    bucket
}

// lower takes a refusal: the cap falls below what was accepted in the last second.
func (q *quota) lower(m *Machine, after time.Duration) {
	rate := m.traffic.acceptedRate(m.now)
	if m.state == Limited {
		rate = min(max(rate, q.cap/2), q.cap)
	}
	q.last = max(rate, minRate)
	q.cap = max(q.last*decrease, minRate)
	q.quiet = 0
	if after <= 0 {
		after = pauseDefault
	}
	q.pausedUntil = m.now + after
	q.live = bucket{at: q.pausedUntil}
	q.bg = bucket{at: q.pausedUntil}
}

func (q *quota) second(m *Machine) {
	if m.now < q.pausedUntil {
		return
	}
	if near := q.last * quotaNear; q.cap < near {
		q.cap = min(q.cap*quotaBack, near)
		return
	}
	q.quiet++
	if n := q.quiet - quotaRest; n > 0 {
		q.cap *= 1 + quotaFeel*math.Exp2(float64((n-1)/quotaDouble))
	}
	if q.cap > quotaFree*(m.traffic.demand+m.backlogRate()) && q.quiet > quotaRest {
		m.restore("the provider bears all calls again")
	}
}

// liveRate is what of the cap the live calls get.
func (q *quota) liveRate(m *Machine) float64 { return q.cap - m.backlogRate() }

func (q *quota) admitLive(m *Machine) bool {
	if m.now < q.pausedUntil {
		return false
	}
	return q.live.take(m.now, q.liveRate(m), max(1, q.cap*quotaBurst))
}
