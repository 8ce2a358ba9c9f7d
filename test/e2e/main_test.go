// Package e2e drives the real program as a person would.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/childtest"
	"github.com/redrive/redrive/internal/programtest"
)

// redriveBin is the program, which TestMain builds.
var redriveBin string

func TestMain(m *testing.M) {
	os.Exit(childtest.Main(func() int {
		// Tests of processes mostly wait: for leases of the dead, for rounds, for servers.
		flag.Parse()
		if err := flag.Set("test.parallel", "6"); err != nil {
			panic(err)
		}
		return buildAndRun(m)
	}, crasher, clients, echo))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "redrive-e2e-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if redriveBin, err = programtest.Build(dir, "redrive"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// rounds is how often a proof repeats: REDRIVE_PROOF_ROUNDS, or what CI has time for.
func rounds(t *testing.T, ci int) int {
	t.Helper()
	text := os.Getenv("REDRIVE_PROOF_ROUNDS")
	if text == "" {
		return ci
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("REDRIVE_PROOF_ROUNDS=%q is not a number of rounds", text)
	}
	return n
}

// seeded returns a source of randomness whose seed is shown, and may be given in
// REDRIVE_SEED.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("REDRIVE_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("REDRIVE_SEED=%q is not a number", text)
		}
		seed = n
	}
	t.Logf("REDRIVE_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// until repeats a check of a real process until it holds.
func until(t *testing.T, what string, limit time.Duration, check func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !check() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %s: %s", limit, what)
		case <-tick.C:
		}
	}
}
