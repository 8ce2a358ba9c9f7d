package browsertest

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed audit.mjs
var audit []byte

// Page is a page that is opened.
type Page struct {
	Name   string `json:"name"`
	Path   string `json:"path"`
	Status int    `json:"status,omitempty"` // that it answers; 0: 200
	Open   bool   `json:"open,omitempty"`   // with all that is folded
}

// Cookie is a cookie that the browser has from the start.
type Cookie struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	URL   string `json:"url"`
}

// Audit says which pages are opened, and how.
type Audit struct {
	Base       string   `json:"base"`
	Pages      []Page   `json:"pages"`
	Widths     []int    `json:"widths"` // of the window, in pixels
	Themes     []string `json:"themes"` // light, dark
	JavaScript bool     `json:"javascript"`
	Cookies    []Cookie `json:"cookies,omitempty"`
	Dir        string   `json:"dir,omitempty"` // where pictures go; "": none are made
}

// Finding is something that is wrong with a page.
type Finding struct {
	Page  string `json:"page"`
	Theme string `json:"theme"`
	Width int    `json:"width"`
	What  string `json:"what"`
}

// Run opens the pages and returns what is wrong with them: violations that axe finds, errors of
// the console and of the content policy, dialogs, requests to other hosts, pages that are wider than
// the window, targets below 24 px. Without Node, Chromium or the packages that `make deps` puts
// into bin/browser the test is skipped; in CI it fails.
func (a Audit) Run(t *testing.T) []Finding {
	t.Helper()
	modules := modules(t)
	node, chromium := need(t, "node", "nodejs"), need(t, "chromium", "chromium")
	input, err := json.Marshal(struct {
		Audit
		Modules  string `json:"modules"`
		Chromium string `json:"chromium"`
	}{a, modules, chromium})
	if err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(t.TempDir(), "audit.mjs")
	if err := os.WriteFile(script, audit, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, script) //nolint:gosec // it is our own
	cmd.Stdin = bytes.NewReader(input)
	cmd.Env = append(os.Environ(), "NO_PROXY=*")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.Bytes())
	}
	var found []Finding
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return found
}

// modules returns the folder of the packages, in the tree that the tests run in.
func modules(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
	}
	all := filepath.Join(dir, "bin", "browser", "node_modules")
	if _, err := os.Stat(filepath.Join(all, "playwright-core")); err != nil {
		missing(t, "playwright-core", "make deps")
	}
	return all
}

// missing skips the test; in CI it fails.
func missing(t *testing.T, what, hint string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what + " is missing")
	}
	t.Skip(what + " is missing: " + hint)
}

// need returns the path of a program.
func need(t *testing.T, name, pkg string) string {
	t.Helper()
	program, err := exec.LookPath(name)
	if err != nil {
		missing(t, name, "install the Debian package "+pkg)
	}
	return program
}
