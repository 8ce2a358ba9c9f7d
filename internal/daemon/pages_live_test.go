//go:build !noui

package daemon_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/servertest"
)

// part is a fragment as a page's script gets it.
type part struct {
	Key     string
	Item    any
	Removed bool
}

// watched is an open stream of a page.
type watched struct {
	mu    sync.Mutex
	parts []part
	beats int
	bytes int
	ended bool
	head  *http.Response
}

// watch opens the stream of a page in simulated time, with the browser's cookies.
func (b *browser) watch(l *servertest.Pipes, path string) *watched {
	b.t.Helper()
	w := new(watched)
	near := l.Dial()
	b.t.Cleanup(func() { near.Close() })
	r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, b.base+"/ui/live"+path, http.NoBody)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range b.client.Jar.Cookies(r.URL) {
		r.AddCookie(c)
	}
	go func() {
		defer func() { w.mu.Lock(); w.ended = true; w.mu.Unlock() }()
		if r.Write(near) != nil {
			return
		}
		resp, err := http.ReadResponse(bufio.NewReader(near), r)
		if err != nil {
			return
		}
		defer resp.Body.Close()
		w.mu.Lock()
		w.head = resp
		w.mu.Unlock()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			w.mu.Lock()
			w.bytes += len(lines.Bytes()) + 1
			if data, ok := strings.CutPrefix(lines.Text(), "data: {"); ok {
				var p part
				if err := json.Unmarshal([]byte("{"+data), &p); err != nil {
					b.t.Error(err)
				}
				w.parts = append(w.parts, p)
			} else if lines.Text() == "event: beat" {
				w.beats++
			}
			w.mu.Unlock()
		}
	}()
	return w
}

// got returns what came since the last time.
func (w *watched) got() (parts []part, beats int) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	parts, beats = w.parts, w.beats
	w.parts, w.beats = nil, 0
	return parts, beats
}

// size is how many bytes came in all.
func (w *watched) size() int {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes
}

func (w *watched) over() bool {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
}

// find returns the newest part with a key.
func find(parts []part, key string) (found part) {
	for _, p := range parts {
		if p.Key == key {
			found = p
		}
	}
	return found
}

// countedStore counts how often the queues are counted, which each look at them does once.
type countedStore struct {
	driver.Store
	counted atomic.Int64
}

func (s *countedStore) Unwrap() any { return s.Store }

func (s *countedStore) Counts(ctx context.Context, queues ...string) ([]driver.Counts, error) {
	s.counted.Add(1)
	return s.Store.Counts(ctx, queues...)
}

// A page is made anew once for all who look at it with the same token, and as often as for one.
func TestAFragmentIsMadeOnceHoweverManyLook(t *testing.T) {
	looks := make(map[int]int64)
	for _, readers := range []int{1, 50} {
		synctest.Test(t, func(t *testing.T) {
			store := &countedStore{Store: memory.New()}
			s, err := daemon.New(parse(t, pagesConfig), daemon.Options{Store: store})
			if err != nil {
				t.Fatal(err)
			}
			l := servertest.NewPipes()
			defer s.ServeOn(l)()
			scene(t, store, time.Now())
			b := newBrowser(t, "", l)
			var all []*watched
			for range readers {
				all = append(all, b.watch(l, "/"))
			}
			<-time.After(5 * time.Second)
			synctest.Wait()
			before := store.counted.Load()
			for _, w := range all {
				w.got()
			}
			for i := range 10 {
				deadOf(t, store, "orders", fmt.Sprint("new-", i), "no stock")
				<-time.After(time.Second)
			}
			synctest.Wait()
			looks[readers] = store.counted.Load() - before
			for i, w := range all {
				parts, _ := w.got()
				if head := find(parts, "live-head"); !strings.Contains(fmt.Sprint(head.Item), "460 dead") {
					t.Errorf("of %d, %d did not get the newest: %v", readers, i, head)
				}
			}
		})
	}
	if looks[50] > looks[1]+2 || looks[1] < 5 {
		t.Errorf("the store was asked %d times for 1 reader, %d times for 50", looks[1], looks[50])
	}
	t.Logf("%d for one reader, %d for 50", looks[1], looks[50])
}

