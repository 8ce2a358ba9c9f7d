package main

import (
	"strings"
	"testing"
	"time"
)

// TestRun plays a short script over real HTTP, on the embedded store. No request may
// be lost; some must have been put off.
func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out, 50, 8*time.Second, t.TempDir()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	text := out.String()
	if !strings.Contains(text, "none lost") || strings.Contains(text, " 0 put off") || !strings.Contains(text, " 0 refused") {
		t.Errorf("got\n%s", text)
	}
	t.Log("\n" + text)
}
