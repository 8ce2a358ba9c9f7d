package ws

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/redrive/redrive/internal/daemon/gateway/session"
	"github.com/redrive/redrive/internal/wsproto"
)

// conn is one connection. Its reader is the goroutine of the handshake; its worker is
// started when there is something to do, and ends when there is not.
type conn struct {
	g       *Gateway
	who     Caller
	remote  string
	ws      atomic.Pointer[websocket.Conn] // nil before the handshake
	last    atomic.Int64                   // when something came, in nanoseconds
	write   atomic.Int64                   // since when a frame is being written; 0: none is
	saved   atomic.Int64                   // when the record was written
	blocked atomic.Bool                    // nothing is read, as there is no room
	pinging atomic.Bool

	session string // guarded by Gateway.mu

	mu      sync.Mutex
	room    sync.Cond        // the worker has taken something from the machine
	m       *session.Machine // nil before the hello
	busy    bool             // the worker runs
	closing *session.Close   // how the connection is to end
	ended   bool
	timer   *time.Timer // asks again what was held
}

const (
	helloTimeout = 10 * time.Second
	pingAfter    = 25 * time.Second
	pingTimeout  = 30 * time.Second
	slowWrite    = 30 * time.Second

	refusedPatience = 400 * time.Millisecond // to write to a client whose token is no longer good; a reload takes as much again
	keepBuffer      = 16 << 10               // bytes of a read buffer that is kept
)

func (c *conn) heard() { c.last.Store(time.Now().UnixNano()) }

// serve reads frames until the connection ends.
func (c *conn) serve() {
	ws := c.ws.Load()
	ws.SetReadLimit(-1) // take does it
	defer func() {
		if v := recover(); v != nil {
			c.panicked(v)
		}
		c.finish()
	}()
	c.mu.Lock()
	if c.closing != nil { // a shutdown that began during the handshake
		c.wakeLocked()
	}
	c.mu.Unlock()
	first := time.AfterFunc(helloTimeout, func() { c.end(session.NewClose(wsproto.CodeIdle, "idle", "no hello came")) })
	defer first.Stop()
	for {
		typ, r, err := ws.Reader(context.Background())
		if err != nil {
			c.broke(err)
			return
		}
		if typ != websocket.MessageText {
			c.end(session.NewClose(wsproto.CodeBinary, "binary", "frames are text"))
			return
		}
		if !c.take(r, first) {
			return
		}
	}
}

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// take reads one frame and gives it to the machine. It reports whether to go on.
func (c *conn) take(r io.Reader, first *time.Timer) bool {
	b := buffers.Get().(*bytes.Buffer)
	b.Reset()
	defer func() {
		if b.Cap() <= keepBuffer {
			buffers.Put(b)
		}
	}()
	limit := int64(c.g.o.Session.MaxFrame)
	if _, err := b.ReadFrom(io.LimitReader(r, limit+1)); err != nil {
		c.broke(err)
		return false
	}
	c.heard()
	if int64(b.Len()) > limit {
		c.end(session.NewClose(wsproto.CodeTooBig, "frame", "it is longer than %d bytes", limit))
		return false
	}
	if !utf8.Valid(b.Bytes()) {
		c.end(session.NewClose(wsproto.CodeUTF8, "utf-8", "the text is not UTF-8"))
		return false
	}
	if c.isNew() {
		first.Stop()
		return c.open(b.Bytes())
	}
	return c.frame(b.Bytes())
}

func (c *conn) isNew() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.m == nil
}

// frame gives a frame to the machine, and waits while that holds enough.
func (c *conn) frame(text []byte) bool {
	c.g.o.inject("frame")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing != nil || c.m == nil {
		return false
	}
	if err := c.m.Frame(text); err != nil {
		c.endLocked(asClose(err))
		return false
	}
	c.wakeLocked()
	for c.m != nil && c.m.Full() && c.closing == nil {
		c.blocked.Store(true) // it is we who do not read
		c.room.Wait()
	}
	if c.blocked.Swap(false) {
		c.heard()
	}
	return c.m != nil && c.closing == nil
}

// asClose returns how a connection ends with an error.
func asClose(err error) *session.Close {
	var c *session.Close
	if errors.As(err, &c) {
		return c
	}
	e := session.NewClose(wsproto.CodeInternal, "internal", "resume the session")
	e.Err = err
	return e
}

// broke is called when nothing can be read any more.
func (c *conn) broke(err error) {
	code := wsproto.Code(websocket.CloseStatus(err))
	if code <= 0 {
		code = codeBroken
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing == nil {
		c.closing = &session.Close{Code: code, Reason: "the client left", Err: err}
	}
	c.ended = true
	c.room.Broadcast()
}

// codeBroken is how a connection that ended without a code is counted.
const codeBroken wsproto.Code = 1006

// end lets the worker end the connection after what is being written.
func (c *conn) end(why *session.Close) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endLocked(why)
}

func (c *conn) endLocked(why *session.Close) {
	if c.closing != nil {
		return
	}
	c.closing = why
	if ws := c.ws.Load(); ws != nil && why.Barred {
		// Who may see nothing more does not hold the connection by reading slowly.
		time.AfterFunc(refusedPatience, func() { _ = ws.CloseNow() })
	}
	c.room.Broadcast()
	c.wakeLocked()
}

func (c *conn) superseded() {
	c.end(session.NewClose(wsproto.CodeSuperseded, "superseded", "the session was resumed by another connection"))
}

// stale tells the machine that there may be results.
func (c *conn) stale() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m != nil && c.closing == nil {
		c.m.Stale()
		c.wakeLocked()
	}
}

// touch lets the record be written again before it expires.
func (c *conn) touch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m != nil && c.closing == nil {
		c.m.Touch()
		c.wakeLocked()
	}
}

// panicked ends the connection after a panic in anything that was called for it.
func (c *conn) panicked(v any) {
	why := session.NewClose(wsproto.CodeInternal, "internal", "resume the session")
	why.Err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
	c.g.o.Logger.LogAttrs(context.Background(), slog.LevelError, "connection handler panicked", slog.String("remote", c.remote), slog.Any("error", why.Err))
	c.end(why)
}

// finish ends the connection for good, once its reader is done and its worker has said
// why.
func (c *conn) finish() {
	c.mu.Lock()
	if c.closing == nil {
		c.closing = &session.Close{Code: codeBroken}
	}
	for c.busy {
		c.room.Wait()
	}
	c.ended = true
	if c.timer != nil {
		c.timer.Stop()
	}
	m, why := c.m, c.closing
	c.m = nil
	c.mu.Unlock()
	_ = c.ws.Load().CloseNow() // what can be said was said
	c.g.stats.close(why.Code)
	c.log(m, why)
}

func (c *conn) log(m *session.Machine, why *session.Close) {
	level := slog.LevelDebug
	if why.Code == wsproto.CodeInternal {
		level = slog.LevelError
	}
	attrs := []slog.Attr{slog.Int("code", int(why.Code)), slog.String("reason", why.Reason), slog.String("remote", c.remote), slog.String("token", c.who.Name)}
	if m != nil {
		attrs = append(attrs, slog.String("session", m.Name()))
	}
	if why.Err != nil {
		attrs = append(attrs, slog.Any("error", why.Err))
	}
	c.g.o.Logger.LogAttrs(context.Background(), level, "connection ended", attrs...)
}
