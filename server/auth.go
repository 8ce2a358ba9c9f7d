package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"

	"github.com/redrive/redrive/config"
	"github.com/redrive/redrive/gateway/problem"
)

// scopeReadPayload lets a token see bodies, headers and excerpts of responses.
const scopeReadPayload config.Scope = "read-payload"

// scopeOpen marks routes that need no token.
const scopeOpen config.Scope = ""

// caller is who sends a request.
type caller struct {
	name   string // for logs and plans
	scopes []config.Scope
	queues []string // none: all
}

// everyone is the caller where no token is asked for.
var everyone = caller{name: "local", scopes: []config.Scope{config.ScopeAdmin}}

// may reports whether the caller's scopes include one.
func (c *caller) may(s config.Scope) bool {
	switch {
	case slices.Contains(c.scopes, config.ScopeAdmin), slices.Contains(c.scopes, s):
		return true
	case s == config.ScopeRead, s == scopeReadPayload:
		return slices.Contains(c.scopes, config.ScopeRedrive) || s == config.ScopeRead && slices.Contains(c.scopes, scopeReadPayload)
	}
	return false
}

// sees reports whether the caller may use a queue.
func (c *caller) sees(queue string) bool {
	return len(c.queues) == 0 || slices.Contains(c.queues, queue)
}

// confine refuses a request that is not about queues the caller may use. An empty
// name stands for all queues.
func (c *caller) confine(queues ...string) error {
	if len(c.queues) == 0 {
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

// tokens know the callers. Without any, everyone is let in.
type tokens []token

func newTokens(list []config.Token) tokens {
	all := make(tokens, 0, len(list))
	for i := range list {
		t := token{caller: caller{name: list[i].Name, scopes: list[i].Scopes, queues: list[i].Queues}}
		if len(t.scopes) == 0 {
			t.scopes = config.Scopes()
		}
		// A hash that cannot be read, which the configuration's check refuses, lets
		// nobody in.
		if sum, err := hex.DecodeString(strings.TrimPrefix(list[i].Hash, "sha256:")); err == nil && len(sum) == len(t.hash) {
			copy(t.hash[:], sum)
			all = append(all, t)
		}
	}
	return all
}

// identify returns the caller of a request. What is compared are hashes, in constant
// time and against every token, so that time tells nothing.
func (t tokens) identify(r *http.Request) (*caller, *problem.Problem) {
	secret, ok := bearer(r)
	if !ok {
		return nil, problem.New(http.StatusUnauthorized, "token-missing", "A token is needed", "", "send it as Authorization: Bearer TOKEN (REDRIVE_TOKEN or --token for the command line)")
	}
	hash := sha256.Sum256([]byte(secret))
	var found *caller
	for i := range t {
		if subtle.ConstantTimeCompare(hash[:], t[i].hash[:]) == 1 {
			found = &t[i].caller
		}
	}
	if found == nil {
		return nil, problem.New(http.StatusUnauthorized, "token-unknown", "The token is not known", "", "check it against the hashes under tokens: in the configuration")
	}
	return found, nil
}

func bearer(r *http.Request) (string, bool) {
	scheme, secret, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	secret = strings.TrimSpace(secret)
	return secret, ok && strings.EqualFold(scheme, "bearer") && secret != ""
}
