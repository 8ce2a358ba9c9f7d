// Package rooms checks the layout of the tree: docs/design.md shows every package with
// its sentence and its imports, as they are.
package rooms

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	module = "github.com/redrive/redrive"
	page   = "../../docs/design.md"
	begin  = "<!-- packages: written by go test ./test/rooms -->\n"
	end    = "<!-- end of packages -->\n"
)

type pkg struct {
	ImportPath string
	Name       string
	Doc        string
	Imports    []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Name,Doc,Imports", module+"/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// ours returns the imports that belong to the module, without its name.
func ours(p *pkg) (list []string) {
	for _, i := range p.Imports {
		if rest, ok := strings.CutPrefix(i, module); ok {
			list = append(list, short(rest))
		}
	}
	slices.Sort(list)
	return list
}

func short(path string) string {
	if path == "" {
		return "redrive"
	}
	return strings.TrimPrefix(path, "/")
}

// TestDesignShowsThePackages prints each package with its sentence and its imports, and
// compares that with docs/design.md. REDRIVE_UPDATE=1 writes it anew.
func TestDesignShowsThePackages(t *testing.T) {
	var table strings.Builder
	table.WriteString("| package | what it is | imports of ours |\n|---|---|---|\n")
	for _, p := range packages(t) {
		name := short(strings.TrimPrefix(p.ImportPath, module))
		if strings.HasPrefix(name, "examples/") || strings.HasPrefix(name, "test/") {
			continue
		}
		if p.Doc == "" && len(p.Imports) > 0 {
			t.Errorf("package %s has no sentence", name)
		}
		doc := strings.TrimPrefix(strings.TrimPrefix(p.Doc, "Package "+p.Name+" "), "Command "+p.Name+" ")
		fmt.Fprintf(&table, "| %s | %s | %s |\n", name, strings.ReplaceAll(doc, "|", "\\|"), strings.Join(ours(&p), " "))
	}
	t.Log("\n" + table.String())
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	head, rest, ok := strings.Cut(text, begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the packages", page)
	}
	want := head + begin + table.String() + end + tail
	if os.Getenv("REDRIVE_UPDATE") != "" {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != text {
		t.Errorf("%s does not show the packages as they are; write it anew: REDRIVE_UPDATE=1 go test ./test/rooms", page)
	}
}

// TestNothingIsLoggedInSilence: what has no logger of its own logs by slog.Default. Only
// programs and redrivetest, whose caller reads the outcome, may discard.
func TestNothingIsLoggedInSilence(t *testing.T) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := filepath.ToSlash(strings.TrimPrefix(path, root+"/")); d.IsDir() {
			if slices.Contains([]string{"bench", "bin", "cmd", "examples", "redrivetest", "test", "tools", ".git"}, name) {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte("slog.DiscardHandler")) {
			t.Errorf("%s discards what is logged", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLibrariesDoNotKnowTheDaemon checks the walls that a linter's list of files would
// let a new package slip through.
func TestLibrariesDoNotKnowTheDaemon(t *testing.T) {
	for _, p := range packages(t) {
		name := short(strings.TrimPrefix(p.ImportPath, module))
		switch first, _, _ := strings.Cut(name, "/"); first {
		case "cmd", "test", "bench", "examples", "server":
			continue
		case "internal":
			if strings.HasPrefix(name, "internal/daemon") || name == "internal/wire" {
				continue
			}
		}
		for _, i := range ours(&p) {
			if strings.HasPrefix(i, "internal/daemon") || i == "internal/wire" || strings.HasPrefix(i, "server") {
				t.Errorf("%s imports %s: a library does not know the daemon or its wire format", name, i)
			}
			if name == "redrive" && i != "internal/text" && i != "internal/handling" && i != "internal/errname" {
				t.Errorf("the root package imports %s", i)
			}
		}
	}
}

// TestHistoriesDoNotKnowTheEngine: what judges the promises must not share code with what
// keeps them.
func TestHistoriesDoNotKnowTheEngine(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-test", module+"/test/history").Output()
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		for _, not := range []string{"/engine", "/backend/", "/plan", "/internal/daemon", "/internal/sqlstore"} {
			if strings.HasPrefix(path, module+not) {
				t.Errorf("test/history has %s among its dependencies", path)
			}
		}
	}
}
