package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"

	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/config"
)

// httpBare is the least that a handler can do, for httpRedrive to be compared with.
var httpBare = Driver{
	Name:       "HTTP, bare handler",
	Version:    runtime.Version,
	Settings:   "net/http; reads the body and answers 202",
	Durability: "none",
	Open: func(string) (Queue, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusAccepted)
		})}
		go func() { _ = s.Serve(l) }()
		return &httpQueue{addr: l.Addr().String(), close: s.Close}, nil
	},
}

var httpRedrive = Driver{
	Name:       "HTTP, redrive serve",
	Version:    func() string { return "this tree" },
	Settings:   "the daemon over backend/sqlite, in this process; nobody consumes",
	Durability: "publish synced",
	Synced:     true,
	Open:       openDaemon,
}

func openDaemon(dir string) (Queue, error) {
	cfg := config.Default()
	cfg.Listen, cfg.Store = "127.0.0.1:0", config.Address("sqlite:"+dir)
	cfg.Queues[queueName] = nil
	ctx, cancel := context.WithCancel(context.Background())
	started, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- daemon.Run(ctx, cfg, daemon.Options{Started: func(a net.Addr) { started <- a }})
	}()
	select {
	case a := <-started:
		return &httpQueue{addr: a.String(), close: func() error { cancel(); return <-ended }}, nil
	case err := <-ended:
		cancel()
		return nil, errors.Join(errors.New("the daemon did not start"), err)
	}
}

// httpQueue publishes over kept connections, one a caller, without a client library:
// so the server is most of what is measured.
type httpQueue struct {
	addr  string
	close func() error
	conns sync.Pool
}

type httpConn struct {
	net.Conn
	request, answer []byte
}

func (q *httpQueue) Publish(_ context.Context, bodies [][]byte) error {
	c, ok := q.conns.Get().(*httpConn)
	if !ok {
		conn, err := net.Dial("tcp", q.addr) //nolint:noctx // loopback
		if err != nil {
			return err
		}
		c = &httpConn{Conn: conn, answer: make([]byte, 4096)}
	}
	c.request = fmt.Appendf(c.request[:0], "POST /v1/queues/%s/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s",
		queueName, len(bodies[0]), bodies[0])
	if _, err := c.Write(c.request); err != nil {
		return err
	}
	n, err := c.Read(c.answer)
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(c.answer[:n], []byte("HTTP/1.1 202")) {
		return fmt.Errorf("the server answered %q", c.answer[:n])
	}
	q.conns.Put(c)
	return nil
}

func (q *httpQueue) Close() error { return q.close() }
