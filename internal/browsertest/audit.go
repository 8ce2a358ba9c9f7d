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

//go:embed browser.mjs
var prelude []byte

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
	Zoom       int      `json:"zoom,omitempty"` // how much larger all is in that window; 0: not
	Dir        string   `json:"dir,omitempty"`  // where pictures go; "": none are made
	// AnyAuthority lets the certificate of the server be a test's own.
	AnyAuthority bool `json:"anyAuthority,omitempty"`
}

// Finding is something that is wrong with a page.
type Finding struct {
	Page  string `json:"page"`
	Theme string `json:"theme"`
	Width int    `json:"width"`
	What  string `json:"what"`
}

// Run opens the pages and returns what is wrong with them: violations that axe finds, errors of
// the console and of the content policy, scripts that ran, dialogs, requests to other hosts, pages that are
// wider than the window, text that is cut off, targets below 24 px.
func (a Audit) Run(t *testing.T) (found []Finding) {
	t.Helper()
	Script(t, audit, a, &found)
	return found
}

// Script runs a script for Node with an input, as JSON, and reads its output. It finds there: ask, the
// input, with base, the only host that pages may ask; browser, a Chromium of playwright-core; and watch, which
// opens a page that is looked after. Without Node, Chromium or the packages that `make deps` puts into
// bin/browser the test is skipped; in CI it fails.
func Script(t *testing.T, script []byte, input, output any) {
	t.Helper()
	ask := map[string]any{"modules": modules(t), "chromium": need(t, "chromium", "chromium")}
	node := need(t, "node", "nodejs")
	given, err := json.Marshal(input)
	if err == nil {
		err = json.Unmarshal(given, &ask)
	}
	if err == nil {
		given, err = json.Marshal(ask)
	}
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "script.mjs")
	if err := os.WriteFile(file, append(bytes.Clone(prelude), script...), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, file) //nolint:gosec // it is a test's own
	cmd.Stdin = bytes.NewReader(given)
	cmd.Env = append(os.Environ(), "NO_PROXY=*")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.Bytes())
	}
	if err := json.Unmarshal(out, output); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
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
