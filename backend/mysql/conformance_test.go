package mysql

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/backendtest"
)

// onMovedClock lets a store go by the server's clock moved by what stands in a table.
func onMovedClock(s *Store) {
	moved := "((SELECT moved.us FROM moved) + " + serverClock + ")"
	s.sql.replace(serverClock, moved)
	s.sql.clock = moved
}

func TestConformance(t *testing.T) {
	serve(t, "CREATE TABLE moved (us BIGINT NOT NULL); INSERT INTO moved VALUES (0)")
	clock := dial(t)
	again := func(t testing.TB, s redrive.Store) *Store { return connect(t, s.(*Store), onMovedClock) }
	backendtest.Run(t, backendtest.Factory{
		Open:    func(t testing.TB) redrive.Store { return open(t, onMovedClock) },
		Connect: func(t testing.TB, s redrive.Store) redrive.Store { return again(t, s) },
		Reopen: func(t testing.TB, s redrive.Store) redrive.Store {
			noErr(t, s.Close())
			return again(t, s)
		},
		Crash: func(t testing.TB, s redrive.Store) redrive.Store { return crash(t, s.(*Store), onMovedClock) },
		Advance: func(d time.Duration) {
			if _, err := clock.ExecContext(context.Background(), fmt.Sprintf("UPDATE moved SET us = us + %d", d.Microseconds())); err != nil {
				panic(err)
			}
		},
		// The engine's clock goes on beside the moved one, which is all its cases need.
		Around: func(t *testing.T, run func(testing.TB)) { run(t) },
	})
}
