package guard

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Scopes of a token.
const (
	ScopeCall = "call" // send requests
	ScopeRead = "read" // look at later results
)

// Token is a static token of a calling team.
type Token struct {
	// Name shows in counters and errors. Required.
	Name string
	// Hash is "sha256:" and the hexadecimal SHA-256 of the token. Required.
	Hash string
	// Scopes is what it allows. Defaults to call and read.
	Scopes []string
	// Rate is the most calls a second of this process, Burst how many may come at
	// once (by default a second's). Defaults to no limit.
	Rate  float64
	Burst int
	// Quota is the most calls in each period of Per, by default a day (UTC), of this
	// process. Defaults to no limit.
	Quota int64
	Per   time.Duration
}

type token struct {
	Token
	hash    [sha256.Size]byte
	limiter *rate.Limiter
	used    atomic.Int64

	mu     sync.Mutex
	period int64
	count  int64
}

func newToken(c *Token) (*token, error) {
	t := &token{Token: *c}
	text, ok := strings.CutPrefix(c.Hash, "sha256:")
	b, err := hex.DecodeString(text)
	if c.Name == "" || !ok || err != nil || len(b) != len(t.hash) {
		return nil, fmt.Errorf("token %q: it needs a name and a hash of the form sha256:HEX", c.Name)
	}
	copy(t.hash[:], b)
	for _, s := range c.Scopes {
		if s != ScopeCall && s != ScopeRead {
			return nil, fmt.Errorf("token %q: scope %q: use call or read", c.Name, s)
		}
	}
	if len(t.Scopes) == 0 {
		t.Scopes = []string{ScopeCall, ScopeRead}
	}
	if t.Rate < 0 || t.Quota < 0 || t.Per < 0 || t.Burst < 0 {
		return nil, fmt.Errorf("token %q: limits are zero (none) or more", c.Name)
	}
	if t.Rate > 0 {
		burst := t.Burst
		if burst == 0 {
			burst = max(int(t.Rate), 1)
		}
		t.limiter = rate.NewLimiter(rate.Limit(t.Rate), burst)
	}
	if t.Per == 0 {
		t.Per = 24 * time.Hour
	}
	return t, nil
}

// take counts a call against rate and quota.
func (t *token) take(now time.Time) error {
	var r *rate.Reservation
	if t.limiter != nil {
		r = t.limiter.ReserveN(now, 1)
		if d := r.DelayFrom(now); d > 0 {
			r.CancelAt(now)
			return &LimitError{Token: t.Name, What: "rate", After: d}
		}
	}
	if t.Quota > 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		if p := now.UnixNano() / int64(t.Per); p != t.period {
			t.period, t.count = p, 0
		}
		if t.count >= t.Quota {
			if r != nil {
				r.CancelAt(now)
			}
			end := time.Unix(0, (t.period+1)*int64(t.Per))
			return &LimitError{Token: t.Name, What: "quota", After: end.Sub(now)}
		}
		t.count++
	}
	t.used.Add(1)
	return nil
}

// Caller is a guard in the hands of a calling team.
type Caller[Req, Resp any] struct {
	g *Guard[Req, Resp]
	t *token
}

// Caller returns the guard for a token, or [ErrToken].
func (g *Guard[Req, Resp]) Caller(secret string) (*Caller[Req, Resp], error) {
	hash := sha256.Sum256([]byte(secret))
	var found *token
	for _, t := range g.tokens { // all of them, so that the time tells nothing
		if subtle.ConstantTimeCompare(hash[:], t.hash[:]) == 1 {
			found = t
		}
	}
	if found == nil {
		return nil, ErrToken
	}
	return &Caller[Req, Resp]{g: g, t: found}, nil
}

// Do is [Guard.Do] within the token's scope, rate and quota; beyond them it returns
// [ErrToken] or a [LimitError], and nothing is sent or kept.
func (c *Caller[Req, Resp]) Do(ctx context.Context, req Req) (Result[Resp], error) {
	if !slices.Contains(c.t.Scopes, ScopeCall) {
		return Result[Resp]{}, fmt.Errorf("%w: token %s has no scope %s", ErrToken, c.t.Name, ScopeCall)
	}
	if err := c.t.take(time.Now()); err != nil {
		return Result[Resp]{}, err
	}
	return c.g.Do(ctx, req)
}

// Ticket is [Guard.Ticket] within the token's scope.
func (c *Caller[Req, Resp]) Ticket(id string) (*Ticket[Resp], error) {
	if !slices.Contains(c.t.Scopes, ScopeRead) {
		return nil, fmt.Errorf("%w: token %s has no scope %s", ErrToken, c.t.Name, ScopeRead)
	}
	return c.g.Ticket(id), nil
}
