package deadtest

import (
	"os"
	"strconv"
	"testing"
)

// ManyDead is how many dead letters the larger store of a test of costs has: REDRIVE_PROOF_DEAD, or as many as usual.
func ManyDead(t testing.TB, usual int) int {
	t.Helper()
	text := os.Getenv("REDRIVE_PROOF_DEAD")
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < usual {
		t.Fatalf("REDRIVE_PROOF_DEAD=%q: give a number of at least %d", text, usual)
	}
	return n
}
