package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive/client"
)

// sessionTarget is an API that fails now and then and notes what it got.
type sessionTarget struct {
	*httptest.Server
	mu     sync.Mutex
	random *rand.Rand
	sick   bool
	got    map[string]map[string]bool // ids by body
}

func newSessionTarget(t *testing.T, random *rand.Rand) *sessionTarget {
	s := &sessionTarget{random: rand.New(rand.NewPCG(random.Uint64(), 1)), sick: true, got: make(map[string]map[string]bool)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil || s.sick && s.random.IntN(5) == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		ids := s.got[string(body)]
		if ids == nil {
			ids = make(map[string]bool)
			s.got[string(body)] = ids
		}
		ids[r.Header.Get("Webhook-Id")] = true
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, string(body))
	}))
	t.Cleanup(s.Close)
	return s
}

// sessionUser publishes over one session and notes what it received.
type sessionUser struct {
	t      *testing.T
	name   string
	client *client.Client

	mu       sync.Mutex
	accepted map[string]bool // bodies
	unknown  map[string]bool // whose outcome the user does not know yet
	results  map[string]int  // by body
	last     uint64
}

// newSessionUser connects to a daemon, by a client of the test's own if it is not nil.
func newSessionUser(t *testing.T, d *daemon, name string, by *http.Client) *sessionUser {
	t.Helper()
	u := &sessionUser{t: t, name: name, accepted: make(map[string]bool), unknown: make(map[string]bool), results: make(map[string]int)}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var err error
	u.client, err = client.Dial(ctx, "ws"+strings.TrimPrefix(d.url, "http")+"/v1/ws", client.Options{
		MaxBackoff: 300 * time.Millisecond, HTTPClient: by, OnResult: u.result,
		OnGap: func(session bool, lost uint64) { t.Errorf("%s: a gap: %v %d", name, session, lost) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(u.client.Close)
	return u
}

func (u *sessionUser) result(r *client.Result) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if r.Number != u.last+1 || !r.Done() {
		u.t.Errorf("%s: result %d (%s) after %d", u.name, r.Number, r.Outcome, u.last)
	}
	u.last = r.Number
	u.results[string(r.Body)]++
}

// publish publishes until ctx ends.
func (u *sessionUser) publish(ctx context.Context, random *rand.Rand) {
	for i := 1; ctx.Err() == nil; i++ {
		body := fmt.Sprintf(`{"user":%q,"n":%d}`, u.name, i)
		u.mu.Lock()
		u.unknown[body] = true
		u.mu.Unlock()
		p, err := u.client.Send(ctx, &client.Message{Queue: proofQueue, Body: []byte(body)})
		if err != nil {
			u.mu.Lock()
			delete(u.unknown, body) // it never went out
			u.mu.Unlock()
			return
		}
		go func() {
			<-p.Done()
			u.mu.Lock()
			defer u.mu.Unlock()
			if p.Err() != nil {
				u.t.Errorf("%s: %s: %v", u.name, body, p.Err())
			}
			u.accepted[body] = true
			delete(u.unknown, body)
		}()
		pause(ctx, time.Duration(random.IntN(4))*time.Millisecond)
	}
}

// complete reports that everything was acknowledged and answered.
func (u *sessionUser) complete() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.unknown) == 0 && len(u.results) == len(u.accepted)
}

// TestKillNineWithSessions kills the daemon while clients publish over WebSocket. They
// resume by themselves. What they saw acknowledged was delivered, under one id, and its
// result came once, in order.
func TestKillNineWithSessions(t *testing.T) {
	t.Parallel()
	random := seeded(t)
	target := newSessionTarget(t, random)
	d := newDaemon(t, proofConfig(target.URL))
	users := make([]*sessionUser, 8)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range users {
		users[i] = newSessionUser(t, d, fmt.Sprint("user-", i), nil)
		own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
		all.Go(func() { users[i].publish(ctx, own) })
	}
	t.Cleanup(all.Wait)
	t.Cleanup(stop)
	n := rounds(t, 10)
	for i := range n {
		if i > 0 {
			d.launch()
			if random.IntN(4) > 0 {
				until(t, "the daemon is ready", 30*time.Second, d.ready)
			}
		}
		select {
		case <-time.After(time.Duration(50+random.IntN(700)) * time.Millisecond):
		case <-d.done:
			t.Fatalf("round %d: the daemon ended by itself: %v\n%s", i, d.err, tail(d.log.String(), 40))
		}
		d.kill()
	}
	d.start()
	stop()
	all.Wait()
	target.heal()
	until(t, "every message is answered", time.Minute, func() bool {
		for _, u := range users {
			if !u.complete() {
				return false
			}
		}
		return true
	})
	messages := 0
	for _, u := range users {
		u.check(target)
		messages += len(u.accepted)
	}
	until(t, "the ledger is balanced and empty", 30*time.Second, func() bool {
		r := d.redrive("verify", "--scan")
		return r.code == 0
	})
	t.Logf("%d times kill -9, %d messages", n, messages)
}

func (u *sessionUser) check(target *sessionTarget) {
	target.mu.Lock()
	defer target.mu.Unlock()
	for body := range u.accepted {
		if ids := target.got[body]; len(ids) != 1 {
			u.t.Errorf("%s: delivered under %d ids", body, len(ids))
		}
		if u.results[body] != 1 {
			u.t.Errorf("%s: %d results", body, u.results[body])
		}
	}
}
