package daemon_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

func hash(token string) string { return config.HashToken(token) }

// withTokens is a configuration with a token for each scope, one for everything, and
// one that is confined to a queue.
func withTokens(t *testing.T) *config.Config {
	c := parse(t, "{queues: {sms: {}, mail: {}}, grace: 100ms}")
	for _, s := range []config.Scope{config.ScopePublish, config.ScopeConsume, config.ScopeCall, config.ScopeRead, "read-payload", config.ScopePropose, config.ScopeRedrive, config.ScopePurge, config.ScopeAdmin} {
		c.Tokens = append(c.Tokens, config.Token{Name: string(s), Hash: hash("secret-" + string(s)), Scopes: []config.Scope{s}})
	}
	c.Tokens = append(c.Tokens, config.Token{Name: "confined", Hash: hash("secret-confined"), Queues: []string{"sms"}})
	return c
}

// path fills in the names of a pattern.
func path(pattern string) string {
	return strings.NewReplacer("{queue}", "sms", "{id}", "m-1").Replace(pattern)
}

func TestEveryRouteWithAWrongToken(t *testing.T) {
	d := start(t, withTokens(t), newStore(t))
	for _, r := range daemon.RouteTable() {
		for token, name := range map[string]string{"": "token-missing", "wrong": "token-unknown", "secret-publish ": "", hash("secret-admin"): "token-unknown"} {
			if name == "" {
				continue
			}
			d.token = token
			if r.Scope == "" {
				if resp, b := d.send(r.Method, path(r.Pattern), ""); resp.StatusCode != http.StatusOK {
					t.Errorf("%s: %d %s; it is open", r.Pattern, resp.StatusCode, b)
				}
				continue
			}
			d.refused(http.StatusUnauthorized, name, r.Method, path(r.Pattern), "{}")
		}
	}
	resp, _ := d.send(http.MethodGet, "/v1/queues", "")
	if resp.Header.Get("WWW-Authenticate") != "Bearer" {
		t.Error("no WWW-Authenticate")
	}
	if log := d.log.String(); !strings.Contains(log, "token refused") || strings.Contains(log, "secret-") || strings.Contains(log, "wrong") {
		t.Error("the log lacks the refusal, or holds a token")
	}
}

func TestEveryRouteWithEveryScope(t *testing.T) {
	// What a scope allows beyond its own name.
	allowed := map[config.Scope][]config.Scope{
		config.ScopePublish: {config.ScopePublish},
		config.ScopeConsume: {config.ScopeConsume},
		config.ScopeCall:    {config.ScopeCall},
		config.ScopeRead:    {config.ScopeRead},
		"read-payload":      {"read-payload", config.ScopeRead},
		config.ScopePropose: {config.ScopePropose, config.ScopeRead},
		config.ScopeRedrive: {config.ScopeRedrive, config.ScopePropose, "read-payload", config.ScopeRead},
		config.ScopePurge:   {config.ScopePurge, config.ScopeRead},
		config.ScopeAdmin:   {config.ScopeAdmin, config.ScopePurge, config.ScopeRedrive, config.ScopePropose, "read-payload", config.ScopeRead, config.ScopePublish, config.ScopeConsume, config.ScopeCall},
	}
	d := start(t, withTokens(t), newStore(t))
	for scope, may := range allowed {
		d.token = "secret-" + string(scope)
		for _, r := range daemon.RouteTable() {
			resp, b := d.send(r.Method, path(r.Pattern), "{}")
			forbidden := resp.StatusCode == http.StatusForbidden
			if want := r.Scope != "" && r.Scope != "any" && !slices.Contains(may, r.Scope); forbidden != want || resp.StatusCode == http.StatusUnauthorized {
				t.Errorf("scope %s, %s %s: %d %s", scope, r.Method, r.Pattern, resp.StatusCode, b)
			}
		}
	}
}

func TestATokenIsConfinedToItsQueues(t *testing.T) {
	d := start(t, withTokens(t), newStore(t))
	d.token = "secret-admin"
	for _, queue := range []string{"sms", "mail"} {
		get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/"+queue+"/messages", "x")
	}
	mail := get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"drop","filter":{"queue":"mail"}}`)
	d.token = "secret-confined"
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/sms/messages", "x")
	if list := get[wire.List[wire.Queue]](d, 200, http.MethodGet, "/v1/queues", ""); len(list.Items) != 1 || list.Items[0].Queue != "sms" {
		t.Errorf("it sees %+v", list.Items)
	}
	get[wire.Verified](d, 200, http.MethodGet, "/v1/verify?queue=sms", "")
	if list := get[wire.List[wire.Plan]](d, 200, http.MethodGet, "/v1/plans", ""); len(list.Items) != 0 {
		t.Errorf("it sees plans %+v", list.Items)
	}
	own := get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"drop","refs":["sms/a"]}`)
	d.eventually("its own plan can be followed to its end", func() bool {
		own := get[wire.Plan](d, 200, http.MethodGet, "/v1/plans/"+own.ID, "")
		return own.Ended()
	})
	for _, r := range []struct{ method, path, body string }{
		{http.MethodPost, "/v1/queues/mail/messages", "x"},
		{http.MethodGet, "/v1/queues/mail", ""},
		{http.MethodGet, "/v1/queues/mail/messages", ""},
		{http.MethodGet, "/v1/queues/mail/messages/m-1", ""},
		{http.MethodGet, "/v1/dead-letters", ""},
		{http.MethodGet, "/v1/dead-letters?queue=mail", ""},
		{http.MethodGet, "/v1/causes", ""},
		{http.MethodGet, "/v1/causes/s/deaths", ""},
		{http.MethodGet, "/v1/causes/s/deaths?queue=mail", ""},
		{http.MethodGet, "/v1/verify", ""},
		{http.MethodGet, "/v1/verify?queue=mail", ""},
		{http.MethodGet, "/v1/config", ""},
		{http.MethodGet, "/metrics", ""},
		{http.MethodGet, "/v1/plans/" + mail.ID, ""},
		{http.MethodPost, "/v1/plans/" + mail.ID + "/cancel", ""},
		{http.MethodPost, "/v1/plans", `{"action":"redrive","filter":{}}`},
		{http.MethodPost, "/v1/plans", `{"action":"redrive","refs":["sms/a","mail/b"]}`},
		{http.MethodPost, "/v1/plans", `{"action":"redrive","filter":{"queue":"sms"},"to":"mail"}`},
	} {
		d.refused(http.StatusForbidden, "forbidden-queue", r.method, r.path, r.body)
	}
}

