// Package mutants plants faults in the tree, one patch each, and has the test that is
// named in the patch find it. A patch that does not apply fails, and so does a fault
// that is not found within its rounds.
package mutants

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root   = "../.."
	page   = root + "/docs/guarantees.md"
	begins = "<!-- mutants: written by REDRIVE_UPDATE=1 go test ./test/mutants -run Table -->\n"
	ends   = "<!-- mutants: end -->\n"
)

// mutant is a patch with its header.
type mutant struct {
	name   string
	file   string
	plants string
	pkg    string // whose test finds it
	run    string
	finds  string // the promise or case that the test's output must name
	rounds int    // at most, until it is found
	found  string // in which round it was, when the header was written
	quick  bool   // CI plants it, too
	paths  []string
}

func read(t *testing.T, file string) *mutant {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := &mutant{name: strings.TrimSuffix(filepath.Base(file), ".patch"), file: file}
	lines := bufio.NewScanner(bytes.NewReader(text))
	header := true
	for lines.Scan() {
		line := lines.Text()
		if path, ok := strings.CutPrefix(line, "+++ b/"); ok {
			m.paths = append(m.paths, path)
		}
		header = header && !strings.HasPrefix(line, "diff ")
		name, value, ok := strings.Cut(line, ": ")
		if !header || !ok {
			continue
		}
		switch name {
		case "plants":
			m.plants = value
		case "test":
			m.pkg, m.run, _ = strings.Cut(value, " ")
		case "finds":
			m.finds = value
		case "rounds":
			if m.rounds, err = strconv.Atoi(value); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		case "found":
			m.found = value
		case "ci":
			m.quick = value == "yes"
		default:
			t.Errorf("%s: nobody reads %q", file, name)
		}
	}
	if m.plants == "" || m.run == "" || m.finds == "" || m.rounds < 1 || len(m.paths) == 0 {
		t.Errorf("%s: the header lacks plants, test, finds or rounds, or there is no change", file)
	}
	return m
}

func all(t *testing.T) (list []*mutant) {
	t.Helper()
	files, err := filepath.Glob("*.patch")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		list = append(list, read(t, file))
	}
	return list
}

// plant applies the patch to copies of the files, and returns the overlay that has the
// compiler read these instead.
func (m *mutant) plant(t *testing.T) (overlay string) {
	t.Helper()
	dir := t.TempDir()
	from, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	for _, path := range m.paths {
		text, err := os.ReadFile(filepath.Join(from, path))
		if err != nil {
			t.Fatalf("the patch does not apply: %v", err)
		}
		to := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(from, path)] = to
	}
	patch, err := filepath.Abs(m.file)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "git", "apply", patch)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the patch does not apply: %v\n%s", err, out)
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	overlay = filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return overlay
}

// hunt runs the test once with the fault planted, and reports whether it failed for it: a
// test that fails of something else has not found it.
func (m *mutant) hunt(t *testing.T, overlay string) bool {
	t.Helper()
	// Without -trimpath: some tests find their files by the paths of their sources.
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-timeout=9m", "-run", m.run, m.pkg)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay), "REDRIVE_PROOF_ROUNDS=", "REDRIVE_SEED=", "REDRIVE_UPDATE=", "REDRIVE_SHRINK=0")
	out, err := cmd.CombinedOutput()
	switch {
	case bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")):
		t.Fatalf("it cannot be built with the fault:\n%s", out)
	case bytes.Contains(out, []byte("no tests to run")):
		t.Fatalf("%s has no test %s", m.pkg, m.run)
	case err != nil && !bytes.Contains(out, []byte("FAIL")):
		t.Fatalf("%v\n%s", err, out)
	}
	found := err != nil && bytes.Contains(out, []byte(m.finds))
	if err != nil {
		t.Logf("%q found %t:\n%s", m.finds, found, out[:min(len(out), 2000)])
	}
	return found
}

// TestMutantsAreFound plants those that are marked for CI, and with REDRIVE_PROOF_ROUNDS
// all of them. -run TestMutantsAreFound/NAME plants one.
func TestMutantsAreFound(t *testing.T) {
	proof := os.Getenv("REDRIVE_PROOF_ROUNDS") != ""
	for _, m := range all(t) {
		t.Run(m.name, func(t *testing.T) {
			overlay := m.plant(t) // each must apply
			if !m.quick && !proof {
				t.SkipNow()
			}
			for round := range m.rounds {
				if m.hunt(t, overlay) {
					t.Logf("%s: found in round %d", m.name, round+1)
					return
				}
			}
			t.Errorf("%s survives %d rounds of %s in %s", m.plants, m.rounds, m.run, m.pkg)
		})
	}
}

// TestTableShowsTheMutants compares docs/guarantees.md with the patches.
// REDRIVE_UPDATE=1 writes it anew.
func TestTableShowsTheMutants(t *testing.T) {
	var table strings.Builder
	table.WriteString("| planted | in | found by | as | rounds at most | found in round |\n|---|---|---|---|---|---|\n")
	list := all(t)
	slices.SortFunc(list, func(a, b *mutant) int { return strings.Compare(a.name, b.name) })
	for _, m := range list {
		fmt.Fprintf(&table, "| %s | %s | `%s` of %s | %s | %d | %s |\n", m.plants, strings.Join(m.paths, ", "), strings.ReplaceAll(m.run, "|", "\\|"), strings.TrimPrefix(m.pkg, "./"), m.finds, m.rounds, m.found)
	}
	if len(list) < 15 {
		t.Errorf("%d mutants", len(list))
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
		t.Errorf("%s does not show the mutants as they are; write it anew: REDRIVE_UPDATE=1 go test ./test/mutants -run Table", page)
	}
}
