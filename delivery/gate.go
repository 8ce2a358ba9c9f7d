package delivery

import (
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// rateWakeup keeps a fast rate from waking its consumer for every single message.
const rateWakeup = 5 * time.Millisecond

// RateGate lets a number of deliveries begin a second. It may be shared by several
// consumers and is safe for concurrent use.
type RateGate struct {
	perSecond float64
	burst     int

	mu      sync.Mutex
	limiter *rate.Limiter
	unused  int // given back; used before new tokens are
}

// NewRateGate returns a gate of perSecond deliveries on average, and of burst at once
// after a pause. A burst of 0 is a tenth of the rate, at least 1. perSecond must be
// more than 0.
func NewRateGate(perSecond float64, burst int) *RateGate {
	if burst <= 0 {
		burst = int(math.Ceil(min(perSecond/10, math.MaxInt32)))
	}
	return &RateGate{perSecond: perSecond, burst: burst, limiter: rate.NewLimiter(rate.Limit(perSecond), burst)}
}

// Reserve implements driver.Gate.
func (g *RateGate) Reserve(now time.Time, a driver.Ask) driver.Grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	tokens := g.limiter.TokensAt(now)
	// Returned permits never add up to more than a full bucket.
	g.unused = min(g.unused, max(g.burst-int(max(tokens, 0)), 0))
	n := min(a.Max, g.unused)
	g.unused -= n
	if more := min(a.Max-n, int(max(tokens, 0))); more > 0 && g.limiter.AllowN(now, more) {
		n += more
		tokens -= float64(more)
	}
	if n >= a.Max {
		return driver.Grant{N: n}
	}
	missing := 1 - (tokens - math.Floor(tokens))
	wait := time.Duration(missing / g.perSecond * float64(time.Second))
	full := time.Duration(float64(g.burst) / g.perSecond * float64(time.Second))
	wait = max(wait, min(rateWakeup, full/2))
	return driver.Grant{N: n, Until: now.Add(wait), What: "rate", Reason: "the target's rate is used up"}
}

// Return implements driver.Gate.
func (g *RateGate) Return(_ time.Time, _ driver.Grant, unused int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unused += unused
}

// Report implements driver.Gate. A rate is not concerned with results.
func (g *RateGate) Report(time.Time, *redrive.Delivery, *driver.Settlement) {}

// ConcurrencyGate lets a number of deliveries run at once. It may be shared by
// several consumers and is safe for concurrent use.
type ConcurrencyGate struct {
	limit int

	mu   sync.Mutex
	busy int
}

// NewConcurrencyGate returns a gate of limit deliveries at once, at least 1.
func NewConcurrencyGate(limit int) *ConcurrencyGate { return &ConcurrencyGate{limit: max(limit, 1)} }

// Reserve implements driver.Gate.
func (g *ConcurrencyGate) Reserve(_ time.Time, a driver.Ask) driver.Grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := max(min(a.Max, g.limit-g.busy), 0)
	g.busy += n
	if n >= a.Max {
		return driver.Grant{N: n}
	}
	return driver.Grant{N: n, What: "concurrency", Reason: "as many deliveries as the target allows are under way"}
}

// Return implements driver.Gate.
func (g *ConcurrencyGate) Return(_ time.Time, _ driver.Grant, unused int) { g.release(unused) }

// Report implements driver.Gate.
func (g *ConcurrencyGate) Report(time.Time, *redrive.Delivery, *driver.Settlement) { g.release(1) }

func (g *ConcurrencyGate) release(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.busy = max(g.busy-n, 0)
}

// maxHold is how long one answer keeps all other messages of the target waiting. The
// message that got it waits as long as it was asked to.
const maxHold = time.Minute

// holdGate keeps the target quiet for as long as it asked for with Retry-After.
type holdGate struct {
	mu    sync.Mutex
	until time.Time
}

// hold lets nothing begin before now+d, or before maxHold if that is sooner.
func (g *holdGate) hold(now time.Time, d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if until := now.Add(min(d, maxHold)); until.After(g.until) {
		g.until = until
	}
}

// Reserve implements driver.Gate.
func (g *holdGate) Reserve(now time.Time, a driver.Ask) driver.Grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Before(g.until) {
		return driver.Grant{Until: g.until, What: "retry_after", Reason: "the target asked to wait (Retry-After)"}
	}
	return driver.Grant{N: a.Max}
}

// Return implements driver.Gate.
func (*holdGate) Return(time.Time, driver.Grant, int) {}

// Report implements driver.Gate.
func (*holdGate) Report(time.Time, *redrive.Delivery, *driver.Settlement) {}

var (
	_ driver.Gate = (*RateGate)(nil)
	_ driver.Gate = (*ConcurrencyGate)(nil)
	_ driver.Gate = (*holdGate)(nil)
)
