// Package childtest runs the program of a test anew, as a process that plays a part and may
// be killed at any moment.
package childtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// variable tells a program of tests that it is a child: its part and the words for it.
const variable = "REDRIVE_TEST_CHILD"

// Part is what a child does.
type Part struct {
	Name string
	// Run plays the part with the words that the test gave. An error is shown, and ends
	// the process with 1.
	Run func(ctx context.Context, words []string) error
}

// Main plays the part that a test started this process for; else it runs the tests of a
// package:
//
//	func TestMain(m *testing.M) { os.Exit(childtest.Main(m.Run, worker)) }
func Main(run func() int, parts ...Part) int {
	text := os.Getenv(variable)
	if text == "" {
		return run()
	}
	var words []string
	err := json.Unmarshal([]byte(text), &words)
	if err == nil {
		err = play(parts, words)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func play(parts []Part, words []string) error {
	for _, p := range parts {
		if p.Name == words[0] {
			return p.Run(context.Background(), words[1:])
		}
	}
	return fmt.Errorf("no part %q in this package's TestMain", words[0])
}

// Env returns the line of an environment in which the program of this test plays the part.
func (p Part) Env(words ...string) string {
	text, _ := json.Marshal(append([]string{p.Name}, words...)) // strings
	return variable + "=" + string(text)
}

// Command returns the child, not yet started. It is killed when the test ends, and what it
// writes to its standard error is shown.
func (p Part) Command(t testing.TB, words ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // ourselves
	cmd.Env = append(os.Environ(), p.Env(words...))
	cmd.Stderr = os.Stderr
	return cmd
}

// Killed ends this process as kill -9 does.
func Killed() {
	if self, err := os.FindProcess(os.Getpid()); err == nil && self.Kill() == nil {
		select {} // until it is so
	}
	panic("a process cannot kill itself")
}
