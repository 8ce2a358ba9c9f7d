package main

import (
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/pgtest"
)

func TestRunOnSQLite(t *testing.T) { play(t, "sqlite:"+t.TempDir()) }

func TestRunOnPostgreSQL(t *testing.T) { play(t, pgtest.Start(t, nil).URL()) }

// play plays a short script over real HTTP. No request may be lost; some must have been
// put off.
func play(t *testing.T, queue string) {
	t.Helper()
	var out strings.Builder
	if err := run(t.Context(), &out, 50, 8*time.Second, queue); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	text := out.String()
	if !strings.Contains(text, "none lost") || strings.Contains(text, " 0 put off") || !strings.Contains(text, " 0 refused") {
		t.Errorf("got\n%s", text)
	}
	t.Log("\n" + text)
}
