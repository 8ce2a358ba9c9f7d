package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/redrive/redrive/internal/childtest"
	"github.com/redrive/redrive/internal/wsproto"
)

// envConnections asks for more connections.
const envConnections = "REDRIVE_PROOF_CONNECTIONS"

// What is measured beside the daemon: a process with many clients, of a URL and so many,
// and a bare echo.
var (
	clients = childtest.Part{Name: "clients", Run: func(_ context.Context, words []string) error {
		n, err := strconv.Atoi(words[1])
		if err == nil {
			manyClients(words[0], n)
		}
		return err
	}}
	echo = childtest.Part{Name: "echo", Run: func(context.Context, []string) error {
		bareEcho()
		return nil
	}}
)

// bareEcho is the least that a server on the library can do.
func bareEcho() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println("ws://" + l.Addr().String())
	_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{wsproto.Subprotocol}})
		if err != nil {
			return
		}
		for {
			typ, b, err := c.Read(context.Background())
			if err != nil || c.Write(context.Background(), typ, b) != nil {
				return
			}
		}
	}))
}

// manyClients opens connections and says "ready"; asked to publish, each publishes one
// message and waits for its result.
func manyClients(url string, n int) {
	conns := make([]*websocket.Conn, n)
	each := func(what string, f func(c **websocket.Conn) error) {
		var all sync.WaitGroup
		turns := make(chan int)
		for range 64 {
			all.Go(func() {
				for i := range turns {
					if err := f(&conns[i]); err != nil {
						fmt.Println("failed:", err)
						os.Exit(1)
					}
				}
			})
		}
		for i := range conns {
			turns <- i
		}
		close(turns)
		all.Wait()
		fmt.Println(what)
	}
	ctx := context.Background()
	var answered atomic.Int64
	done := make(chan struct{})
	each("ready", func(c **websocket.Conn) (err error) {
		if *c, _, err = websocket.Dial(ctx, url, &websocket.DialOptions{Subprotocols: []string{wsproto.Subprotocol}}); err != nil {
			return err
		}
		conn := *c
		if err = conn.Write(ctx, websocket.MessageText, []byte(`{"type":"hello"}`)); err != nil {
			return err
		}
		if _, _, err = conn.Read(ctx); err != nil { // the welcome, or the echo
			return err
		}
		go func() {
			for {
				_, text, err := conn.Read(ctx)
				if err != nil {
					return
				}
				var f struct{ Type, Outcome string }
				if json.Unmarshal(text, &f) == nil && f.Type == "result" && f.Outcome == "done" {
					_ = conn.Write(ctx, websocket.MessageText, []byte(`{"type":"result_ack","number":1}`))
					if answered.Add(1) == int64(n) {
						close(done)
					}
				}
			}
		}()
		return nil
	})
	in := bufio.NewScanner(os.Stdin)
	if !in.Scan() {
		return
	}
	body := strings.Repeat("x", 1000)
	each("published", func(c **websocket.Conn) error {
		return (*c).Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"type":"publish","seq":1,"queue":%q,"body":%q}`, proofQueue, body))
	})
	<-done
	fmt.Println("answered")
	in.Scan()
}

// helper is a part that runs.
type helper struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func newHelper(t *testing.T, cmd *exec.Cmd, env ...string) *helper {
	t.Helper()
	h := &helper{t: t, cmd: cmd}
	cmd.Env = append(cmd.Env, env...)
	var err error
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	h.out = bufio.NewScanner(out)
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.end)
	return h
}

func (h *helper) end() {
	_ = h.cmd.Process.Kill()
	_ = h.cmd.Wait()
}

// says waits for a line.
func (h *helper) says() string {
	h.t.Helper()
	if !h.out.Scan() {
		h.t.Fatal("the helper ended")
	}
	return h.out.Text()
}

func (h *helper) expect(line string) {
	h.t.Helper()
	if got := h.says(); got != line {
		h.t.Fatalf("the clients say %q, not %q", got, line)
	}
}

// resident is how much memory a process has, in bytes, once that no longer falls.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	least := int64(1 << 62)
	for same := 0; same < 10; {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			t.Skip("the memory of a process can only be read on Linux")
		}
		pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if now := pages * int64(os.Getpagesize()); now < least {
			least, same = now, 0
		} else {
			same++
		}
		pause(t.Context(), 100*time.Millisecond)
	}
	return least
}

// TestManyConnections holds idle connections and compares what one costs with a bare
// echo; then all publish at once while the API is down, which must not cost memory, and
// get their results when it returns. REDRIVE_PROOF_CONNECTIONS=10000 is the proof.
func TestManyConnections(t *testing.T) {
	n := 500
	if text := os.Getenv(envConnections); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s=%q is not a number", envConnections, text)
		}
	}
	connections := strconv.Itoa(n)
	var up atomic.Bool
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer target.Close()
	const collect = "GOGC=25" // so that garbage is little of what is measured, in both
	d := newDaemon(t, proofConfig(target.URL), collect)

	server := newHelper(t, echo.Command(t), collect)
	url := server.says()
	before := resident(t, server.cmd.Process.Pid)
	all := newHelper(t, clients.Command(t, url, connections))
	all.expect("ready")
	bare := resident(t, server.cmd.Process.Pid) - before
	all.end()
	server.end()

	before = resident(t, d.cmd.Process.Pid)
	all = newHelper(t, clients.Command(t, "ws"+strings.TrimPrefix(d.url, "http")+"/v1/ws", connections))
	all.expect("ready")
	idle := resident(t, d.cmd.Process.Pid)
	ratio := float64(idle-before) / float64(bare)
	t.Logf("%d idle connections: %.1f KiB each, %.1f KiB with a bare echo: %.2f times", n, float64(idle-before)/float64(n)/1024, float64(bare)/float64(n)/1024, ratio)
	if n >= 5000 && ratio > 1.4 {
		t.Errorf("an idle connection costs %.2f times what it costs a bare echo", ratio)
	}
	if _, err := io.WriteString(all.in, "publish\n"); err != nil {
		t.Fatal(err)
	}
	all.expect("published")
	until(t, "all is accepted", 2*time.Minute, func() bool {
		return strings.Contains(d.redrive("queues", "--json").ok(t).out, fmt.Sprintf(`"published": %d`, n))
	})
	down := resident(t, d.cmd.Process.Pid)
	t.Logf("%.1f MiB idle, %.1f MiB with the API down", float64(idle)/(1<<20), float64(down)/(1<<20))
	if down > idle+idle/2+64<<20 {
		t.Errorf("with the API down the daemon grew from %d to %d bytes", idle, down)
	}
	up.Store(true)
	all.expect("answered")
	r := d.redrive("verify", "--scan")
	if r.code != 0 {
		t.Errorf("%s%s", r.out, r.stderr)
	}
}
