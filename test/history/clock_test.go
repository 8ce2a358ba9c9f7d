package history

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // registers the driver

	"github.com/redrive/redrive/internal/programtest"
)

// faker is where Debian keeps the library of its package faketime: whoever loads it reads
// its clock by way of a file. Redis does not start with it: its allocator asks for the time
// before the library is ready.
const faker = "/usr/lib/*/faketime/libfaketimeMT.so.1"

// clocks is how many servers of a store have a clock that can be moved.
func clocks(store string) int {
	found, err := filepath.Glob(faker)
	if err != nil || len(found) == 0 || store == "redis" {
		return 0
	}
	return 1
}

// clock is what a server takes for the time.
type clock struct{ file string }

func newClock(t testing.TB) *clock {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	c := &clock{filepath.Join(dir, "clock")}
	c.move(t, 0)
	return c
}

// rule gives a server the clock. What reads the time since the start of the machine
// stays as it is.
func (c *clock) rule(t testing.TB, s *server) {
	t.Helper()
	found, err := filepath.Glob(faker)
	if err != nil {
		t.Fatal(err)
	}
	s.Kill()
	s.Setenv("LD_PRELOAD="+found[0], "FAKETIME_TIMESTAMP_FILE="+c.file, "FAKETIME_NO_CACHE=1", "DONT_FAKE_MONOTONIC=1")
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
}

// withClock is the embedded store of a daemon whose clock jumps.
const withClock = "sqlite-clock"

// reading has the program follow the file of a clock.
const reading = `package main

import (
	"os"
	"strconv"
	"time"
)

func init() {
	read := func() {
		if text, err := os.ReadFile(os.Getenv("CLOCK")); err == nil {
			n, _ := strconv.ParseInt(string(text), 10, 64)
			time.Ahead.Store(n)
		}
	}
	read()
	go func() {
		for range time.Tick(5 * time.Millisecond) {
			read()
		}
	}()
}
`

// movable builds the program, once, with a time package whose Now can be moved. Nothing
// of ours is changed.
var movable = sync.OnceValues(func() (string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	file := filepath.Join(strings.TrimSpace(string(root)), "src", "time", "time.go")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	const head, now = "import (\n", "sec, nsec, mono := runtimeNow()\n"
	moved := strings.Replace(string(text), head, head+"\t\"sync/atomic\"\n", 1)
	moved = strings.Replace(moved, now, now+"\tsec += Ahead.Load()\n", 1) + "\nvar Ahead atomic.Int64\n"
	main, err := filepath.Abs("../../cmd/redrive/clock.go")
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range map[string]string{file: moved, main: reading} {
		replace[name] = filepath.Join(binDir, filepath.Base(name))
		if err := os.WriteFile(replace[name], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	overlay := filepath.Join(binDir, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		err = os.WriteFile(overlay, list, 0o600)
	}
	if err != nil {
		return "", err
	}
	return programtest.Build(binDir, "redrive-clock", "-overlay="+overlay)
})

// move has the clock be ahead of the machine's, by whole seconds.
func (c *clock) move(t testing.TB, by time.Duration) {
	next := c.file + ".next"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+d", by/time.Second), 0o644); err != nil {
		t.Error(err)
	}
	if err := os.Rename(next, c.file); err != nil {
		t.Error(err)
	}
}

func TestClocksMove(t *testing.T) {
	for store, c := range map[string]struct {
		driver, ask string
		name        func(s *server) string
	}{
		"postgres": {"pgx", "SELECT extract(epoch FROM now())", func(s *server) string { return s.url }},
		"mariadb":  {"mysql", "SELECT unix_timestamp(now(6))", func(s *server) string { return "root@tcp(" + s.addr + ")/" }},
	} {
		t.Run(store, func(t *testing.T) {
			if clocks(store) == 0 {
				t.Skip("the library of faketime is not there; on Debian: make deps")
			}
			s := servers[store](t)
			clock := newClock(t)
			clock.rule(t, s)
			db, err := sql.Open(c.driver, c.name(s))
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
				clock.move(t, ahead)
				var now float64
				if err := db.QueryRowContext(t.Context(), c.ask).Scan(&now); err != nil {
					t.Fatal(err)
				}
				if off := time.Unix(int64(now), 0).Sub(time.Now().Add(ahead)).Abs(); off > time.Minute {
					t.Errorf("a clock that shall be ahead by %s is wrong by %s", ahead, off)
				}
			}
		})
	}
}

// jump is how far a fault moves a clock: ahead by 1 to 6 s, or back.
func (f Fault) jump() time.Duration {
	by := (4 * f.For).Truncate(time.Second) + time.Second
	if f.For.Milliseconds()%2 == 1 {
		return -by
	}
	return by
}
