package main

import (
	"runtime"
	"runtime/debug"
)

// release is set by the linker for releases: -X main.release=v1.2.3.
var release string

// build describes the program.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from a tree with changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func describe() build {
	b := build{Version: release, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok && b.Version == "" {
		b.Version = info.Main.Version
	}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "devel"
	}
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func version() string { return describe().Version }

type versionCmd struct{}

// Run prints what this program is.
func (*versionCmd) Run(t *terminal) error {
	b := describe()
	if t.json {
		return t.writeJSON(b)
	}
	t.printf("redrive %s", b.Version)
	if b.Commit != "" {
		t.printf(" (%.12s, %s)", b.Commit, b.Time)
	}
	t.printf(" %s %s\n", b.Go, b.Platform)
	return nil
}
