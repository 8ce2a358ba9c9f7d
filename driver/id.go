package driver

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/text"
)

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
	return text.UUID(u)
}

// BodyHash is the hash by which a repeated publish under one id is distinguished from
// another message: the first eight bytes of SHA-256 over kind, key and body.
func BodyHash(m *redrive.Message) uint64 {
	h := sha256.New()
	var n [8]byte
	for _, s := range []string{m.Kind, m.Key} {
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	h.Write(m.Body)
	return binary.BigEndian.Uint64(h.Sum(nil))
}
