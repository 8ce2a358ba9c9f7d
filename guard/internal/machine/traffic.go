package machine

import (
	"math"
	"time"
)

// Time constants, in seconds, of what is known of the live traffic.
const (
	demandNow    = 5    // of the demand now
	demandUsual  = 30   // of the demand that the usual rate is taken from
	usualDecay   = 1800 // of the usual rate, so that it outlives an outage
	latencySlow  = 20   // of the average that a second's latency is compared with
	acceptedSlot = 100 * time.Millisecond
	acceptSlots  = 10
)

// traffic measures the live calls. What is asked is counted, not what is admitted,
// so that an outage does not hide the demand; the drain's own calls are not counted,
// because then they would feed themselves.
type traffic struct {
	asked    int     // live calls asked in this second
	seconds  float64 // counted so far, with a bound
	demand   float64 // live calls a second, now
	smooth   float64 // the same over a longer time
	usual    float64 // the most that smooth has been, decaying slowly
	latency  time.Duration
	answers  int     // successes of this second
	average  float64 // of the latency, in nanoseconds; 0: not known
	last     float64 // mean of the second before
	rising   int     // seconds in a row that were slower than they may
	accepted [acceptSlots]int32
	acceptAt int64
}

// second is called at the end of each second.
func (t *traffic) second() {
	t.seconds = min(t.seconds+1, 1e6)
	n := float64(t.asked)
	t.asked = 0
	t.demand += (n - t.demand) * max(1/t.seconds, 1-math.Exp(-1.0/demandNow))
	t.smooth += (n - t.smooth) * max(1/t.seconds, 1-math.Exp(-1.0/demandUsual))
	t.usual = max(t.smooth, t.usual*math.Exp(-1.0/usualDecay))
}

// quiet is second for many of them without a call.
func (t *traffic) quiet(seconds float64) {
	t.seconds = min(t.seconds+seconds, 1e6)
	t.demand *= math.Exp(-seconds / demandNow)
	t.smooth *= math.Exp(-seconds / demandUsual)
	t.usual = max(t.smooth, t.usual*math.Exp(-seconds/usualDecay))
	t.asked, t.answers, t.latency, t.rising, t.last = 0, 0, 0, 0, 0
}

// accept counts an answer that was not refused.
func (t *traffic) accept(now time.Duration) {
	t.rollAccepted(now)
	t.accepted[t.acceptAt%acceptSlots]++
}

func (t *traffic) rollAccepted(now time.Duration) {
	at := int64(now / acceptedSlot)
	for i := max(t.acceptAt, at-acceptSlots) + 1; i <= at; i++ {
		t.accepted[i%acceptSlots] = 0
	}
	t.acceptAt = max(t.acceptAt, at)
}

// acceptedRate is how many calls were accepted in the newest second.
func (t *traffic) acceptedRate(now time.Duration) float64 {
	t.rollAccepted(now)
	var n int32
	for _, a := range t.accepted {
		n += a
	}
	return float64(n)
}

// trend compares the latency of the second that ends with what it was, and reports
// whether it has risen too much for too long.
func (t *traffic) trend(h *Health) bool {
	n, sum := t.answers, t.latency
	t.answers, t.latency = 0, 0
	if h.TrendFactor <= 0 || n < trendCalls {
		t.rising, t.last = 0, 0
		return false
	}
	mean := float64(sum) / float64(n)
	base, run := t.average, trendRun
	if h.TrendLast {
		base, run = t.last, 1
	}
	t.last = mean
	if base > 0 && mean > base*h.TrendFactor && mean >= float64(trendFloor) {
		t.rising++
		return t.rising >= run
	}
	t.rising = 0
	if t.average == 0 {
		t.average = mean
	} else {
		t.average += (mean - t.average) / latencySlow
	}
	return false
}
