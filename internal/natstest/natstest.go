// Package natstest starts private NATS servers with JetStream for tests: in this process,
// as a process of their own that can be killed, or as a cluster of three. Each listens on
// a free port of the loopback address, keeps its data in a folder of the test, and is
// stopped when the test ends.
package natstest

import (
	"context"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/redrive/redrive/internal/servertest"
)

// patience bounds how long a server may take to start.
const patience = 60 * time.Second

// reconnectWait is between a client's tries to come back.
const reconnectWait = 20 * time.Millisecond

// Options configures a server.
type Options struct {
	SyncAlways bool   // every write is synced before it is acknowledged
	MaxPayload int32  // largest message; 0: 1 MiB
	Token      string // that clients must show; "": none
	// Alter changes the server's own options. Not for StartProcess.
	Alter func(o *server.Options)
}

func (o Options) server(dir string, port int) *server.Options {
	so := &server.Options{
		ServerName: "n1", Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, SyncAlways: o.SyncAlways,
		MaxPayload: o.MaxPayload, Authorization: o.Token, NoSigs: true, NoLog: true, NoSystemAccount: false,
	}
	if o.Alter != nil {
		o.Alter(so)
	}
	return so
}

// Server is a server in this process.
type Server struct {
	options *server.Options

	mu  sync.Mutex
	now *server.Server // nil: stopped
}

// Start starts a server that lives as long as the test.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s := &Server{options: o.server(folder(t), server.RANDOM_PORT)}
	t.Cleanup(s.Stop)
	if err := s.Resume(); err != nil {
		t.Fatalf("start NATS: %v", err)
	}
	return s
}

// folder is one that is removed when the test ends. A server may still write into it
// for a moment after it was stopped, which is no failure of the test.
func folder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nats") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Resume starts the server, again after Stop: with its port and its data.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != nil {
		return nil
	}
	now, err := run(s.options.Clone())
	if err != nil {
		return err
	}
	if addr, ok := now.Addr().(*net.TCPAddr); ok {
		s.options.Port = addr.Port
	}
	s.now = now
	return nil
}

func run(o *server.Options) (*server.Server, error) {
	now, err := server.NewServer(o)
	if err != nil {
		return nil, err
	}
	now.Start()
	if !now.ReadyForConnections(patience) {
		now.Shutdown()
		return nil, context.DeadlineExceeded
	}
	return now, nil
}

// Stop stops the server in order.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != nil {
		s.now.Shutdown()
		s.now.WaitForShutdown()
		s.now = nil
	}
}

// Addr returns where the server is reached, as host:port.
func (s *Server) Addr() string { return servertest.Port(s.options.Port).Addr() }
