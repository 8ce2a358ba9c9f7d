package daemon_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/servertest"
)

// TestWhatIsOpenEndsWithinASecond of its token's revocation, from the change of the file:
// streams, bodies that do not come to their end, and whatever waits, in simulated time.
// Sessions: see TestATokenThatIsOverClosesASlowReader.
func TestWhatIsOpenEndsWithinASecond(t *testing.T) {
	const sum = `{name: holder, hash: "%s"%s}`
	for name, left := range map[string]string{
		"token-revoked": "", "token-changed": fmt.Sprintf(sum, hash("holder"), ", scopes: [read]"),
	} {
		t.Run(name, func(t *testing.T) {
			conf := func(token string) *config.Config {
				return parse(t, fmt.Sprintf("{queues: {sms: {deliver: {url: \"http://127.0.0.1:1\", allow_private: true}, guard: {}}, idle: {}}, grace: 100ms, tokens: [{name: root, hash: %q}, %s]}", hash("root"), token))
			}
			synctest.Test(t, func(t *testing.T) {
				s, err := daemon.New(conf(fmt.Sprintf(sum, hash("holder"), "")), daemon.Options{Store: memory.New(), Reload: func() (*config.Config, error) { return conf(left), nil }})
				if err != nil {
					t.Fatal(err)
				}
				l := servertest.NewPipes()
				defer s.ServeOn(l)()
				var ended sync.Map
				var began []string
				begin := func(what, method, path, body, media string) { // without a dot at its end the body has none
					near := l.Dial()
					t.Cleanup(func() { near.Close() })
					began = append(began, what)
					go func() {
						fmt.Fprintf(near, "%s %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer holder\r\nContent-Type: %s\r\n", method, path, media)
						if whole, ok := strings.CutSuffix(body, "."); ok {
							fmt.Fprintf(near, "Content-Length: %d\r\n\r\n%s", len(whole), whole)
						} else {
							fmt.Fprintf(near, "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(body), body)
						}
						resp, err := http.ReadResponse(bufio.NewReader(near), nil)
						if err == nil {
							_, err = io.ReadAll(resp.Body)
							_ = resp.Body.Close()
						}
						ended.Store(what, err)
					}()
				}
				begin("a claim that waits", http.MethodPost, "/v1/queues/idle/claims", `{"wait":"1m"}.`, "application/json")
				begin("a result", http.MethodGet, "/v1/queues/idle/messages/m?wait=1m", ".", "")
				begin("changes", http.MethodGet, "/v1/events", ".", "")
				begin("a stream", http.MethodPost, "/v1/queues/sms/messages", "{}\n", "application/x-ndjson")
				for _, route := range daemon.RouteTable() {
					if route.Body {
						begin(route.Method+" "+route.Pattern, route.Method, path(route.Pattern), "{", "application/json")
					}
				}
				<-time.After(3 * time.Second)
				synctest.Wait()
				open := slices.DeleteFunc(began, func(what string) bool { _, over := ended.Load(what); return over })
				if len(open) < 10 || !slices.Contains(open, "a claim that waits") || !slices.Contains(open, "a result") || !slices.Contains(open, "a stream") || !slices.Contains(open, "changes") {
					t.Errorf("open are %q", open)
				}
				if err := s.Replace(t.Context()); err != nil {
					t.Fatal(err)
				}
				<-time.After(time.Second - daemon.ReloadAfter)
				synctest.Wait()
				for _, what := range open {
					if _, ok := ended.Load(what); !ok {
						t.Errorf("%s goes on a second after", what)
					}
				}
			})
		})
	}
}
