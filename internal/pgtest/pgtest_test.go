//go:build unix

package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestServerLivesDiesAndResumes(t *testing.T) {
	s := Start(t, map[string]string{"synchronous_commit": "on"})
	ask := func() {
		t.Helper()
		c, err := pgx.Connect(t.Context(), s.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(context.Background()) }()
		var one int
		if err := c.QueryRow(t.Context(), "SELECT 1").Scan(&one); err != nil || one != 1 {
			t.Fatalf("%d, %v", one, err)
		}
	}
	ask()
	for _, end := range []func(){s.Kill, func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}} {
		end()
		if err := s.Resume(); err != nil {
			t.Fatal(err)
		}
		ask()
	}
}
