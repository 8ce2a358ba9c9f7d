package delivery

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
)

// The form of a signing secret (Standard Webhooks): a prefix and base64 of 24 to 64
// random bytes.
const (
	secretPrefix = "whsec_"
	minSecret    = 24
	maxSecret    = 64
)

// DefaultTolerance is how far the time of a signed request may be from ours.
const DefaultTolerance = 5 * time.Minute

// ErrSignature says that a request is not signed by any of the secrets, or not at
// this time. What wraps it says which.
var ErrSignature = errors.New("the signature is not valid")

// NewSecret returns a new random signing secret of 32 bytes, as "whsec_" and base64.
func NewSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return secretPrefix + base64.StdEncoding.EncodeToString(b[:])
}

// ParseSecret returns the key of a signing secret. Its error wraps
// [redrive.ErrInvalid] and does not repeat the secret.
func ParseSecret(secret string) ([]byte, error) {
	const hint = "a signing secret is whsec_ and the base64 of 24 to 64 random bytes; redrive secret new makes one"
	text, ok := strings.CutPrefix(secret, secretPrefix)
	if !ok {
		return nil, invalid("a secret that does not begin with whsec_", hint)
	}
	key, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(text, "="))
	if err != nil {
		return nil, invalid("a secret that is not base64", hint)
	}
	if len(key) < minSecret || len(key) > maxSecret {
		return nil, invalid(fmt.Sprintf("a secret of %d bytes", len(key)), hint)
	}
	return key, nil
}

// Sign returns the v1 signature of a message's id, the time of the attempt and the
// body: "v1," and the base64 of an HMAC-SHA256.
func Sign(key []byte, id string, at time.Time, body []byte) string {
	var n [20]byte
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id))
	mac.Write([]byte{'.'})
	mac.Write(strconv.AppendInt(n[:0], at.Unix(), 10))
	mac.Write([]byte{'.'})
	mac.Write(body)
	const version = "v1,"
	var text [len(version) + (sha256.Size+2)/3*4]byte
	copy(text[:], version)
	base64.StdEncoding.Encode(text[len(version):], mac.Sum(nil))
	return string(text[:])
}

// Verify checks a request that was received: one of its v1 signatures must be that
// of one of the keys, and its time within the tolerance of now (0:
// [DefaultTolerance]). The error wraps [ErrSignature].
func Verify(keys [][]byte, header http.Header, body []byte, now time.Time, tolerance time.Duration) error {
	if tolerance == 0 {
		tolerance = DefaultTolerance
	}
	id, signatures := header.Get("Webhook-Id"), header.Get("Webhook-Signature")
	if id == "" || signatures == "" {
		return fmt.Errorf("%w: webhook-id or webhook-signature is missing", ErrSignature)
	}
	seconds, err := strconv.ParseInt(header.Get("Webhook-Timestamp"), 10, 64)
	if err != nil {
		return fmt.Errorf("%w: webhook-timestamp is not a number", ErrSignature)
	}
	at := time.Unix(seconds, 0)
	if d := now.Sub(at); d > tolerance || d < -tolerance {
		return fmt.Errorf("%w: webhook-timestamp is %s from our time", ErrSignature, d.Round(time.Second).Abs())
	}
	for _, key := range keys {
		want := Sign(key, id, at, body)
		for got := range strings.FieldsSeq(signatures) {
			if hmac.Equal([]byte(got), []byte(want)) {
				return nil
			}
		}
	}
	return fmt.Errorf("%w: no v1 signature matches", ErrSignature)
}

// signature returns the value of the webhook-signature header, "" without secrets.
func (h *Handler) signature(d *redrive.Delivery, at time.Time, keys [][]byte) string {
	switch len(keys) {
	case 0:
		return ""
	case 1:
		return Sign(keys[0], d.ID, at, d.Body)
	}
	all := make([]string, len(keys))
	for i, key := range keys {
		all[i] = Sign(key, d.ID, at, d.Body)
	}
	return strings.Join(all, " ")
}
