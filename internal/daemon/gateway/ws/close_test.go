package ws

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/internal/daemon/gateway/session"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/servertest"
	"github.com/redrive/redrive/internal/wsproto"
)

func asCloseError(err error, c *websocket.CloseError) bool { return errors.As(err, c) }

func TestCloseCodes(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{Session: session.Options{MaxFrame: 4096, Window: 100}})
	const publish = `{"type":"publish","seq":%d,"queue":"q","body":1}`
	for _, c := range []struct {
		name string
		code wsproto.Code
		word string
		do   func(p *peer)
	}{
		{"binary", wsproto.CodeBinary, "binary", func(p *peer) { _ = p.conn.Write(p.t.Context(), websocket.MessageBinary, []byte("{}")) }},
		{"not UTF-8", wsproto.CodeUTF8, "utf-8", func(p *peer) { p.send("{\"type\":\"ping\",\"data\":\"\xff\"}") }},
		{"too long", wsproto.CodeTooBig, "frame", func(p *peer) { p.send("%s", strings.Repeat(" ", 5000)) }},
		{"not JSON", wsproto.CodeFrame, "frame", func(p *peer) { p.send("{") }},
		{"deep", wsproto.CodeFrame, "frame", func(p *peer) { p.send("%s", strings.Repeat("[", 4000)) }},
		{"no object", wsproto.CodeFrame, "frame", func(p *peer) { p.send("[1]") }},
		{"unknown type", wsproto.CodeFrame, "frame", func(p *peer) { p.send(`{"type":"subscribe"}`) }},
		{"no number", wsproto.CodeFrame, "number", func(p *peer) { p.send(`{"type":"publish","queue":"q"}`) }},
		{"a number left out", wsproto.CodeFrame, "number", func(p *peer) { p.send(publish, 2) }},
		{"above the limit", wsproto.CodeTooMany, "credit", func(p *peer) { p.send(publish, 101) }},
		{"an ack that never was", wsproto.CodeFrame, "number", func(p *peer) { p.send(`{"type":"seen","seq":1}`) }},
		{"a result that never was", wsproto.CodeFrame, "number", func(p *peer) { p.send(`{"type":"result_ack","number":1}`) }},
		{"a long ping", wsproto.CodeFrame, "frame", func(p *peer) { p.send(`{"type":"ping","data":"%0126d"}`, 1) }},
		{"hello again", wsproto.CodeFrame, "hello", func(p *peer) { p.send(`{"type":"hello"}`) }},
		{"errors unconfirmed", wsproto.CodeTooMany, "unseen", func(p *peer) {
			for i := range 65 {
				p.send(`{"type":"publish","seq":%d,"queue":"NO"}`, i+1)
			}
		}},
		{"bye", wsproto.CodeBye, "bye", func(p *peer) { p.send(publish, 1); p.send(`{"type":"bye"}`) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _ := r.hello(nil)
			p.t = t
			c.do(p)
			p.closed(c.code, c.word)
		})
	}
	for name, text := range map[string]string{"ping first": `{"type":"ping"}`, "half a session": `{"type":"hello","session":"x"}`, "window": `{"type":"hello","window":9999}`} {
		p := r.connect()
		p.send("%s", text)
		t.Run(name, func(t *testing.T) { p.t = t; p.closed(wsproto.CodeFrame, "hello") })
	}
}

func TestASessionIsItsOwners(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	_, w := r.hello(nil)
	other := "other"
	r.owner.Store(&other)
	p := r.connect()
	p.send(`{"type":"hello","session":%q,"token":%q}`, w.Session, w.Token)
	p.closed(wsproto.CodeForbidden, "session")
	p = r.connect()
	p.send(`{"type":"hello","session":%q,"token":"guessed"}`, w.Session)
	if f := p.next("gap"); f.Reason != "session_unknown" {
		t.Errorf("%+v", f)
	}
	if f := p.next("welcome"); f.Resumed || f.Session == w.Session {
		t.Errorf("%+v", f)
	}
}

