package main

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/redrive/redrive/internal/daemon"
	"github.com/redrive/redrive/internal/daemon/config"
)

// configCmd looks at configuration files.
type configCmd struct {
	Check configCheckCmd `cmd:"" help:"Check a configuration file."`
}

type configCheckCmd struct {
	File    string `arg:"" optional:"" default:"redrive.yaml" type:"path" help:"The file (default redrive.yaml)."`
	Connect bool   `help:"Also try whether the servers of store and sources answer."`
}

func (*configCheckCmd) Help() string {
	return examples("redrive config check", "check redrive.yaml", "redrive config check /etc/redrive.yaml --json", "every error as JSON",
		"redrive config check --connect", "and whether the servers answer")
}

// fileError is one error of a file, for --json.
type fileError struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Path   string `json:"path,omitempty"`
	What   string `json:"what"`
	Hint   string `json:"hint,omitempty"`
}

// Run reports every error of the file.
func (c *configCheckCmd) Run(ctx context.Context, t *terminal) error {
	cfg, err := config.Load(c.File)
	if err == nil {
		err = daemon.Check(ctx, cfg, c.Connect)
	}
	if t.json {
		return c.json(t, cfg, err)
	}
	var list config.Errors
	if errors.As(err, &list) {
		t.printError(err)
		t.note("\n%d %s in %s", len(list), plural(len(list), "error", "errors"), clean(c.File))
		return errFailed
	}
	if err != nil {
		return err
	}
	t.printf("%s is right: %d %s", clean(c.File), len(cfg.Queues), plural(len(cfg.Queues), "queue", "queues"))
	for i, name := range slices.Sorted(maps.Keys(cfg.Queues)) {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		t.printf("%s%s", sep, name)
	}
	t.printf("\n")
	for _, advice := range cfg.Advice() {
		t.note("%s", advice)
	}
	return nil
}

func (c *configCheckCmd) json(t *terminal, cfg *config.Config, err error) error {
	all, advice := []fileError{}, []string{}
	var list config.Errors
	if err != nil && !errors.As(err, &list) {
		return err
	}
	for _, e := range list {
		all = append(all, fileError{File: e.File, Line: e.Line, Column: e.Column, Path: e.Path, What: e.What, Hint: e.Hint})
	}
	if err == nil {
		advice = append(advice, cfg.Advice()...)
	}
	if werr := t.writeJSON(map[string]any{"file": c.File, "ok": err == nil, "errors": all, "advice": advice}); werr != nil {
		return werr
	}
	if err != nil {
		return errFailed
	}
	return nil
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
