package history

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/programtest"
	"github.com/redrive/redrive/internal/proxytest"
)

// daemon is the program, started again whenever it ends until the run is over. That it
// ended by itself is an event.
type daemon struct {
	t      testing.TB
	rec    *recorder
	name   string
	bin    string
	env    []string
	config string
	store  string
	direct string           // its own address, for looking at it
	link   *proxytest.Proxy // between those who call and the daemon

	mu   sync.Mutex
	cmd  *exec.Cmd
	dead *exec.Cmd // whom kill ended
	log  *programtest.Log
	held bool // it shall not be started just now
	over bool
	all  sync.WaitGroup
}

func newDaemon(t testing.TB, rec *recorder, program func() (string, error), name, store, yaml string, env ...string) *daemon {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{t: t, rec: rec, name: name, bin: bin, env: env, store: store, log: &programtest.Log{}}
	d.config, d.direct = programtest.Configure(t, store, fmt.Sprintf("archive: %q\n%s", filepath.Join(t.TempDir(), "archive"), yaml))
	d.link = proxytest.New(t, strings.TrimPrefix(d.direct, "http://"))
	d.start()
	t.Cleanup(d.end)
	return d
}

// url is where the daemon is called, over a connection that may break.
func (d *daemon) url() string { return "http://" + d.link.Addr().String() }

func (d *daemon) start() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.startLocked()
}

func (d *daemon) startLocked() {
	if d.over || d.held || d.cmd != nil {
		return
	}
	cmd := exec.Command(d.bin, "serve", "--config", d.config)
	cmd.Stdout, cmd.Stderr = d.log, d.log
	cmd.Env = append(programtest.Environ("GOMAXPROCS=2"), d.env...)
	if err := cmd.Start(); err != nil {
		d.t.Error(err)
		return
	}
	d.cmd = cmd
	began := d.rec.now()
	d.all.Go(func() {
		err := cmd.Wait() // however it ended, it is started again
		d.mu.Lock()
		defer d.mu.Unlock()
		d.cmd = nil
		if !d.over && d.dead != cmd {
			const shown = 500
			log := d.log.String()
			d.rec.add(Event{Begin: began, Op: OpExit, By: d.name, Note: fmt.Sprintf("%v: %s", err, log[max(0, len(log)-shown):])})
		}
		if !d.over && !d.held {
			d.all.Go(func() { pause(d.t.Context(), 300*time.Millisecond); d.start() })
		}
	})
}

// kill ends the daemon as a crash would, until start.
func (d *daemon) kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = true
	if d.dead = d.cmd; d.cmd != nil {
		_ = d.cmd.Process.Kill() // it may be gone
	}
}

// gone reports that it does not run.
func (d *daemon) gone() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cmd == nil
}

// resume starts a daemon that was killed.
func (d *daemon) resume() {
	d.mu.Lock()
	d.held = false
	d.mu.Unlock()
	d.start()
}

func (d *daemon) signal(s syscall.Signal) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cmd != nil {
		_ = d.cmd.Process.Signal(s) // it may be gone
	}
}

func (d *daemon) end() {
	d.mu.Lock()
	d.over = true
	if d.cmd != nil {
		_ = d.cmd.Process.Kill() // it may be gone
	}
	d.mu.Unlock()
	d.all.Wait()
}

func (d *daemon) ready() bool { return programtest.Ready(d.direct) }

// problems are what no daemon may do.
func (d *daemon) problems() (list []string) {
	for _, sign := range []string{"panic: ", "fatal error: ", "DATA RACE"} {
		if text := d.log.String(); strings.Contains(text, sign) {
			list = append(list, fmt.Sprintf("%s: %s", d.name, text[strings.Index(text, sign):]))
		}
	}
	return list
}
