package ws

import (
	"fmt"
	"testing"

	"github.com/redrive/redrive/internal/wsproto"
)

// TestAPanicEndsOneConnection makes each kind of frame meet a panic, in what reads it
// and in what works on it.
func TestAPanicEndsOneConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	well, _ := r.hello(nil)
	seq := 0
	for _, c := range []struct {
		text   string
		places []string // that it passes
	}{
		{`{"type":"hello"}`, []string{"hello"}},
		{`{"type":"publish","seq":2,"queue":"q"}`, []string{"frame", "publish", "work"}},
		{`{"type":"seen","seq":1}`, []string{"frame"}},
		{`{"type":"result_ack","number":1}`, []string{"frame", "work"}},
		{`{"type":"ping"}`, []string{"frame"}},
		{`{"type":"bye"}`, []string{"frame", "work"}},
	} {
		for _, place := range c.places {
			isHello := place == "hello"
			t.Run(fmt.Sprint(place, " ", c.text), func(t *testing.T) {
				p, w := r.hello(nil)
				p.t = t
				p.send(`{"type":"publish","seq":1,"queue":"q"}`)
				p.acked(1)
				r.results(w.Session, seq*1000, 1, 10)
				p.next("result")
				if isHello {
					p = r.connect()
					p.t = t
				} else {
					r.eventually("the worker rests", func() bool {
						c := r.g.bySession(w.Session)
						c.mu.Lock()
						defer c.mu.Unlock()
						return !c.busy
					})
				}
				r.inject(func(at string) {
					if at == place {
						r.inject(nil)
						panic("injected")
					}
				})
				p.send("%s", c.text)
				p.closed(wsproto.CodeInternal, "internal")
				r.inject(nil)
				seq++
				well.send(`{"type":"publish","seq":%d,"queue":"q"}`, seq)
				well.acked(uint64(seq))
				p, again := r.hello(w)
				p.t = t
				if !again.Resumed || again.Seq != 1 {
					t.Errorf("resumed: %+v", again)
				}
				if f := p.next("result"); f.Number != 1 {
					t.Errorf("%+v", f)
				}
				p.send(`{"type":"publish","seq":2,"queue":"q"}`)
				p.acked(2)
				_ = p.conn.CloseNow()
			})
		}
	}
	r.eventually("nothing is left behind", func() bool { return r.g.Stats().Connected == 1 })
}
