package daemon

import (
	"crypto/sha256"
	"crypto/subtle"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/daemon/gateway/ws"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/text"
)

// What routes need that no token has by name: none at all, or any.
const (
	scopeOpen config.Scope = ""
	scopeAny  config.Scope = "any"
)

// caller is who sends a request.
type caller struct {
	name    string // for logs and plans
	id      string // under which its use is counted
	scopes  []config.Scope
	queues  []string // patterns; none: all
	expires time.Time
	rate    config.Rate
	quota   config.Rate
	grant   *grant
}

// everyone is the caller where no token is asked for.
var everyone = caller{name: "local", scopes: []config.Scope{config.ScopeAdmin}}

// implied are what a scope allows beyond itself.
var implied = map[config.Scope][]config.Scope{
	config.ScopeReadPayload: {config.ScopeRead},
	config.ScopePropose:     {config.ScopeRead},
	config.ScopeRedrive:     {config.ScopeRead, config.ScopeReadPayload, config.ScopePropose},
	config.ScopePurge:       {config.ScopeRead},
	config.ScopeAdmin:       config.Scopes(),
}

// may reports whether the caller's scopes include one.
func (c *caller) may(s config.Scope) bool {
	return s == scopeAny || slices.ContainsFunc(c.scopes, func(have config.Scope) bool { return have == s || slices.Contains(implied[have], s) })
}

// sees reports whether the caller may use a queue.
func (c *caller) sees(queue string) bool {
	return len(c.queues) == 0 || slices.ContainsFunc(c.queues, func(pattern string) bool { return text.Match(pattern, queue) })
}

// confine refuses a request that is not about queues the caller may use. An empty
// name stands for all queues.
func (c *caller) confine(queues ...string) error {
	if len(c.queues) == 0 || slices.Contains(c.queues, "*") {
		return nil
	}
	for _, q := range queues {
		if q == "" {
			return problem.New(http.StatusForbidden, "forbidden-queue", "The token is confined to some queues",
				"the request is about all queues", "name one of them with queue: "+strings.Join(c.queues, ", "))
		}
		if !c.sees(q) {
			return problem.New(http.StatusForbidden, "forbidden-queue", "The token is confined to some queues",
				"queue "+q+" is not one of them", "use one of "+strings.Join(c.queues, ", "))
		}
	}
	return nil
}

// token is a configured token.
type token struct {
	hash [sha256.Size]byte
	caller
}

// tokens know the callers: by the id in the token, or, for those without an id, by
// comparing with each.
type tokens struct {
	byID    map[string]*token
	without []*token
}

// all returns every token; nil has none.
func (t *tokens) all() []*token {
	if t == nil {
		return nil
	}
	return append(slices.Collect(maps.Values(t.byID)), t.without...)
}

// callerOf returns the caller that a token stands for.
func callerOf(t *config.Token) caller {
	c := caller{name: t.Name, id: t.ID, scopes: t.Scopes, queues: t.Queues, expires: t.Expires.Time, rate: t.Rate, quota: t.Quota}
	if c.id == "" {
		c.id = t.Name
	}
	if len(c.scopes) == 0 {
		c.scopes = config.Scopes()
	}
	return c
}

func newTokens(list []config.Token) *tokens {
	all := &tokens{byID: make(map[string]*token)}
	for i := range list {
		c := &list[i]
		t := &token{caller: callerOf(c)}
		t.grant = newGrant()
		t.grant.until(t.expiry())
		// A hash that cannot be read, which the configuration's check refuses, lets
		// nobody in.
		var ok bool
		if t.hash, ok = c.Sum(); !ok {
			continue
		}
		if c.ID != "" {
			all.byID[c.ID] = t
		} else {
			all.without = append(all.without, t)
		}
	}
	return all
}

// identify returns the caller of a request. What is compared are hashes, in constant
// time, so that time tells nothing but whether an id exists, which is no secret.
func (t *tokens) identify(r *http.Request, now time.Time) (*caller, *problem.Problem) {
	secret, ok := bearer(r)
	if !ok {
		return nil, tokenMissing()
	}
	found, p := t.find(secret, now)
	if p != nil {
		return nil, p
	}
	return &found.caller, nil
}

// find returns the token that a secret is.
func (t *tokens) find(secret string, now time.Time) (*token, *problem.Problem) {
	candidates := t.without
	if named := t.byID[config.TokenID(secret)]; named != nil {
		candidates = []*token{named}
	}
	hash := sha256.Sum256([]byte(secret))
	var found *token
	for _, c := range candidates {
		if subtle.ConstantTimeCompare(hash[:], c.hash[:]) == 1 {
			found = c
		}
	}
	if found == nil {
		return nil, problem.New(http.StatusUnauthorized, "token-unknown", "The token is not known", "", "check it against the hashes under tokens: in the configuration")
	}
	return found, found.expired(now)
}

// expired returns what a token is answered whose time is over, or nil.
func (c *caller) expired(now time.Time) *problem.Problem {
	if c.expires.IsZero() || now.Before(c.expires) {
		return nil
	}
	_, p := c.expiry()
	return p
}

// visitor names a token without holding it: who logged in to the pages. It stands in the context
// of requests that the pages make in this process.
type visitor struct {
	id     string // of the token, or its name where it has none
	digest string // of its hash
	person string // whom a proxy let in; then there is no token
}

// visitorKey is under which a context has its visitor.
type visitorKey struct{}

const digestBytes = 16

func (t *token) visitor() visitor { return visitor{id: t.id, digest: string(t.hash[:digestBytes])} }

// known returns the caller that a visitor is, while the token is there and the same.
func (t *tokens) known(v visitor, now time.Time) (*caller, *problem.Problem) {
	for _, c := range t.all() {
		if c.visitor() == v {
			return &c.caller, c.expired(now)
		}
	}
	return nil, problem.New(http.StatusUnauthorized, "token-revoked", "The token was revoked", "", "log in with another")
}

func tokenMissing() *problem.Problem {
	return problem.New(http.StatusUnauthorized, "token-missing", "A token is needed", "", "send it as Authorization: Bearer TOKEN (REDRIVE_TOKEN or --token for the command line)")
}

// expiry returns when the token expires, zero: never, and what its requests are answered.
func (c *caller) expiry() (time.Time, *problem.Problem) {
	return c.expires, problem.New(http.StatusUnauthorized, "token-expired", "The token has expired", "token "+c.name+" was good until "+c.expires.Format(time.RFC3339),
		"make another: redrive token new")
}

// bearer returns the token of a request: from its header, or, as browsers cannot set one
// for a WebSocket, from the subprotocols.
func bearer(r *http.Request) (string, bool) {
	if r.Header.Get("Authorization") == "" {
		return ws.Bearer(r)
	}
	scheme, secret, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	secret = strings.TrimSpace(secret)
	return secret, ok && strings.EqualFold(scheme, "bearer") && secret != ""
}
