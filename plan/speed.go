package plan

import (
	"math"
	"time"

	"github.com/redrive/redrive/internal/text"
)

// Speed is how fast a plan works, over the last while.
type Speed struct {
	At   time.Time `json:"at"`   // when the present measurement began, by the store's clock
	Done int64     `json:"done"` // what was changed or refused by then
	Rate float64   `json:"rate"` // messages a second of the measurement before; 0: not known yet
}

// speedOver is how long a plan is measured.
const speedOver = 5 * time.Second

// count takes in how many messages were changed or refused by now.
func (s *Speed) count(done int64, now time.Time) {
	took := now.Sub(s.At)
	if s.At.IsZero() || took < 0 {
		*s = Speed{At: now, Done: done}
		return
	}
	if took >= speedOver {
		*s = Speed{At: now, Done: done, Rate: float64(done-s.Done) / took.Seconds()}
	}
}

// ETA is when nothing will be left to change, by the measured rate, or else by the rate that was
// asked for. It is zero where that is not known: the plan does not run, or is in trouble, waits for its
// canary, or its total is not exact.
func (p *Plan) ETA() time.Time {
	if p.State != Running || p.Problem != "" || p.TotalMore || p.Canary != nil && p.Canary.Stage == StageCanary {
		return time.Time{}
	}
	rate := p.Measured.Rate
	if rate <= 0 {
		rate = p.Request.Rate
	}
	left := math.Max(float64(p.Total-p.Done-p.Failed), 0)
	return p.UpdatedAt.Add(text.Duration(left / rate * float64(time.Second)))
}
