package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/sqlite"
)

// TestAMessageThatExits: one message whose handler calls os.Exit first thing, among
// 1,000 good ones at concurrency 64. Only it ends dead, as crashed.
func TestAMessageThatExits(t *testing.T) {
	const good = 1000
	dir := t.TempDir()
	starts := 1
	for ; ; starts++ {
		if starts > 100 {
			t.Fatal("it does not come to an end")
		}
		cmd := crasher.Command(t, dir, strconv.Itoa(good))
		cmd.Stderr = nil
		out, err := cmd.CombinedOutput()
		if err == nil {
			break
		}
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != crasherExit {
			t.Fatalf("start %d: %v\n%s", starts, err, out)
		}
	}
	t.Logf("%d starts", starts)

	store, err := sqlite.Open(filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	page, err := store.Find(t.Context(), redrive.Query{Queue: crasherQueue, State: redrive.StateDead})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Entries) != 1 || page.Entries[0].ID != "exit" || page.Entries[0].Reason != redrive.ReasonCrashed {
		t.Errorf("dead letters: %+v", page.Entries)
	}
	effects, err := os.ReadFile(filepath.Join(dir, "effects"))
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]int)
	for id := range strings.FieldsSeq(string(effects)) {
		seen[id]++
	}
	repeated := 0
	for _, n := range seen {
		repeated += n - 1
	}
	t.Logf("%d messages handled, %d of them again after a crash", len(seen), repeated)
	if len(seen) != good {
		t.Errorf("%d of %d good messages were handled", len(seen), good)
	}
	audits, err := store.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range audits {
		if a.Imbalance() != 0 || len(a.Problems) > 0 || a.Ledger.Done != good || a.Dead != 1 || a.Waiting != 0 {
			t.Errorf("the ledger: %+v", a)
		}
	}
}
