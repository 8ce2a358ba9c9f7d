package history

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	runsFile = "runs.tsv"
	page     = "../../docs/guarantees.md"
	begins   = "<!-- history: the sum of test/history/runs.tsv, written by REDRIVE_UPDATE=1 go test ./test/history -run Table -->\n"
	ends     = "<!-- history: end -->\n"
)

// line is a line of runs.tsv: what a round of a backend was, and what it showed.
type line struct {
	date, commit                        string
	seed                                uint64
	backend                             string
	rounds, kills, faults, acknowledged int
	lost, broken                        int // messages, and promises in all
}

// of counts what happened in one round.
func (l *line) of(h *History, faults []Fault) {
	for _, f := range faults {
		l.faults++
		if f.Kind == KillDaemon || f.Kind == KillServer || f.Kind == PowerLoss {
			l.kills++
		}
	}
	for i := range h.Events {
		if e := &h.Events[i]; e.Op == OpPublish && e.Answer == OK {
			l.acknowledged++
		}
	}
}

func (l *line) add(o line) {
	l.rounds += o.rounds
	l.kills += o.kills
	l.faults += o.faults
	l.acknowledged += o.acknowledged
	l.lost += o.lost
	l.broken += o.broken
}

func (l *line) String() string {
	return fmt.Sprintf("%s\t%s\t%d\t%s\t%d\t%d\t%d\t%d\t%d\t%d\n", l.date, l.commit, l.seed, l.backend, l.rounds, l.kills, l.faults, l.acknowledged, l.lost, l.broken)
}

// state returns the commit that the program is built from, and whether it was changed since.
func state() (string, error) {
	commit, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "", err
	}
	changed, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude)"+runsFile, ":(exclude)"+page).Output()
	if err != nil {
		return "", err
	}
	text := string(bytes.TrimSpace(commit))
	if len(changed) > 0 {
		text += "+"
	}
	return text, nil
}

// appendRun writes a round down.
func appendRun(t *testing.T, l line) {
	t.Helper()
	l.date, l.commit = time.Now().UTC().Format(time.DateOnly), builtFrom
	f, err := os.OpenFile(runsFile, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(l.String()); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func runs(t *testing.T) (all []line) {
	t.Helper()
	text, err := os.ReadFile(runsFile)
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i, row := range rows[1:] {
		f := strings.Split(row, "\t")
		if len(f) != 10 {
			t.Fatalf("%s:%d: %d fields", runsFile, i+2, len(f))
		}
		var n [10]int
		for _, k := range []int{4, 5, 6, 7, 8, 9} {
			if n[k], err = strconv.Atoi(f[k]); err != nil {
				t.Fatalf("%s:%d: %v", runsFile, i+2, err)
			}
		}
		all = append(all, line{backend: f[3], rounds: n[4], kills: n[5], faults: n[6], acknowledged: n[7], lost: n[8], broken: n[9]})
	}
	return all
}

// TestTableIsTheSumOfTheRuns compares docs/guarantees.md with runs.tsv. REDRIVE_UPDATE=1
// writes it anew.
func TestTableIsTheSumOfTheRuns(t *testing.T) {
	sums := map[string]*line{}
	var backends []string
	for _, l := range runs(t) {
		if sums[l.backend] == nil {
			sums[l.backend] = &line{}
			backends = append(backends, l.backend)
		}
		sums[l.backend].add(l)
	}
	slices.Sort(backends)
	var table strings.Builder
	table.WriteString("| store | rounds | kill -9, power loss | faults in all | acknowledged | lost | promises broken |\n|---|---|---|---|---|---|---|\n")
	for _, b := range backends {
		s := sums[b]
		fmt.Fprintf(&table, "| %s | %d | %d | %d | %d | %d | %d |\n", b, s.rounds, s.kills, s.faults, s.acknowledged, s.lost, s.broken)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(text), begins)
	_, tail, found2 := strings.Cut(rest, ends)
	if !found || !found2 {
		t.Fatalf("%s has no place for the table", page)
	}
	want := head + begins + table.String() + ends + tail
	if os.Getenv("REDRIVE_UPDATE") != "" {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(text) {
		t.Errorf("%s is not the sum of %s; write it anew: REDRIVE_UPDATE=1 go test ./test/history -run Table", page, runsFile)
	}
}
