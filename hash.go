package redrive

import (
	"crypto/sha256"
	"encoding/binary"
)

// BodyHash is the hash by which a repeated publish under one id is told from
// another message: the first eight bytes of SHA-256 over kind, key and body.
func BodyHash(m *Message) uint64 {
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
