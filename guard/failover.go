package guard

import (
	"sync"
	"time"
)

// failoverRate is how many second tries a second may be made in any case.
const failoverRate = 10

// budget bounds second tries: each call earns a share of one, and time earns some too.
// Without it all calls fall upon the second provider when the first one dies.
type budget struct {
	share float64

	mu     sync.Mutex
	tokens float64
	calls  float64 // a second, as far as the second has gone
	at     time.Duration
	second int64
	before float64 // calls of the second before
}

// earn counts a call.
func (b *budget) earn(now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	b.calls++
	b.tokens = min(b.tokens+b.share, b.most())
}

func (b *budget) most() float64 {
	return failoverRate + b.share*max(b.calls, b.before)
}

func (b *budget) fill(now time.Duration) {
	if now > b.at {
		b.tokens = min(b.tokens+failoverRate*(now-b.at).Seconds(), b.most())
		b.at = now
	}
	if s := int64(now / time.Second); s != b.second {
		b.before = 0
		if s == b.second+1 {
			b.before = b.calls
		}
		b.second, b.calls = s, 0
	}
}

// take asks for a second try.
func (b *budget) take(now time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// give takes back a second try that was not made.
func (b *budget) give() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(b.tokens+1, b.most())
}
