// Package transfer proves what "set aside and acknowledge" promises: for every backend and
// every way of keeping dead letters, a worker is struck before and after each of its writes
// to a server, from the moment its handler has failed until the transfer is complete.
// Nothing may be lost; a second dead letter only where docs/guarantees.md says so.
package transfer

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/redrive/redrive/internal/pgtest"
)

// tally is what was counted of one strategy.
type tally struct {
	strategy
	strikes    map[blow]int
	lost       int
	duplicates int
}

// mostSteps bounds how many writes a transfer may have: heartbeats are among them.
const mostSteps = 40

// TestTransfer kills workers at every write. In the proof it also cuts their connections
// and kills the server.
func TestTransfer(t *testing.T) {
	blows := []blow{kill, cut}
	if os.Getenv("REDRIVE_PROOF_ROUNDS") != "" {
		blows = append(blows, down)
	}
	// What is parked by a strategy stands in a schema of its own.
	beside := pgtest.Start(t, map[string]string{"max_connections": "300"})
	var mu sync.Mutex
	var tallies []tally
	t.Run("strategies", func(t *testing.T) {
		for _, s := range strategies {
			t.Run(s.backend+"/"+s.name, func(t *testing.T) {
				t.Parallel()
				w := s.build(t, server{addr: beside.Addr(), url: at(fmt.Sprintf("postgres://postgres@ADDR/postgres?sslmode=disable&redrive_schema=s%d", schemas.Add(1)))})
				counted := s.sweep(t, w, blows)
				mu.Lock()
				defer mu.Unlock()
				tallies = append(tallies, counted)
			})
		}
	})
	if !t.Failed() {
		table(t, tallies)
	}
}

// sweep strikes at each step in turn until a transfer ends before its step came, and
// counts what became of the messages.
func (s *strategy) sweep(t *testing.T, w *world, blows []blow) tally {
	t.Helper()
	c := tally{strategy: *s, strikes: make(map[blow]int)}
	published := 0
	for _, b := range blows {
		if b == down && w.kill == nil {
			continue
		}
		for _, sent := range []bool{false, true} {
			for step := 0; ; step++ {
				if step > mostSteps {
					t.Errorf("%s %s: the transfer has no end after %d writes", s.backend, s.name, step)
					break
				}
				published++
				if !w.round(t, fmt.Sprintf("body-%d", published), strike{b, step, sent}) {
					break
				}
				c.strikes[b]++
			}
		}
	}
	until(t, "nothing is left", func() bool { return w.left(t) == 0 })
	dead := w.dead(t)
	for i := 1; i <= published; i++ {
		switch n := dead[fmt.Sprintf("body-%d", i)]; {
		case n == 0:
			c.lost++
		case n > 1:
			c.duplicates += n - 1
		}
	}
	t.Logf("%d messages, strikes %v, %d lost, %d dead letters twice", published, c.strikes, c.lost, c.duplicates)
	if c.lost > 0 || c.duplicates > 0 && !s.duplicates {
		t.Errorf("%s %s: %d lost, %d dead letters twice", s.backend, s.name, c.lost, c.duplicates)
	}
	if c.strikes[kill] == 0 {
		t.Error("nothing was struck")
	}
	return c
}
