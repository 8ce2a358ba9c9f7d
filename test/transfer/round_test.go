package transfer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/servertest"
)

// patience bounds how long anything may take.
const patience = 2 * time.Minute

// fault is what strikes at a step.
type blow string

// The faults.
const (
	kill blow = "kill -9 of the worker"
	cut  blow = "cut of its connections"
	down blow = "kill -9 of the server"
)

// strike is where and how a transfer is hit: at a write of the worker to a server, the
// first being 0, before it goes out or after it, when nobody hears the answer.
type strike struct {
	blow blow
	step int
	sent bool
}

func (s strike) String() string {
	when := "before"
	if s.sent {
		when = "after"
	}
	return fmt.Sprintf("%s %s write %d", s.blow, when, s.step)
}

// process is a running worker.
type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	lines   chan string // what it says, closed when it is over
	trouble *strings.Builder
}

// start starts a worker behind the proxies.
func start(t *testing.T, w work) *process {
	t.Helper()
	text, err := json.Marshal(w)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: worker.Command(t, string(text)), lines: make(chan string, 64), trouble: new(strings.Builder)}
	p.cmd.Stderr = p.trouble
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	return p
}

// answer lets the handler that said it has begun go on. A worker that is dead hears
// nothing.
func (p *process) answer() { _, _ = io.WriteString(p.in, "on\n") }

// end kills the worker, if it lives, and waits until it is gone.
func (p *process) end() {
	_ = p.cmd.Process.Kill()
	for range p.lines { // what it says does not matter any more
	}
	_ = p.cmd.Wait()
}

// errCut cuts the connection that was hit.
var errCut = errors.New("connection cut by the test")

// aim makes the proxies strike once. It returns what was hit: closed when it happened.
// After disarm it does not happen any more.
func (w *world) aim(s strike, hit func()) (fired chan struct{}, disarm func()) {
	proxies, source := w.proxies, w.proxies[len(w.proxies)-1]
	fired = make(chan struct{})
	var mu sync.Mutex
	step, over := 0, false
	for _, p := range proxies {
		p.Intercept(func(sent bool) error {
			if p == source {
				w.last.Store(time.Now().UnixNano())
			}
			mu.Lock()
			defer mu.Unlock()
			at := step
			if sent {
				step++
			}
			switch {
			case over:
				if s.blow == cut {
					return nil
				}
				return errCut
			case at == s.step && !sent && s.sent: // its answer is not heard
				for _, p := range proxies {
					p.Muffle()
				}
				return nil
			case at != s.step || sent != s.sent:
				return nil
			}
			over = true
			hit()
			go func() { // not under the lock of the write that is cut
				for _, p := range proxies {
					p.Cut()
				}
			}()
			close(fired)
			return errCut
		})
	}
	return fired, func() {
		mu.Lock() // a strike under way is waited for
		defer mu.Unlock()
		over = true
	}
}

// round publishes one message, strikes at its transfer, and waits until the transfer is
// complete all the same. It reports whether the strike came before the end.
func (w *world) round(t *testing.T, body string, s strike) (hit bool) {
	t.Helper()
	w.publish(t, body)
	p := start(t, w.behind)
	defer p.end()
	var fired chan struct{}
	disarm := func() {}
	defer func() {
		for _, proxy := range w.proxies {
			proxy.Intercept(nil)
		}
	}()
	deadline := time.After(patience)
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		select {
		case line, ok := <-p.lines:
			switch {
			case !ok && s.blow == cut:
				t.Fatalf("%s: the worker ended: %s", s, p.trouble)
			case !ok:
				if s.blow == down {
					select {
					case <-fired: // the server is killed after the worker
					case <-deadline:
						t.Fatalf("%s: the worker ended by itself: %s", s, p.trouble)
					}
				}
				w.revive(t, s)
				w.heal(t, body)
				return true
			case line == body && fired == nil:
				fired, disarm = w.aim(s, func() { w.hit(t, p, s) })
			}
			p.answer()
		case <-look.C:
			if !w.isOver(t, body) {
				continue
			}
			disarm()
			select {
			case <-fired: // with the last write, or a heartbeat after it
				w.revive(t, s)
				return true
			default:
				return false
			}
		case <-deadline:
			t.Fatalf("%s: the transfer is not complete within %s: %s", s, patience, p.trouble)
		}
	}
}

// revive starts a server that was hit.
func (w *world) revive(t *testing.T, s strike) {
	t.Helper()
	if s.blow != down {
		return
	}
	if err := w.resume(); err != nil {
		t.Fatalf("%s: %v", s, err)
	}
}

// hit is the fault itself.
func (w *world) hit(t *testing.T, p *process, s strike) {
	switch s.blow {
	case kill:
		_ = p.cmd.Process.Kill()
	case down:
		_ = p.cmd.Process.Kill() // it would wait for the server
		if err := w.kill(); err != nil {
			t.Error(err)
		}
	case cut:
	}
}

// heal consumes without a strike until the message is dead and settled. What cannot be
// opened is opened again: the server may be coming back.
func (w *world) heal(t *testing.T, body string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := w.direct.consume(ctx, func(string) {}); err != nil && ctx.Err() == nil {
				t.Log("the consumer past the proxies ended: ", err)
				pause(ctx, 100*time.Millisecond)
			}
		}
	}()
	defer func() { stop(); <-ended }()
	servertest.Until(t, body+" is among the dead letters, and nothing is left", func() bool { return w.isOver(t, body) })
}
