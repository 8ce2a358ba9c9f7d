package daemon

import (
	"context"
	"crypto/sha256"
	"net/http"
	"slices"
	"time"

	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/problem"
)

// grant is the life of a token. The context of every request that is made with it ends
// with the grant's own (see [gateway.Within]), which ends with a problem as its cause
// when the token is revoked, expires or loses a right. A token that a new configuration
// leaves as it was, or gives more rights, keeps its grant.
type grant struct {
	ctx   context.Context //nolint:containedctx // that is what it is
	end   context.CancelCauseFunc
	timer *time.Timer // of its expiry; nil: none
}

func newGrant() *grant {
	g := new(grant)
	g.ctx, g.end = context.WithCancelCause(context.Background())
	return g
}

// until lets the grant end at a time, instead of at the one that was said before; zero: never.
func (g *grant) until(at time.Time, why *problem.Problem) {
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	if !at.IsZero() {
		g.timer = time.AfterFunc(time.Until(at), func() { g.end(why) })
	}
}

// over is a grant that ends, and why.
type over struct {
	*grant
	why *problem.Problem
}

// succeed takes over what goes on from the configuration before, and returns what ends
// as soon as this one is in force.
func (l *live) succeed(old *live) (ended []over) {
	l.people, l.local = old.people, old.local // what lets them in needs a restart to change
	if old.tokens == nil && l.tokens == nil {
		l.open = old.open
		return nil
	}
	if old.tokens == nil {
		return []over{{old.open, tokenMissing()}}
	}
	now := make(map[[sha256.Size]byte]*token)
	for _, t := range l.tokens.all() {
		now[t.hash] = t
	}
	for _, was := range old.tokens.all() {
		is := now[was.hash]
		switch {
		case is == nil:
			ended = append(ended, over{was.grant, problem.New(http.StatusUnauthorized, "token-revoked", "The token was revoked", "token "+was.name, "use another token")})
		case !was.within(&is.caller):
			ended = append(ended, over{was.grant, problem.New(http.StatusForbidden, "token-changed", "The token's rights were changed", "token "+was.name, "send the rest again")})
		case was.grant.ctx.Err() == nil:
			is.grant.until(time.Time{}, nil)
			is.grant = was.grant
			is.grant.until(is.expiry())
		}
	}
	return ended
}

// within reports whether another caller may do all that this one may.
func (c *caller) within(other *caller) bool {
	for _, s := range config.Scopes() {
		if c.may(s) && !other.may(s) {
			return false
		}
	}
	if len(other.queues) == 0 || slices.Contains(other.queues, "*") {
		return true
	}
	return len(c.queues) > 0 && !slices.ContainsFunc(c.queues, func(pattern string) bool { return !slices.Contains(other.queues, pattern) })
}
