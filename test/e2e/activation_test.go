package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/programtest"
	"github.com/redrive/redrive/internal/servertest"
)

// asSystemd starts a program as systemd does one with sockets: they are its descriptors
// from 3 on, and the environment names the process that they are for.
const asSystemd = `LISTEN_PID=$$ exec "$0" "$@"`

// activated starts a daemon on a socket that it was given.
func activated(t *testing.T, socket *os.File, file string) *process {
	t.Helper()
	p := &process{t: t, name: "daemon", log: &programtest.Log{}, done: make(chan struct{})}
	p.cmd = exec.Command("/bin/sh", "-c", asSystemd, redriveBin, "serve", "--config", file)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.Env = programtest.Environ("LISTEN_FDS=1", "LISTEN_FDNAMES=redrive.socket")
	p.cmd.ExtraFiles = []*os.File{socket}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("the daemon wrote:\n%s", tail(p.log.String(), 60))
		}
	})
	return p
}

// send publishes a message and returns the status of the answer.
func send(ctx context.Context, c *http.Client, url string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/queues/hooks/messages", strings.NewReader("x"))
	if err != nil {
		return 0, err
	}
	resp, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// Restarts refuse nothing where the socket is somebody else's: what comes meanwhile waits,
// and is accepted by the next process. The messages have no key, so no client repeats what
// it sent on a connection that was closed meanwhile.
func TestARestartRefusesNothing(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	socket, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	url := "http://" + l.Addr().String()
	// The address of the configuration is not used: nobody could listen on it.
	file := filepath.Join(t.TempDir(), "redrive.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "listen: %s\nstore: sqlite:%s\nqueues: {hooks: {}}\n", l.Addr(), filepath.Join(t.TempDir(), "data")), 0o600); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var accepted atomic.Int64
	stop := make(chan struct{})
	var publishers sync.WaitGroup
	defer publishers.Wait()
	p := activated(t, socket, file)
	for i := range 6 {
		publishers.Go(func() {
			c := &http.Client{Transport: &http.Transport{DisableKeepAlives: i%2 == 0}}
			defer c.CloseIdleConnections()
			for {
				select {
				case <-stop:
					return
				default:
				}
				status, err := send(ctx, c, url)
				if err != nil || status != http.StatusAccepted {
					t.Errorf("publisher %d: status %d, %v", i, status, err)
					return
				}
				accepted.Add(1)
			}
		})
	}
	defer sync.OnceFunc(func() { close(stop) })()
	for range 4 {
		was := accepted.Load()
		until(t, "the daemon accepts", time.Minute, func() bool { return accepted.Load() >= was+200 || t.Failed() })
		if code := p.terminate(time.Minute); code != 0 {
			t.Fatalf("exit %d", code)
		}
		p = activated(t, socket, file)
	}
	was := accepted.Load()
	until(t, "the last daemon accepts", time.Minute, func() bool { return accepted.Load() > was || t.Failed() })
	if !strings.Contains(p.log.String(), "passed=true") {
		t.Error("the log does not say that the socket was passed")
	}
}

// A socket that other machines reach needs a token, whatever the configuration says.
func TestAPassedSocketNeedsAToken(t *testing.T) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	socket, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	file, _ := programtest.Configure(t, "sqlite:"+filepath.Join(t.TempDir(), "data"), "queues: {hooks: {}}\n")
	p := activated(t, socket, file)
	if code := p.wait(time.Minute); code != 1 || !strings.Contains(p.log.String(), "there is no token") {
		t.Errorf("exit %d:\n%s", code, p.log)
	}
}

// systemd's own program starts the daemon at the first connection, and passes it what came.
func TestSystemdActivates(t *testing.T) {
	program, err := exec.LookPath("systemd-socket-activate")
	if err != nil {
		t.Skip("systemd-socket-activate is not installed (Debian: systemd)")
	}
	port, err := servertest.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	p := startProgram(t, "systemd-socket-activate", nil, program, "--listen", port.Addr(), redriveBin, "serve", "--data", filepath.Join(t.TempDir(), "data"), "--deliver", "hooks=http://127.0.0.1:1/")
	until(t, "systemd listens", time.Minute, func() bool { return strings.Contains(p.log.String(), "Listening on") })
	status, err := send(t.Context(), http.DefaultClient, "http://"+port.Addr())
	if status != http.StatusAccepted || err != nil {
		t.Errorf("%d, %v", status, err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(time.Minute); code != 0 {
		t.Errorf("exit %d", code)
	}
}
