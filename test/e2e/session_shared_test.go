package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/pgtest"
)

// balancer leads connections to one of several daemons.
type balancer struct {
	mu   sync.Mutex
	to   string // host and port
	open map[net.Conn]bool
}

func (b *balancer) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		b.mu.Lock()
		to := b.to
		b.mu.Unlock()
		var d net.Dialer
		c, err := d.DialContext(ctx, network, to)
		if err != nil {
			return nil, err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if to != b.to { // it would outlive the break
			return nil, errors.Join(errors.New("the balancer leads elsewhere by now"), c.Close())
		}
		b.open[c] = true
		return c, nil
	}}}
}

// lead leads every new connection to a daemon, and breaks those that there are.
func (b *balancer) lead(d *daemon) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.to = strings.TrimPrefix(d.url, "http://")
	for c := range b.open {
		_ = c.Close() // the other side may be gone
		delete(b.open, c)
	}
}

// TestSessionsMoveBetweenInstances has two daemons on one store. The one that serves the
// sessions is killed, or stopped with frames that it has not read; the clients resume on
// the other, and a stopped one goes on afterwards with what it holds.
func TestSessionsMoveBetweenInstances(t *testing.T) {
	t.Parallel() // mostly waits for leases of the dead to run out
	random := seeded(t)
	store := pgtest.Start(t, nil)
	target := newSessionTarget(t, random)
	both := []*daemon{newDaemonOn(t, store.URL(), proofConfig(target.URL)), newDaemonOn(t, store.URL(), proofConfig(target.URL))}
	between := &balancer{open: make(map[net.Conn]bool)}
	between.lead(both[0])
	users := make([]*sessionUser, 4)
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range users {
		users[i] = newSessionUser(t, both[0], fmt.Sprint("user-", i), between.client())
		own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
		all.Go(func() { users[i].publish(ctx, own) })
	}
	t.Cleanup(all.Wait)
	t.Cleanup(stop)
	n := rounds(t, 6)
	for i := range n {
		pause(t.Context(), time.Duration(100+random.IntN(500))*time.Millisecond)
		from, to := both[i%2], both[(i+1)%2]
		if i%3 < 2 { // so that each of the two is killed, and stopped
			from.kill()
			between.lead(to)
			pause(t.Context(), time.Duration(random.IntN(500))*time.Millisecond)
			from.start()
			continue
		}
		from.signal(syscall.SIGSTOP)
		pause(t.Context(), time.Duration(random.IntN(200))*time.Millisecond) // frames arrive that it does not read
		between.lead(to)
		pause(t.Context(), time.Duration(500+random.IntN(500))*time.Millisecond)
		from.signal(syscall.SIGCONT)
	}
	pause(t.Context(), 500*time.Millisecond)
	stop()
	all.Wait()
	target.heal()
	until(t, "every message is answered", 2*time.Minute, func() bool {
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
	if ids := target.ids(); ids != messages {
		t.Errorf("%d messages were delivered, %d were accepted", ids, messages)
	}
	until(t, "the ledger is balanced and empty", 30*time.Second, func() bool { return both[0].redrive("verify", "--scan").code == 0 })
	t.Logf("%d moves, %d messages", n, messages)
}

// signal sends a signal to the process.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// heal ends the failures.
func (s *sessionTarget) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sick = false
}

// ids returns how many messages were delivered.
func (s *sessionTarget) ids() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, ids := range s.got {
		n += len(ids)
	}
	return n
}