func TestBodiesNeedTheirScope(t *testing.T) {
	d := start(t, withTokens(t), newStore(t))
	d.token = "secret-publish"
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/sms/messages", "private", "redrive-id", "m-1", "redrive-header-a", "private")
	for scope, hidden := range map[string]bool{"read": true, "read-payload": false, "admin": false} {
		d.token = "secret-" + scope
		_, b := d.send(http.MethodGet, "/v1/queues/sms/messages/m-1", "")
		if strings.Contains(string(b), "private") == hidden || strings.Contains(string(b), `"hidden":true`) != hidden {
			t.Errorf("scope %s: %s", scope, b)
		}
	}
}

func TestAnAddressForOthersNeedsAToken(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:7333"} {
		cfg := config.Default()
		cfg.Listen = listen
		_, err := daemon.New(cfg, daemon.Options{Store: newStore(t)})
		if err == nil || !strings.Contains(err.Error(), "add a token") {
			t.Errorf("%s: %v", listen, err)
		}
	}
}

func TestABrowserCannotReachIn(t *testing.T) {
	d := start(t, parse(t, "queues: {sms: {}}"), newStore(t))
	request := func(method, host string, headers ...string) int {
		r, err := http.NewRequestWithContext(t.Context(), method, d.base+"/v1/queues/sms/messages", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		resp, err := d.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode >= 400 && resp.Header.Get("Content-Type") != problem.ContentType {
			t.Errorf("%d is not a problem", resp.StatusCode)
		}
		if resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("X-Request-Id") == "" || (method == http.MethodGet) != strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("headers %v", resp.Header)
		}
		return resp.StatusCode
	}
	for _, c := range []struct {
		want    int
		method  string
		host    string
		headers []string
	}{
		{202, http.MethodPost, "localhost:7333", nil},
		{202, http.MethodPost, "127.0.0.1", nil},
		{202, http.MethodPost, "[::1]:7333", nil},
		{202, http.MethodPost, "localhost", []string{"Sec-Fetch-Site", "same-origin"}},
		{202, http.MethodPost, "[::1]", nil},
		{421, http.MethodPost, "localhost.evil.example:80", nil},
		{421, http.MethodPost, "127.0.0.1.evil.example", nil},
		{421, http.MethodPost, "evil.example", nil}, // a name that was made to point here
		{421, http.MethodGet, "evil.example:7333", nil},
		{403, http.MethodPost, "localhost", []string{"Sec-Fetch-Site", "cross-site"}},
		{403, http.MethodPost, "localhost", []string{"Origin", "https://evil.example"}},
		{200, http.MethodGet, "localhost", []string{"Sec-Fetch-Site", "cross-site"}}, // reading is for the browser to refuse
	} {
		if got := request(c.method, c.host, c.headers...); got != c.want {
			t.Errorf("%s %s %v: %d, want %d", c.method, c.host, c.headers, got, c.want)
		}
	}
}

func TestTheSocketNeedsNoToken(t *testing.T) {
	cfg := withTokens(t)
	cfg.Store = config.Address("sqlite:" + filepath.Join(t.TempDir(), "data"))
	d := start(t, cfg, nil)
	socket := filepath.Join(cfg.StoreDir(), daemon.SocketName)
	d.refused(401, "token-missing", http.MethodGet, "/v1/queues", "")
	var dialer net.Dialer
	d.http = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, "unix", socket)
	}}}
	d.eventually("the socket is there", func() bool {
		c, err := net.Dial("unix", socket)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	get[wire.List[wire.Queue]](d, 200, http.MethodGet, "/v1/queues", "")
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/sms/messages", "x")
	d.shutdown()
	if _, err := net.Dial("unix", socket); err == nil {
		t.Error("the socket is still there")
	}
	// A socket that a killed process left is taken over.
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	e := start(t, cfg, nil)
	e.http = d.http
	e.eventually("the socket answers again", func() bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://redrive/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := e.http.Do(r)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return string(b) == "{\"status\":\"ok\"}\n"
	})
}
