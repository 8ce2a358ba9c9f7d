package daemon

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/text"
)

// maxPerson bounds the name of a person, in bytes: of people and mail addresses, not of tokens.
const maxPerson = 200

// named returns the name of the person whom a trusted proxy says a request is of; "": none.
func named(cfg *config.Config, r *http.Request) (string, *problem.Problem) {
	values := r.Header.Values(cfg.UI.TrustedHeader)
	if len(values) == 0 || len(values) == 1 && strings.TrimSpace(values[0]) == "" {
		return "", nil
	}
	name := strings.TrimSpace(values[0])
	var wrong string
	switch {
	case len(values) > 1:
		wrong = fmt.Sprintf("it is there %d times", len(values))
	case len(name) > maxPerson:
		wrong = fmt.Sprintf("it has %d bytes, at most %d are a name", len(name), maxPerson)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, text.Hidden):
		wrong = "it has characters that do not show"
	case name == everyone.name || slices.ContainsFunc(cfg.Tokens, func(t config.Token) bool { return strings.EqualFold(t.Name, name) }):
		wrong = fmt.Sprintf("%q is the name of a token, and the audit log could not tell them apart", name)
	default:
		return name, nil
	}
	return "", problem.New(http.StatusForbidden, "person", "The proxy names nobody", "header "+cfg.UI.TrustedHeader+": "+wrong, "set it in the proxy to the name of whoever logged in, and to nothing else")
}

// visiting returns the caller that a visitor of the pages is now.
func (l *live) visiting(v visitor, now time.Time) (*caller, *problem.Problem) {
	switch {
	case v.digest == l.local:
		return &caller{name: everyone.name, scopes: everyone.scopes, grant: l.people}, nil
	case v.person == "":
		return l.tokens.known(v, now)
	}
	role := cmp.Or(l.config.UI.Role, config.ScopeRead)
	return &caller{name: v.person, scopes: []config.Scope{role}, grant: l.people}, nil
}

// strangers counts requests with a header that only trusted proxies may send, and says so in the
// log, once a minute at most.
type strangers struct {
	count atomic.Int64
	said  atomic.Int64 // when, in Unix seconds
}

const strangersSaid = time.Minute

func (s *strangers) note(ctx context.Context, log *slog.Logger, header, remote string) {
	n := s.count.Add(1)
	now, said := time.Now(), s.said.Load()
	if now.Sub(time.Unix(said, 0)) < strangersSaid || !s.said.CompareAndSwap(said, now.Unix()) {
		return
	}
	log.LogAttrs(ctx, slog.LevelWarn, "header ignored: it is not from a trusted proxy", slog.String("header", header), slog.String("remote", remote), slog.Int64("so_far", n))
}
