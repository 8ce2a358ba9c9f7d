package redrive

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"github.com/redrive/redrive/internal/text"
)

// idClock keeps ids of one process strictly increasing: the low twelve bits of
// the time stamp carry the fraction of a millisecond (RFC 9562, method 3).
var idClock struct {
	sync.Mutex
	last uint64
}

// NewID returns a new UUIDv7 (RFC 9562) in its usual text form. Ids of one process
// are strictly increasing. It is safe for concurrent use.
func NewID() string {
	now := time.Now()
	ms := uint64(now.UnixMilli())
	tick := ms<<12 | uint64(now.Nanosecond()%1e6)*4096/1_000_000 //nolint:gosec // 0 to 4095
	idClock.Lock()
	tick = max(tick, idClock.last+1)
	idClock.last = tick
	idClock.Unlock()

	var u [16]byte
	_, _ = rand.Read(u[8:]) // never fails (crypto/rand)
	binary.BigEndian.PutUint64(u[:8], tick>>12<<16|0x7000|tick&0xfff)
	u[8] = u[8]&0x3f | 0x80
	return text.UUID(u)
}
