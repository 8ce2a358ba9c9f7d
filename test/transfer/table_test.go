package transfer

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// page is where the table stands, between two marks.
const (
	page  = "../../docs/guarantees.md"
	begin = "<!-- transfer: written by REDRIVE_UPDATE=1 go test ./test/transfer -->\n"
	end   = "<!-- transfer: end -->\n"
)

// columns is how many the table has.
const columns = 8

// table compares docs/guarantees.md with what is claimed here, and writes it with
// REDRIVE_UPDATE: how often each was hit depends on the run, what is lost does not.
// Strategies that were not run keep their rows, and all keep the kills of servers that only
// the proof makes.
func table(t *testing.T, tallies []tally) {
	t.Helper()
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
	was := make(map[string][]string) // the rows of those that were not run, and strikes that only the proof makes
	for line := range strings.Lines(old) {
		if cells := strings.Split(strings.Trim(line, "|\n "), " | "); len(cells) == columns {
			was[cells[0]+" "+cells[1]] = cells
		}
	}
	for _, c := range tallies {
		name := c.backend + " " + c.name
		twice, downs := fmt.Sprint(c.duplicates), fmt.Sprint(c.strikes[down])
		if c.strategy.duplicates {
			twice += ", possible"
		}
		if before := was[name]; c.strikes[down] == 0 {
			downs = "not run"
			if before != nil {
				downs = before[5]
			}
		}
		was[name] = []string{c.backend, c.name, c.safe, fmt.Sprint(c.strikes[kill]), fmt.Sprint(c.strikes[cut]), downs, fmt.Sprint(c.lost), twice}
	}
	var b strings.Builder
	b.WriteString("| backend | dead letters | what makes it safe | workers killed | connections cut | servers killed | lost | dead letters twice |\n|---|---|---|---|---|---|---|---|\n")
	for _, s := range strategies {
		if cells := was[s.backend+" "+s.name]; cells != nil {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
		}
	}
	if err := os.WriteFile(page, []byte(before+begin+b.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