// The stream of a page has what changed of it, and nothing of the session that it was made for.
func TestPagesAreKeptUpToDate(t *testing.T) {
	inBubble(t, pagesTokens, func(t *testing.T, store driver.Store, l *servertest.Pipes, _ *daemon.Server) {
		scene(t, store, time.Now())
		b := newBrowser(t, "", l)
		b.logIn("secret-admin")
		signature := causeOf(t, b, "orders", "422")
		plan := planOf(t, b, "orders", signature)
		streams := make(map[string]*watched)
		for _, path := range []string{"/", "/causes", "/causes?queue=orders&sort=count", "/queues", "/queues/orders", "/plans", strings.TrimPrefix(plan, "/ui")} {
			streams[path] = b.watch(l, path)
		}
		<-time.After(3 * time.Second)
		for path, w := range streams {
			parts, beats := w.got()
			page := b.page("/ui" + path)
			if w.head == nil || w.head.StatusCode != 200 || w.head.Header.Get("Content-Type") != "text/event-stream" || w.head.Header.Get("X-Accel-Buffering") != "no" || w.head.Header.Get("Cache-Control") != "no-store" {
				t.Fatalf("%s: %+v", path, w.head)
			}
			if !strings.Contains(page, `data-stream="/ui/live`) {
				t.Errorf("%s does not say where its stream is", path)
			}
			if len(parts) < 2 {
				t.Errorf("%s: %d parts, %d beats", path, len(parts), beats)
			}
			for _, p := range parts {
				html, isHTML := p.Item.(string)
				if p.Key == "order" && !isHTML {
					continue
				}
				if !strings.Contains(page, fmt.Sprintf("id=%q", p.Key)) || !strings.Contains(html, fmt.Sprintf("id=%q", p.Key)) {
					t.Errorf("%s has no element %s", path, p.Key)
				}
				if strings.Contains(html, b.form) {
					t.Errorf("%s: %s has the token of a session's forms", path, p.Key)
				}
			}
		}
		deadOf(t, store, "orders", "another", "another cause")
		<-time.After(4 * time.Second)
		if parts, _ := streams["/causes"].got(); !strings.Contains(fmt.Sprint(find(parts, "live-head").Item), "6 causes, 451 dead") || len(find(parts, "order").Item.([]any)) != 6 {
			t.Errorf("causes: %v", parts)
		}
		if parts, _ := streams["/queues"].got(); !strings.Contains(fmt.Sprint(find(parts, "q/orders").Item), "291") || find(parts, "order").Key != "" || find(parts, "q/payments").Key != "" {
			t.Errorf("queues: %v", parts)
		}
		if parts, _ := streams["/queues/orders"].got(); !strings.Contains(fmt.Sprint(find(parts, "live-numbers").Item), `value="reader"`) && !strings.Contains(fmt.Sprint(find(parts, "live-numbers").Item), "291") {
			t.Errorf("queue: %v", parts)
		}
		for path, w := range streams {
			w.got()
			<-time.After(10 * time.Second)
			before := w.size()
			w.got()
			<-time.After(10 * time.Second)
			if _, beats := w.got(); beats < 2 {
				t.Errorf("%s: %d beats in 10 s", path, beats)
			}
			if rate := (w.size() - before) / 10; rate > 20<<10 {
				t.Errorf("%s: %d bytes a second", path, rate)
			}
		}
		for path, status := range map[string]int{"/ui/live/nothing": 404, "/ui/live/causes?x=1": 400, "/ui/live/dead": 404} {
			if resp, _ := b.open(http.MethodGet, path, nil); resp.StatusCode != status {
				t.Errorf("%s: %d", path, resp.StatusCode)
			}
		}
		if resp, _ := newBrowser(t, "", l).open(http.MethodGet, "/ui/live/", nil); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("without a session: %d", resp.StatusCode)
		}
	})
}

// A stream ends within a second of its token's revocation, from the change of the file.
func TestStreamsOfPagesEndWithTheToken(t *testing.T) {
	conf := func(t *testing.T, tokens ...config.Token) *config.Config {
		c := parse(t, pagesConfig)
		c.Tokens = append(tokens, config.Token{Name: "root", Hash: hash("secret-root")})
		return c
	}
	reader := config.Token{Name: "reader", Hash: hash("secret-reader"), Scopes: []config.Scope{config.ScopeRead}}
	synctest.Test(t, func(t *testing.T) {
		s, err := daemon.New(conf(t, reader), daemon.Options{Store: memory.New(), Reload: func() (*config.Config, error) { return conf(t), nil }})
		if err != nil {
			t.Fatal(err)
		}
		l := servertest.NewPipes()
		defer s.ServeOn(l)()
		b, root := newBrowser(t, "", l), newBrowser(t, "", l)
		b.logIn("secret-reader")
		root.logIn("secret-root")
		ends, stays := b.watch(l, "/causes"), root.watch(l, "/causes")
		<-time.After(5 * time.Second)
		if ends.over() || stays.over() {
			t.Fatal("a stream has ended")
		}
		if err := s.Replace(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second - daemon.ReloadAfter)
		if !ends.over() {
			t.Error("the stream goes on a second after")
		}
		if stays.over() {
			t.Error("the stream of another token has ended")
		}
	})
}

// Who logs out ends the streams of their other tabs, and of no other session, though its token is the same.
func TestStreamsOfPagesEndWithTheSession(t *testing.T) {
	inBubble(t, pagesTokens, func(t *testing.T, _ driver.Store, l *servertest.Pipes, _ *daemon.Server) {
		leaves, stays := newBrowser(t, "", l), newBrowser(t, "", l)
		leaves.logIn("secret-admin")
		stays.logIn("secret-admin")
		tabs, other := []*watched{leaves.watch(l, "/"), leaves.watch(l, "/causes")}, stays.watch(l, "/causes")
		<-time.After(5 * time.Second)
		if tabs[0].over() || tabs[1].over() || other.over() {
			t.Fatal("a stream has ended")
		}
		if resp, page := leaves.press("/ui/logout"); resp.StatusCode != http.StatusSeeOther {
			t.Fatalf("%d\n%s", resp.StatusCode, page)
		}
		if !tabs[0].over() || !tabs[1].over() {
			t.Error("a stream of the session goes on")
		}
		if other.over() {
			t.Error("the stream of another session has ended")
		}
	})
}
