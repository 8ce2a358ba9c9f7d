package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Every command has a page, every page names what --help does, and the program that shows
// pages finds nothing wrong in them.
func TestManualPages(t *testing.T) {
	b := newBench(t)
	dir := t.TempDir()
	if code, _, stderr := b.run("__man", dir); code != exitOK {
		t.Fatalf("%d %s", code, stderr)
	}
	_, help, _ := b.run("--help")
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) < 20 {
		t.Fatalf("%v, %v", pages, err)
	}
	for _, path := range pages {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".1")
		if command, is := strings.CutPrefix(name, "redrive-"); is && !strings.Contains(help, "\n  "+command) {
			t.Errorf("a page of %q, which the help does not name", command)
		}
		if strings.Contains(string(text), "__complete") || !strings.Contains(string(text), ".SH SYNOPSIS\n.B redrive") {
			t.Errorf("%s:\n%s", name, text)
		}
		groff, err := exec.LookPath("groff")
		if err != nil {
			continue
		}
		if out, err := exec.Command(groff, "-man", "-Tutf8", "-ww", "-z", path).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
	dead, err := os.ReadFile(filepath.Join(dir, "redrive-dead.1"))
	if err != nil || !strings.Contains(string(dead), "REDRIVE DEAD REPAIR") || !strings.Contains(string(dead), `\-\-dry\-run`) {
		t.Errorf("the commands below dead: %v\n%s", err, dead)
	}
}

func TestHelpAndVersion(t *testing.T) {
	b := newBench(t)
	_, want, _ := b.run("dead", "redrive", "--help")
	if code, out, _ := b.run("help", "dead", "redrive"); code != exitOK || out != want || out == "" {
		t.Errorf("%d %s", code, out)
	}
	if code, _, stderr := b.run("help", "nonsense"); code != exitUsage || !strings.Contains(stderr, "nonsense") {
		t.Errorf("%d %s", code, stderr)
	}
	if code, out, _ := b.run("--version"); code != exitOK || strings.TrimSpace(out) != version() {
		t.Errorf("%d %s", code, out)
	}
}

// The file of the working directory is found, with flags as well, and not one that a flag replaces.
func TestServeFindsItsConfiguration(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("redrive.yaml", []byte("queues: {}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []serveCmd{{}, {Data: "x"}, {Deliver: []string{"a=b"}}} {
		if err := c.find(); err != nil || filepath.Base(c.Config) != "redrive.yaml" || !filepath.IsAbs(c.Config) {
			t.Errorf("%q, %v", c.Config, err)
		}
	}
	named := serveCmd{Config: "other"}
	if err := named.find(); err != nil || named.Config != "other" {
		t.Errorf("%q, %v", named.Config, err)
	}
	t.Chdir(t.TempDir())
	none := serveCmd{Deliver: []string{"a=b"}}
	if err := none.find(); err != nil || none.Config != "" {
		t.Errorf("%q, %v", none.Config, err)
	}
}
