// Package transfer proves what "dead-letter and acknowledge" promises: for every backend and
// every way of keeping dead letters, a worker is killed before and after each of its writes
// to a server, from the moment its handler has failed until the transfer is complete.
// Nothing may be lost; a second dead letter only where docs/guarantees.md says so.
package transfer

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/redrive/redrive/internal/pgtest"
	"github.com/redrive/redrive/internal/servertest"
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

// hits are the ways of striking: a fault before a write or after it.
type hits []strike

// TestTransfer kills workers before and after every write, and cuts their connections after
// it. In the proof connections are cut before it, too, and the server is killed.
func TestTransfer(t *testing.T) {
	ways := hits{{blow: kill}, {blow: kill, sent: true}, {blow: cut, sent: true}}
	if os.Getenv("REDRIVE_PROOF_ROUNDS") != "" {
		ways = append(ways, strike{blow: cut}, strike{blow: down}, strike{blow: down, sent: true})
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
				counted := s.sweep(t, w, ways)
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
func (s *strategy) sweep(t *testing.T, w *world, ways hits) tally {
	t.Helper()
	c := tally{strategy: *s, strikes: make(map[blow]int)}
	published := 0
	for _, way := range ways {
		if way.blow == down && w.kill == nil {
			continue
		}
		for way.step = 0; ; way.step++ {
			if way.step > mostSteps {
				t.Errorf("%s %s: the transfer has no end after %d writes", s.backend, s.name, way.step)
				break
			}
			published++
			if !w.round(t, fmt.Sprintf("body-%d", published), way) {
				break
			}
			c.strikes[way.blow]++
		}
	}
	servertest.Until(t, "nothing is left", func() bool { return w.left(t) == 0 })
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
		t.Error("nothing was hit")
	}
	return c
}
