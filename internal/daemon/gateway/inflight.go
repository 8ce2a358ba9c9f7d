package gateway

import (
	"sync/atomic"
	"time"

	"github.com/redrive/redrive/internal/problem"
)

// budget bounds the bytes of bodies that are in memory at once, over all requests.
type budget struct {
	limit int64
	used  atomic.Int64
}

// reserve takes n bytes, or refuses.
func (b *budget) reserve(n int64) *problem.Problem {
	if b.used.Add(n) <= b.limit {
		return nil
	}
	b.used.Add(-n)
	return problem.New(503, "overloaded", "Too many bytes are in flight", "", "nothing was stored; repeat after the time in Retry-After").After(time.Second)
}

func (b *budget) release(n int64) { b.used.Add(-n) }
