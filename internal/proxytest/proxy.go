// Package proxytest stands between a client and its server in tests, and cuts, delays and
// mutes their connections.
package proxytest

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy passes bytes to the server, and cuts connections.
type Proxy struct {
	net.Listener
	to    string
	mu    sync.Mutex
	conns map[net.Conn]struct{}
	deaf  bool // answers of the server are dropped before the cut
	step  func(sent bool) error
}

// New returns a proxy before an address, until the test ends.
func New(t testing.TB, to string) *Proxy {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Listener: l, to: to, conns: map[net.Conn]struct{}{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.pass(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); p.Cut(); wg.Wait() })
	return p
}

func (p *Proxy) pass(c net.Conn) {
	d, err := new(net.Dialer).DialContext(context.Background(), "tcp", p.to)
	if err != nil {
		_ = c.Close()
		return
	}
	p.mu.Lock()
	p.conns[c], p.conns[d] = struct{}{}, struct{}{}
	p.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(requests{p, d}, c); _ = d.Close() })
	wg.Go(func() { _, _ = io.Copy(answers{p, c}, d); _ = c.Close() })
	wg.Wait()
	p.mu.Lock()
	delete(p.conns, c)
	delete(p.conns, d)
	p.mu.Unlock()
}

type answers struct {
	p *Proxy
	net.Conn
}

func (a answers) Write(b []byte) (int, error) {
	a.p.mu.Lock()
	deaf := a.p.deaf
	a.p.mu.Unlock()
	if deaf {
		return len(b), nil
	}
	return a.Conn.Write(b)
}

// requests go to the server.
type requests struct {
	p *Proxy
	net.Conn
}

func (r requests) Write(b []byte) (int, error) {
	r.p.mu.Lock()
	step := r.p.step
	r.p.mu.Unlock()
	if step == nil {
		return r.Conn.Write(b)
	}
	if err := step(false); err != nil {
		return 0, err
	}
	n, err := r.Conn.Write(b)
	if err == nil {
		err = step(true)
	}
	return n, err
}

// Intercept calls step before (sent is false) and after (sent is true) each write of a
// client goes to the server. If it returns an error that connection is cut. nil ends it.
func (p *Proxy) Intercept(step func(sent bool) error) {
	p.mu.Lock()
	p.step = step
	p.mu.Unlock()
}

// Cut closes all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.deaf = false
}

// Muffle drops what the server answers until the next Cut: what was sent is carried out,
// and nobody hears of it.
func (p *Proxy) Muffle() {
	p.mu.Lock()
	p.deaf = true
	p.mu.Unlock()
}
