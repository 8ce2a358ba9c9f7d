package transfer

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// page is where the table stands, between two marks.
const (
	page  = "../../docs/guarantees.md"
	begin = "<!-- transfer: written by REDRIVE_UPDATE=1 go test ./test/transfer -->\n"
	end   = "<!-- transfer: end -->\n"
)

// table compares docs/guarantees.md with what is claimed here, and writes it with
// REDRIVE_UPDATE: how often each was struck depends on the run, what is lost does not.
func table(t *testing.T, tallies []tally) {
	t.Helper()
	slices.SortFunc(tallies, func(a, b tally) int {
		return cmp.Or(cmp.Compare(a.backend, b.backend), cmp.Compare(b.name, a.name))
	})
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	old, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table: %q and %q", page, begin, end)
	}
	if os.Getenv("REDRIVE_UPDATE") == "" {
		for _, c := range tallies {
			if row := fmt.Sprintf("| %s | %s | ", c.backend, c.name); !strings.Contains(old, row) {
				t.Errorf("%s does not have %s; write it with REDRIVE_UPDATE=1 go test ./test/transfer", page, row)
			}
		}
		return
	}
	var b strings.Builder
	b.WriteString("| backend | dead letters | what makes it safe | workers killed | connections cut | servers killed | lost | dead letters twice |\n|---|---|---|---|---|---|---|---|\n")
	for _, c := range tallies {
		twice := fmt.Sprint(c.duplicates)
		if c.strategy.duplicates {
			twice += ", possible"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %s | %d | %s |\n", c.backend, c.name, c.safe, c.strikes[kill], c.strikes[cut], times(c.strikes[down]), c.lost, twice)
	}
	if err := os.WriteFile(page, []byte(before+begin+b.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func times(n int) string {
	if n == 0 {
		return "in `make proof`"
	}
	return fmt.Sprint(n)
}
