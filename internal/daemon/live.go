package daemon

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/redrive/redrive/backlog"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"

	"github.com/redrive/redrive/engine"
)

// live is what the configuration in force means. It is replaced as a whole, never
// changed.
type live struct {
	config   *config.Config
	hash     string
	tokens   *tokens // nil: everyone may do everything
	open     *grant  // of everyone then
	people   *grant  // of whom a proxy lets in to the pages, or the socket
	local    string  // names the latter, until the daemon ends
	policies map[string]*engine.Policies
	limits   map[string]backlog.Limits
	masks    map[string]*masks // see masksIn
}

func newLive(cfg *config.Config) (*live, error) {
	hash, err := configHash(cfg)
	if err != nil {
		return nil, err
	}
	l := &live{config: cfg, hash: hash, policies: make(map[string]*engine.Policies, len(cfg.Queues)), limits: make(map[string]backlog.Limits, len(cfg.Queues)), masks: masksIn(cfg), people: newGrant(), local: rand.Text()}
	l.limits[driver.ResultQueue] = limitsOfResults
	if len(cfg.Tokens) > 0 {
		l.tokens = newTokens(cfg.Tokens)
	} else {
		l.open = newGrant()
	}
	for name, q := range cfg.Queues {
		policies := cfg.PoliciesOf(name)
		l.policies[name] = &policies
		if q != nil {
			l.limits[name] = limitsOf(q.Limits, q.Deliver)
		}
	}
	return l, nil
}

// configHash tells configurations apart. Secrets are in it by their references, the
// address to listen on is not: daemons on one store differ in it.
func configHash(cfg *config.Config) (string, error) {
	shown := *cfg
	shown.Listen = ""
	b, err := json.Marshal(&shown)
	if err != nil {
		return "", fmt.Errorf("hash of the configuration: %w", err)
	}
	h := sha256.New()
	h.Write(b)
	for i := range cfg.Tokens { // which JSON hides
		h.Write([]byte(cfg.Tokens[i].Hash))
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// conf returns the configuration in force, or nil in a process that has none.
func (a *app) conf() *config.Config {
	if l := a.live.Load(); l != nil {
		return l.config
	}
	return nil
}
