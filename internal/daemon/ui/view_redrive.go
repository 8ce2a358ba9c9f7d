package ui

import (
	"maps"
	"slices"
	"time"

	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

// redriveForm is the page on which a redrive is asked for.
type redriveForm struct {
	Chips     []filterChip
	Hidden    []field
	Form      string
	Total     int64
	More      bool
	Examined  int64
	Cutoff    moment
	Refused   []pair
	Reasons   []pair
	Causes    []causeRow
	Canary    string // how many; "" none
	Rate      string
	To        string
	Max       string
	Why       string
	NewID     bool
	Uncertain bool
	Corrupt   bool
	Folded    bool // nothing of the folded part is set
	Waits     []hold
	Needs     string
	Problem   *problem.Problem
	Command   string
	Request   string
}

const (
	canaryDefault = "10"
	rateDefault   = "100/s"
)

func viewRedrive(f *wire.Filter, run *wire.DryRun, queue *wire.Queue, now time.Time) redriveForm {
	p := redriveForm{
		Chips: filterChips(f, ""), Hidden: hidden(f), Total: run.Total, More: run.More, Examined: run.Examined, Cutoff: momentAt(run.Cutoff, now),
		Canary: canaryDefault, Rate: rateDefault, Folded: true, Refused: countPairs(run.Refused), Reasons: countPairs(run.Reason),
		Command: command(append(append([]string{"redrive", "dead", "redrive"}, filterFlags(f)...), "--canary", canaryDefault, "--rate", rateDefault, "--wait")...),
	}
	for i := range run.Causes {
		p.Causes = append(p.Causes, causeRowOf(&run.Causes[i], "", now))
	}
	if queue != nil {
		p.Waits = holdsOf(queue, now)
	}
	return p
}

// countPairs shows counts by name, the largest first.
func countPairs(counts map[string]int64) (all []pair) {
	names := slices.Collect(maps.Keys(counts))
	slices.SortFunc(names, func(a, b string) int {
		if counts[a] != counts[b] {
			return int(min(max(counts[b]-counts[a], -1), 1))
		}
		return len(a) - len(b)
	})
	for _, name := range names {
		all = append(all, pair{name, number(counts[name])})
	}
	return all
}
