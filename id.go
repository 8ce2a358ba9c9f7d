package redrive

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"sync"
	"time"
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
	return formatUUID(u)
}

// DeriveID returns an id that depends on nothing but its parts, so that repeating
// a publish under it is recognised: a UUIDv8 of the first 16 bytes of SHA-256 over
// the length-prefixed parts.
func DeriveID(parts ...string) string {
	h := sha256.New()
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	var u [16]byte
	copy(u[:], h.Sum(nil))
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return formatUUID(u)
}

func formatUUID(u [16]byte) string {
	var s [36]byte
	hex.Encode(s[0:8], u[0:4])
	hex.Encode(s[9:13], u[4:6])
	hex.Encode(s[14:18], u[6:8])
	hex.Encode(s[19:23], u[8:10])
	hex.Encode(s[24:36], u[10:16])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	return string(s[:])
}
