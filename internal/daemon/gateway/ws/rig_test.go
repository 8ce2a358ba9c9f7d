package ws

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/gateway"
	"github.com/redrive/redrive/internal/daemon/gateway/session"
	"github.com/redrive/redrive/internal/wsproto"
)

// rig is a gateway over a store in memory, behind real sockets.
type rig struct {
	t      *testing.T
	store  *memory.Store
	g      *Gateway
	url    string
	owner  atomic.Pointer[string]
	life   atomic.Pointer[life]
	mu     sync.Mutex
	broken func(place string)
}

// life is that of the token with which is connected.
type life struct {
	ctx context.Context
	end context.CancelCauseFunc
}

func (r *rig) newLife() *life {
	l := new(life)
	l.ctx, l.end = context.WithCancelCause(context.Background())
	r.life.Store(l)
	return l
}

func newRig(t *testing.T, o Options) *rig { return newRigOver(t, memory.New(), o) }

func newRigOver(t *testing.T, store *memory.Store, o Options) *rig {
	return newRigAt(t, nil, store, o)
}

// newRigAt listens at l, or where there is room.
func newRigAt(t *testing.T, l net.Listener, store *memory.Store, o Options) *rig {
	r := &rig{t: t, store: store}
	if o.tick == 0 {
		o.tick = 20 * time.Millisecond
	}
	o.inject = func(place string) {
		r.mu.Lock()
		f := r.broken
		r.mu.Unlock()
		if f != nil {
			f(place)
		}
	}
	r.newLife()
	name := "owner"
	r.owner.Store(&name)
	r.g = New(r.store, o)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		req, release := gateway.Within(r.life.Load().ctx, req)
		defer release()
		r.g.Serve(w, req, Caller{Name: *r.owner.Load()})
	}))
	if l != nil {
		_ = server.Listener.Close()
		server.Listener = l
	}
	server.Start()
	r.url = server.URL
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { _ = r.g.Run(ctx); close(ended) }()
	t.Cleanup(func() {
		drain, stop := context.WithTimeout(context.Background(), 10*time.Second)
		defer stop()
		if err := r.g.Drain(drain); err != nil {
			t.Error(err)
		}
		cancel()
		<-ended
		server.Close()
		_ = r.store.Close()
	})
	return r
}

func (r *rig) inject(f func(place string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = f
}

// eventually waits until something holds.
func (r *rig) eventually(what string, holds func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); {
		if time.Now().After(deadline) {
			r.t.Fatalf("it does not happen: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// peer is a client that does what it is asked.
type peer struct {
	t    *testing.T
	conn *websocket.Conn
}

// frame is any frame of the server.
type frame struct {
	Type, Session, Token, Reason, Queue, Level, Outcome, ID, Data string
	Resumed                                                       bool
	Epoch, Seq, Limit, Number, Lost                               uint64
	Errors                                                        []session.Refusal
}

func (r *rig) connect() *peer {
	r.t.Helper()
	conn, _, err := websocket.Dial(r.t.Context(), r.url, &websocket.DialOptions{Subprotocols: []string{wsproto.Subprotocol}})
	if err != nil {
		r.t.Fatal(err)
	}
	conn.SetReadLimit(8 << 20)
	r.t.Cleanup(func() { _ = conn.CloseNow() })
	return &peer{t: r.t, conn: conn}
}

// hello opens a session, or resumes one.
func (r *rig) hello(before *frame) (*peer, *frame) {
	r.t.Helper()
	p := r.connect()
	if before == nil {
		p.send(`{"type":"hello"}`)
	} else {
		p.send(`{"type":"hello","session":%q,"token":%q}`, before.Session, before.Token)
	}
	return p, p.next("welcome")
}

func (p *peer) send(format string, args ...any) {
	p.t.Helper()
	if err := p.conn.Write(p.t.Context(), websocket.MessageText, fmt.Appendf(nil, format, args...)); err != nil {
		p.t.Logf("send: %v", err) // what follows tells
	}
}

func (p *peer) read() (*frame, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
	defer cancel()
	_, text, err := p.conn.Read(ctx)
	if err != nil {
		return nil, err
	}
	f := new(frame)
	if err := json.Unmarshal(text, f); err != nil {
		p.t.Fatalf("%v: %s", err, text)
	}
	return f, nil
}

// next skips to the next frame of a type.
func (p *peer) next(typ string) *frame {
	p.t.Helper()
	for {
		f, err := p.read()
		if err != nil {
			p.t.Fatalf("no %s: %v", typ, err)
		}
		if f.Type == typ {
			return f
		}
	}
}

// acked waits until a number is acknowledged.
func (p *peer) acked(seq uint64) *frame {
	p.t.Helper()
	for {
		if f := p.next("ack"); f.Seq >= seq {
			return f
		}
	}
}

// closed waits for the connection to be closed with a code and a word.
func (p *peer) closed(code wsproto.Code, word string) {
	p.t.Helper()
	for {
		_, err := p.read()
		if err == nil {
			continue
		}
		var c websocket.CloseError
		if got := websocket.CloseStatus(err); got != websocket.StatusCode(code) {
			p.t.Errorf("closed with %v, want %d", err, code)
		} else if asCloseError(err, &c) && !strings.HasPrefix(c.Reason, word) {
			p.t.Errorf("reason %q, want %s", c.Reason, word)
		}
		return
	}
}

// results puts n results of a session into the store, as the engine does.
func (r *rig) results(name string, from, n, size int) {
	r.t.Helper()
	msgs := make([]redrive.Message, n)
	for i := range msgs {
		m := redrive.Message{ID: fmt.Sprint("m-", from+i), Queue: "q", ReplyTo: fmt.Sprintf("%s%s/%d", driver.SessionReply, name, from+i)}
		msgs[i], _ = driver.ResultMessage(&m, redrive.OutcomeDone, 0, nil, make([]byte, size))
	}
	if err := driver.FirstError(r.store.Publish(r.t.Context(), msgs)); err != nil {
		r.t.Fatal(err)
	}
	if c := r.g.bySession(name); c != nil {
		c.stale()
	}
}
