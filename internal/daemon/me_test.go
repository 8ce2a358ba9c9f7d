package daemon_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

// Every token learns what it may do, with what its scopes imply, and nothing of secrets or hosts.
func TestWhoAmI(t *testing.T) {
	cfg := withTokens(t)
	d := start(t, cfg, newStore(t))
	for token, c := range map[string]struct {
		scopes   []string
		readOnly bool
		queues   []string
	}{
		"publish":  {[]string{"publish"}, false, nil},
		"read":     {[]string{"read"}, true, nil},
		"redrive":  {[]string{"propose", "read", "read-payload", "redrive"}, false, nil},
		"confined": {[]string{"admin", "call", "consume", "propose", "publish", "purge", "read", "read-payload", "redrive"}, false, []string{"sms"}},
	} {
		d.token = "secret-" + token
		d.eventually("the daemon has its record", func() bool {
			return len(get[wire.Me](d, 200, http.MethodGet, "/v1/me", "").Instances) == 1
		})
		me := get[wire.Me](d, 200, http.MethodGet, "/v1/me", "")
		slices.Sort(me.Scopes)
		if me.Name != token || me.Open || !slices.Equal(me.Scopes, c.scopes) || me.ReadOnly != c.readOnly || !slices.Equal(me.Queues, c.queues) ||
			me.Version != "test" || me.Instances[0].ID != me.Instance || me.Instances[0].Version != "test" {
			t.Errorf("%s: %+v", token, me)
		}
	}
	d.refused(http.StatusBadRequest, "invalid", http.MethodGet, "/v1/me?x=1", "")

	d = start(t, parse(t, "queues: {sms: {}}"), newStore(t))
	if me := get[wire.Me](d, 200, http.MethodGet, "/v1/me", ""); me.Name != "local" || !me.Open || me.ReadOnly || len(me.Scopes) != len(config.Scopes()) {
		t.Errorf("without tokens: %+v", me)
	}
}
