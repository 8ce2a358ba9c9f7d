//go:build !noui

package daemon_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/servertest"
	"github.com/redrive/redrive/internal/wire"
)

// A link logs in who made it, once, within a minute, and not by being looked at.
func TestALoginLinkIsGoodOnce(t *testing.T) {
	inBubble(t, pagesTokens, func(t *testing.T, _ driver.Store, l *servertest.Pipes, _ *daemon.Server) {
		link := func(token string) string {
			b := newBrowser(t, "", l)
			b.header.Set("Authorization", "Bearer "+token)
			resp, body := b.open(http.MethodPost, "/v1/logins", url.Values{})
			var login wire.Login
			if resp.StatusCode != http.StatusCreated {
				t.Fatalf("%d %s", resp.StatusCode, body)
			}
			decode(t, []byte(body), &login)
			at, err := url.Parse(login.URL)
			if err != nil || at.Path != "/ui/login" || login.Expires == nil || login.Expires.Sub(time.Now().UTC()) != time.Minute {
				t.Fatalf("%+v %v", login, err)
			}
			return at.Query().Get("link")
		}
		follow := func(link string) (*browser, int) {
			b := newBrowser(t, "", l)
			resp, _ := b.open(http.MethodPost, "/ui/login", url.Values{"link": {link}})
			return b, resp.StatusCode
		}
		code := link("secret-read")
		for range 2 {
			if page := newBrowser(t, "", l).page("/ui/login?link=" + code); !strings.Contains(page, fmt.Sprintf(`name="link" value="%s"`, code)) || strings.Contains(page, `name="token"`) {
				t.Errorf("no button:\n%s", page)
			}
		}
		b, status := follow(code)
		if page := b.page("/ui/queues"); status != http.StatusSeeOther || !strings.Contains(page, "<span>read</span>") {
			t.Errorf("%d\n%s", status, page)
		}
		for _, wrong := range []string{code, code[:20], "x", strings.Repeat("A", 43)} {
			if _, status := follow(wrong); status != http.StatusUnauthorized {
				t.Errorf("%q lets in: %d", wrong, status)
			}
		}
		old := link("secret-read")
		<-time.After(time.Minute)
		if _, status := follow(old); status != http.StatusUnauthorized {
			t.Errorf("after a minute: %d", status)
		}
		if resp, _ := newBrowser(t, "", l).open(http.MethodPost, "/v1/logins", url.Values{}); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("without a token: %d", resp.StatusCode)
		}
	})
}