func TestTheNewestConnectionHasTheSession(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	first, w := r.hello(nil)
	second, again := r.hello(w)
	if !again.Resumed || again.Session != w.Session || again.Epoch != 2 {
		t.Errorf("%+v", again)
	}
	first.closed(wsproto.CodeSuperseded, "superseded")
	second.send(`{"type":"publish","seq":1,"queue":"q"}`)
	second.acked(1)
	late := r.connect()
	late.send(`{"type":"hello","attempt":5,"session":%q,"token":%q}`, w.Session, w.Token)
	late.next("welcome")
	early := r.connect()
	early.send(`{"type":"hello","attempt":4,"session":%q,"token":%q}`, w.Session, w.Token)
	early.closed(wsproto.CodeSuperseded, "superseded")
}

func TestARevokedTokenClosesItsSessions(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	p, w := r.hello(nil)
	old := r.life.Load()
	r.newLife()
	old.end(problem.New(http.StatusUnauthorized, "token-revoked", "The token was revoked", "", ""))
	p.closed(wsproto.CodeToken, "token")
	p, again := r.hello(w)
	if !again.Resumed {
		t.Error("the session is gone")
	}
	r.life.Load().end(problem.New(http.StatusForbidden, "token-changed", "The token's rights were changed", "", ""))
	p.closed(wsproto.CodeRestart, "restart")
}

func TestAShutdownSendsClientsElsewhere(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	p, _ := r.hello(nil)
	p.send(`{"type":"publish","seq":1,"queue":"q"}`)
	p.acked(1)
	done := make(chan error, 1)
	go func() { done <- r.g.Drain(t.Context()) }()
	p.closed(wsproto.CodeRestart, "restart")
	if err := <-done; err != nil {
		t.Error(err)
	}
	_, resp, err := websocket.Dial(t.Context(), r.url, &websocket.DialOptions{Subprotocols: []string{wsproto.Subprotocol}})
	if err == nil || resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("after a shutdown: %v %v", resp, err)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{Connections: 2})
	first, _ := r.hello(nil)
	r.hello(nil)
	_, resp, err := websocket.Dial(t.Context(), r.url, &websocket.DialOptions{Subprotocols: []string{wsproto.Subprotocol}})
	if err == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Fatalf("a third connection: %v %v", resp, err)
	}
	first.send(`{"type":"bye"}`)
	first.closed(wsproto.CodeBye, "bye")
	r.eventually("there is room again", func() bool { return r.g.Stats().Connected == 1 })
	r.hello(nil)
}

// rawConn is a connection below the library: it can do what no library does.
func (r *rig) rawConn(size int) (net.Conn, *bufio.Reader) {
	r.t.Helper()
	var d net.Dialer
	c, err := d.DialContext(r.t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	if size > 0 {
		_ = c.(*net.TCPConn).SetReadBuffer(size)
	}
	return c, upgrade(r.t, c)
}

// upgrade makes a connection one of frames.
func upgrade(t *testing.T, c net.Conn) *bufio.Reader {
	t.Helper()
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: redrive.v1.json\r\n\r\n")
	b := bufio.NewReaderSize(c, 16)
	resp, err := http.ReadResponse(b, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatal(resp, err)
	}
	return b
}

// text is a masked text frame with a mask of zeros.
func text(s string) []byte {
	return append([]byte{0x81, 0x80 | byte(len(s)), 0, 0, 0, 0}, s...)
}

func TestHalfOpenConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{Session: session.Options{Idle: 400 * time.Millisecond}})
	c, b := r.rawConn(0)
	_, _ = c.Write(text(`{"type":"hello"}`))
	r.eventually("a session is there", func() bool { return r.g.Stats().Opened == 1 })
	// It answers no ping: its machine may be gone, the network does not tell.
	var all []byte
	buffer := make([]byte, 4096)
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	for {
		n, err := b.Read(buffer)
		all = append(all, buffer[:n]...)
		if err != nil || strings.Contains(string(all), "idle: ") {
			break
		}
	}
	if !strings.Contains(string(all), "\x88") || !strings.Contains(string(all), "\x11\x38idle: nothing came") { // 4408
		t.Errorf("the end is %q", all)
	}
	r.eventually("it is closed", func() bool { return r.g.Stats().Closed[int(wsproto.CodeIdle)] == 1 && r.g.Stats().Connected == 0 })
}

func TestBrokenFramesEndTheirConnectionOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	well, _ := r.hello(nil)
	for _, bytes := range []string{
		"\x81\x05hello", // not masked
		"\xf1\x80\x00\x00\x00\x00",
		"\x83\x80\x00\x00\x00\x00", // unknown opcode
		"\x80\x80\x00\x00\x00\x00", // a continuation of nothing
		"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00xxxx",     // of a length below zero
		"\x81\xff\x00\x00\x00\x00\x7f\xff\xff\xff\x00\x00\x00\x00" + "xxx", // announced, never sent
		"\x89\xfe\x01\x00\x00\x00\x00\x00",                                 // a ping too long
		"\x88\x81\x00\x00\x00\x00\x01",                                     // half a close code
	} {
		c, _ := r.rawConn(0)
		_, _ = c.Write([]byte(bytes))
		_ = c.(*net.TCPConn).CloseWrite()
	}
	r.eventually("all are gone", func() bool { return r.g.Stats().Connected == 1 })
	well.send(`{"type":"publish","seq":1,"queue":"q"}`)
	well.acked(1)
}

// Who is refused does not hold the connection by not reading what is on its way: it is cut
// within half a second, not when the library or a slow write gives up.
func TestATokenThatIsOverClosesASlowReader(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"token-revoked": http.StatusUnauthorized, "token-expired": http.StatusUnauthorized, "token-changed": http.StatusForbidden} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := servertest.NewPipes()
				r := newRigAt(t, l, memory.New(), Options{tick: 100 * time.Millisecond})
				c := l.Dial()
				defer c.Close()
				b := upgrade(t, c)
				_, _ = c.Write(text(`{"type":"hello"}`))
				_, _ = b.ReadByte()            // of the welcome, the rest of which is never read
				<-time.After(10 * time.Second) // of the bubble
				if s := r.g.Stats(); s.Opened != 1 || s.Connected != 1 {
					t.Fatalf("before: %+v", s)
				}
				old := r.life.Load()
				r.newLife()
				old.end(problem.New(status, name, "The token is over", "", ""))
				<-time.After(500 * time.Millisecond)
				synctest.Wait()
				if r.g.Stats().Connected != 0 {
					t.Error("half a second after its token was over it holds its connection")
				}
			})
		})
	}
}

func TestASlowReaderHoldsUpNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{slow: 300 * time.Millisecond, Session: session.Options{Window: 100}})
	well, w := r.hello(nil)
	c, b := r.rawConn(4096)
	_, _ = c.Write(text(`{"type":"hello","window":256}`))
	_, _ = b.ReadByte()
	var slow string
	r.eventually("its session is there", func() bool {
		list, err := r.g.Sessions(context.Background(), "", 10)
		for _, s := range list {
			if s.ID != w.Session {
				slow = s.ID
			}
		}
		return err == nil && slow != ""
	})
	r.results(slow, 0, 256, 64<<10) // 16 MiB that it does not read
	for i := range 50 {
		well.send(`{"type":"publish","seq":%d,"queue":"q"}`, i+1)
		well.acked(uint64(i + 1))
	}
	r.eventually("it is closed", func() bool { return r.g.Stats().Closed[int(wsproto.CodeIdle)] == 1 })
	if list, _ := r.g.Sessions(context.Background(), "", 10); len(list) != 2 {
		t.Errorf("the session is gone: %+v", list)
	}
}
