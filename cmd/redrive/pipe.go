package main

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// pipeListener connects clients and a server of one process.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// newLocalClient returns a client of a handler in this process. Closing it ends the
// handler's requests, then calls end.
func newLocalClient(h http.Handler, where string, end func() error) *client {
	l := newPipeListener()
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		_ = s.Serve(l) // it ends with Close
		close(served)
	}()
	t := transport()
	t.Proxy = nil
	t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx) }
	return &client{
		base: "http://redrive", where: where, local: true, http: &http.Client{Transport: t},
		close: func() error {
			t.CloseIdleConnections()
			_ = s.Close() // the listener cannot fail
			<-served
			return end()
		},
	}
}
