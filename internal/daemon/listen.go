package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/daemon/config"
)

// checkListen refuses an address that other machines reach without a token. Sockets that
// were passed count instead of the one that the configuration names.
func checkListen(cfg *config.Config, passed ...net.Listener) error {
	addresses := []string{cfg.Listen}
	if len(passed) > 0 {
		addresses = nil
	}
	for _, l := range passed {
		if l.Addr().Network() != "unix" { // whose mode says who reaches it
			addresses = append(addresses, l.Addr().String())
		}
	}
	for _, address := range addresses {
		if !config.Loopback(address) && len(cfg.Tokens) == 0 {
			return &redrive.Error{Op: "listen", Err: fmt.Errorf("%s can be reached from other machines, and there is no token", address),
				Hint: "add a token under tokens: in the configuration, or listen on " + config.DefaultListen}
		}
	}
	return nil
}

// listen opens the TCP listener, or takes those that were passed.
func (s *Server) listen(ctx context.Context) ([]net.Listener, error) {
	all := s.o.Listeners
	if len(all) == 0 {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", s.cfg.Listen)
		if err != nil {
			return nil, &redrive.Error{Op: "listen", Err: err, Hint: "is a daemon running already? choose another address with --listen"}
		}
		all = []net.Listener{l}
	}
	slots := make(chan struct{}, maxConnections) // of all together
	served := make([]net.Listener, len(all))
	for i, l := range all {
		served[i] = newLimitListener(l, slots)
		if s.tls != nil {
			served[i] = tls.NewListener(served[i], s.tls.config())
		}
	}
	return served, nil
}

// listenSocket opens the Unix socket beside the data, or warns and returns nil: the
// daemon works without it. As we own the store, a socket that is there was left by a
// process that died.
func (s *Server) listenSocket(ctx context.Context) net.Listener {
	path := s.socketPath()
	if path == "" {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.LogAttrs(ctx, slog.LevelWarn, "no Unix socket in the data directory", slog.Any("error", err))
		return nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err == nil {
		// Only we can enter the folder (0700) until then; in a shared one the umask counts.
		if err = os.Chmod(path, 0o600); err != nil {
			_ = l.Close() // it is not used
		}
	}
	if err != nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "no Unix socket in the data directory: commands with --data cannot reach the daemon", slog.Any("error", err))
		return nil
	}
	return l
}

// limitListener, with others that share its slots, keeps a bound on open connections: beyond it, clients wait in the
// system's backlog.
type limitListener struct {
	net.Listener
	slots  chan struct{}
	closed chan struct{}
	once   sync.Once
	err    error // of the first Close
}

func newLimitListener(l net.Listener, slots chan struct{}) *limitListener {
	return &limitListener{Listener: l, slots: slots, closed: make(chan struct{})}
}

// Accept waits for a free slot first.
func (l *limitListener) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{Conn: c, release: sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close lets a waiting Accept return. It may be called again.
func (l *limitListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.err = l.Listener.Close()
	})
	return l.err
}

// limitedConn gives its slot back when it is closed.
type limitedConn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
