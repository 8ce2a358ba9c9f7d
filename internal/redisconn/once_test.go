package redisconn

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/redistest"
)

// cutter makes connections that break on command: the script that is on its way runs, and
// its answer is lost.
type cutter struct {
	armed atomic.Bool
	sent  atomic.Int64 // scripts
}

func (c *cutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: conn, c: c}, nil
}

type cutConn struct {
	net.Conn
	c   *cutter
	cut atomic.Bool
}

func (c *cutConn) Write(b []byte) (int, error) {
	if bytes.Contains(bytes.ToUpper(b), []byte("EVAL")) {
		c.c.sent.Add(1)
		if c.c.armed.Load() {
			c.cut.Store(true)
		}
	}
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b) // the answer says that it ran
	if c.cut.Load() {
		_ = c.Conn.Close()
		return 0, io.EOF
	}
	return n, err
}

// TestAScriptIsNeverRepeated loses the answer of a script: the outcome is unknown, and
// the client does not send it again, whatever kind of client it is.
func TestAScriptIsNeverRepeated(t *testing.T) {
	pair := redistest.StartPair(t, redistest.Options{})
	cluster := redistest.ClusterURL(redistest.Cluster(t, 3))
	for name, url := range map[string]string{
		"one server": redistest.Shared(t).URL(), "sentinel": pair.URL(), "cluster": cluster,
		"replicated": pair.URL() + "?durability=replicated&wait_timeout=1m",
	} {
		t.Run(name, func(t *testing.T) {
			config, err := Parse(url)
			if err != nil {
				t.Fatal(err)
			}
			c := new(cutter)
			config.Options.Dialer = c.dial
			conn, err := Dial(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			keys := []string{redistest.Prefix()}
			if _, err := conn.Write(t.Context(), counting, keys, 1); err != nil {
				t.Fatal(err)
			}
			before := c.sent.Load()
			c.armed.Store(true)
			if _, err := conn.Write(t.Context(), counting, keys, 1); !errors.Is(err, redrive.ErrUnknown) {
				t.Errorf("%v, want unknown", err)
			}
			c.armed.Store(false)
			if n := c.sent.Load() - before; n != 1 {
				t.Errorf("the script was sent %d times", n)
			}
			if v, err := conn.Write(t.Context(), counting, keys, 1); err != nil || v != int64(3) {
				t.Errorf("%v %v, want 3", v, err)
			}
			if stats := conn.Scripts.Snapshot(); len(stats) != 1 || stats[0].Name != "counting" || stats[0].Count != 3 || stats[0].Errors != 1 {
				t.Errorf("%+v", stats)
			}
		})
	}
}
