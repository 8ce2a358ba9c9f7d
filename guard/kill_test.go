package guard_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/guard"
	"github.com/redrive/redrive/internal/childtest"
	"github.com/redrive/redrive/internal/leaktest"
)

// issuer is the application that is killed: its provider is broken, and it prints the id
// of each ticket as soon as it has it.
var issuer = childtest.Part{Name: "issuer", Run: func(ctx context.Context, words []string) error {
	store, err := sqlite.Open(words[0])
	if err != nil {
		return err
	}
	a := &third{name: "a"}
	a.fail(errBroken)
	g, err := guard.New(guard.Config[order, receipt]{Name: "orders", Store: store, Providers: []guard.Provider[order, receipt]{{Name: "a", Call: a.call}}})
	if err != nil {
		return err
	}
	go func() { _ = g.Run(ctx) }()
	go func() { _ = engine.Run(ctx, store, "orders", g, g.QueueOptions()) }()
	for {
		res, err := g.Do(ctx, order{})
		if err != nil || !res.Deferred() {
			return fmt.Errorf("%v, %w", res, err)
		}
		fmt.Println(res.Ticket.ID)
	}
}}

func TestMain(m *testing.M) {
	os.Exit(childtest.Main(func() int { return leaktest.Main(m.Run) }, issuer))
}

// TestKilledAfterTheTicket kills the application right after it issued a ticket:
// whoever holds one gets his result from the next process.
func TestKilledAfterTheTicket(t *testing.T) {
	dir := t.TempDir()
	var ids []string
	for round := range 3 {
		cmd := issuer.Command(t, dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for s := bufio.NewScanner(out); s.Scan(); {
			ids = append(ids, s.Text())
			if len(ids) >= 10*(round+1) {
				break
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	}
	store, err := sqlite.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	a := &third{name: "a"}
	g := newGuard(t, guard.Config[order, receipt]{Store: store, Pace: guard.Pace{Fixed: 1000}}, a)
	defer consume(t, store, g)()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, id := range ids {
		if s, err := g.Ticket(id).Wait(ctx); err != nil || !s.Done {
			t.Errorf("ticket %s: %+v, %v", id, s, err)
		}
	}
	t.Logf("%d tickets of 3 killed processes, all kept", len(ids))
}
