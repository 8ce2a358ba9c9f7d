package history

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // registers the driver
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

// newClock gives a server a clock of its own. What reads the time since the start of the
// machine is left alone.
func newClock(t testing.TB, s *server) *clock {
	t.Helper()
	found, err := filepath.Glob(faker)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // servers have an account of their own
		t.Fatal(err)
	}
	c := &clock{filepath.Join(dir, "clock")}
	c.move(t, 0)
	s.Kill()
	s.Setenv("LD_PRELOAD="+found[0], "FAKETIME_TIMESTAMP_FILE="+c.file, "FAKETIME_NO_CACHE=1", "DONT_FAKE_MONOTONIC=1")
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
	return c
}

// move has the clock be ahead of the machine's.
func (c *clock) move(t testing.TB, by time.Duration) {
	next := c.file + ".next"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+.3f", by.Seconds()), 0o644); err != nil {
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
			clock := newClock(t, s)
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

// jump is how far a fault moves a clock: ahead by up to 6 s, or back.
func (f Fault) jump() time.Duration {
	if f.For.Milliseconds()%2 == 1 {
		return -4 * f.For
	}
	return 4 * f.For
}
