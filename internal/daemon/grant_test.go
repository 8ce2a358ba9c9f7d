package daemon

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/daemon/gateway"
)

// expiring is a configuration with one token.
func expiring(t *testing.T, in time.Duration, change func(*config.Token)) *live {
	t.Helper()
	token := config.Token{Name: "n", Hash: config.HashToken("secret")}
	if in != 0 {
		token.Expires.Time = time.Now().Add(in)
	}
	if change != nil {
		change(&token)
	}
	return &live{tokens: newTokens([]config.Token{token})}
}

// replacedBy puts a configuration into force.
func (l *live) replacedBy(next *live) *live {
	for _, o := range next.succeed(l) {
		o.end(o.why)
	}
	return next
}

// within begins a request with the token.
func (l *live) within(t *testing.T) context.Context {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer secret")
	who, p := l.tokens.identify(r, time.Now())
	if p != nil {
		t.Fatal(p)
	}
	r, release := gateway.Within(who.grant.ctx, r)
	t.Cleanup(release)
	return r.Context()
}

func ended(ctx context.Context) string {
	synctest.Wait()
	if p := gateway.Ended(ctx); p != nil {
		return p.Name()
	}
	return ""
}

func TestRequestsEndWhenTheirTokenExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := expiring(t, time.Hour, nil)
		ctx := l.within(t)
		<-time.After(time.Hour - 1)
		if got := ended(ctx); got != "" {
			t.Errorf("before its time: %s", got)
		}
		<-time.After(1)
		if got := ended(ctx); got != "token-expired" {
			t.Errorf("it ends with %q", got)
		}
		// Another configuration gives it more time, less, and none.
		l = l.replacedBy(expiring(t, time.Hour, nil))
		ctx = l.within(t)
		l = l.replacedBy(expiring(t, 2*time.Hour, nil))
		<-time.After(time.Hour)
		if got := ended(ctx); got != "" {
			t.Errorf("it was given more time, and ends with %s", got)
		}
		l = l.replacedBy(expiring(t, time.Minute, nil))
		<-time.After(time.Minute)
		if got := ended(ctx); got != "token-expired" {
			t.Errorf("it was given less time, and ends with %q", got)
		}
		l = l.replacedBy(expiring(t, time.Hour, nil))
		ctx = l.within(t)
		l.replacedBy(expiring(t, -time.Second, nil))
		if got := ended(ctx); got != "token-expired" {
			t.Errorf("it ends with %q", got)
		}
	})
}

func TestRequestsEndWhenTheirTokenLosesARight(t *testing.T) {
	one := []config.Scope{config.ScopePublish}
	for name, c := range map[string]struct {
		before, after func(*config.Token)
		want          string
	}{
		"nothing":          {nil, nil, ""},
		"a rate":           {nil, func(c *config.Token) { c.Rate.Count, c.Rate.Per = 1, time.Second }, ""},
		"a scope less":     {nil, func(c *config.Token) { c.Scopes = one }, "token-changed"},
		"a scope more":     {func(c *config.Token) { c.Scopes = one }, nil, ""},
		"a queue less":     {func(c *config.Token) { c.Queues = []string{"a", "b.*"} }, func(c *config.Token) { c.Queues = []string{"a"} }, "token-changed"},
		"a queue more":     {func(c *config.Token) { c.Queues = []string{"a"} }, func(c *config.Token) { c.Queues = []string{"b", "a"} }, ""},
		"some queues only": {nil, func(c *config.Token) { c.Queues = []string{"a"} }, "token-changed"},
		"every queue":      {func(c *config.Token) { c.Queues = []string{"a"} }, func(c *config.Token) { c.Queues = []string{"*"} }, ""},
		"another secret":   {nil, func(c *config.Token) { c.Hash = config.HashToken("other") }, "token-revoked"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := expiring(t, 0, c.before)
				ctx := l.within(t)
				l = l.replacedBy(expiring(t, 0, c.after))
				if got := ended(ctx); got != c.want {
					t.Errorf("it ends with %q, want %q", got, c.want)
				}
				l.replacedBy(&live{open: newGrant()})
				if got := ended(ctx); got == "" {
					t.Error("it outlives the token")
				}
			})
		})
	}
}
