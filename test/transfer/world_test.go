package transfer

import (
	"context"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/proxytest"
	"github.com/redrive/redrive/internal/servertest"
)

// world is the servers of one strategy, and how they are looked into past the proxies.
type world struct {
	behind  work // a worker that may be hit
	direct  work // one that is not
	proxies []*proxytest.Proxy
	publish func(t *testing.T, body string)
	dead    func(t *testing.T) map[string]int // dead letters by their bodies
	left    func(t *testing.T) int            // messages that are not settled
	kill    func() error                      // ends the server under test at once; nil: it is not done
	resume  func() error                      // starts it again
	last    atomic.Int64                      // when a worker wrote to a source last, in nanoseconds
}

// wrote is when the worker that may be hit wrote to its source last.
func (w *world) wrote() time.Time { return time.Unix(0, w.last.Load()) }

// alsoDead adds native dead letters to those of the store: what a crash left in flight is
// parked as a suspect, and dies there unless the source takes dead letters of the store.
func (w *world) alsoDead(native func(t *testing.T) map[string]int) {
	parked := w.dead
	w.dead = func(t *testing.T) map[string]int {
		t.Helper()
		all := parked(t)
		if all == nil {
			return nil
		}
		for body, n := range native(t) {
			all[body] += n
		}
		return all
	}
}

// found counts dead letters by their bodies.
type found struct {
	mu sync.Mutex
	by map[string]int
}

func newFound() *found { return &found{by: make(map[string]int)} }

func (f *found) add(body string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.by[body]++
}

func (f *found) counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.by)
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// isOver tells whether a message is dead and nothing is left to be done.
func (w *world) isOver(t *testing.T, body string) bool {
	t.Helper()
	return w.dead(t)[body] > 0 && w.left(t) == 0
}

// server is where a server is reached, and how it is hit.
type server struct {
	addr   string                   // host:port
	url    func(addr string) string // of the store or source at an address
	kill   func() error
	resume func() error
}

// killed is the kill of a server that dies at once.
func killed(kill func()) func() error {
	return func() error { kill(); return nil }
}

// stored is the world of a store that is source and store in one.
func stored(t *testing.T, s server) *world {
	w := &world{kill: s.kill, resume: s.resume}
	w.keep(t, s)
	store := w.look(t)
	w.publish = func(t *testing.T, body string) {
		t.Helper()
		// After a server came back, the first connections are those of before.
		servertest.UntilNil(t, "a message is published", func() error {
			return driver.FirstError(store.Publish(t.Context(), []redrive.Message{{Queue: queue, ID: body, Body: []byte(body)}}))
		})
	}
	w.left = func(t *testing.T) int { return waiting(t, store) }
	return w
}

// keep lets a world keep its messages in a store.
func (w *world) keep(t *testing.T, s server) {
	p := proxytest.New(t, s.addr)
	w.proxies = append(w.proxies, p)
	w.behind.Store, w.direct.Store = s.url(p.Addr().String()), s.url(s.addr)
}

// look opens the store past the proxies, and finds dead letters in it.
func (w *world) look(t *testing.T) driver.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	store, err := backend.Open(ctx, w.direct.Store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	w.dead = func(t *testing.T) map[string]int {
		t.Helper()
		return deadIn(t, store)
	}
	return store
}

func deadIn(t *testing.T, store driver.Store) map[string]int {
	t.Helper()
	found := make(map[string]int)
	q := redrive.Query{Queue: queue, State: redrive.StateDead, Bodies: true, Limit: redrive.MaxPage}
	for {
		page, err := store.Find(t.Context(), q)
		if err != nil { // the server may be coming back
			return nil
		}
		for i := range page.Entries {
			found[string(page.Entries[i].Body)]++
		}
		if page.Next == "" {
			return found
		}
		q.After = page.Next
	}
}

// waiting counts what waits in a store; more than 0 if it cannot be asked now.
func waiting(t *testing.T, store driver.Store) int {
	t.Helper()
	counts, err := store.Counts(t.Context(), queue)
	if err != nil {
		return 1
	}
	n := 0
	for i := range counts {
		n += int(counts[i].AllWaiting())
	}
	return n
}

// sourced is the world of a source beside a store.
func sourced(t *testing.T, kind string, src, store server, native bool) (*world, driver.Store) {
	w := &world{kill: src.kill, resume: src.resume}
	w.keep(t, store)
	p := proxytest.New(t, src.addr)
	w.proxies = append(w.proxies, p)
	w.behind.Kind, w.behind.Source, w.behind.Native, w.behind.Proxy = kind, src.url(p.Addr().String()), native, p.Addr().String()
	w.direct.Kind, w.direct.Source, w.direct.Native = kind, src.url(src.addr), native
	return w, w.look(t)
}

// at puts an address into a URL's place for it.
func at(url string) func(addr string) string {
	return func(addr string) string { return strings.ReplaceAll(url, "ADDR", addr) }
}
