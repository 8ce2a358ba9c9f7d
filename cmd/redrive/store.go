package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/internal/daemon/config"
)

// storeCmd looks after the file of a store.
type storeCmd struct {
	Check   storeCheckCmd   `cmd:"" help:"Look for damage in a store that no daemon has open."`
	Salvage storeSalvageCmd `cmd:"" help:"Copy what can be read of a damaged store into a new one."`
}

// storeDir is the folder of a store.
type storeDir struct {
	Data string `default:"${data}" type:"path" placeholder:"DIR" help:"The store (default ./redrive-data)."`
}

type storeCheckCmd struct {
	storeDir `embed:""`
}

func (*storeCheckCmd) Help() string {
	return examples("redrive store check --data ./redrive-data", "every page and every message")
}

// storeReport is what a check or a salvage found, for --json.
type storeReport struct {
	OK       bool     `json:"ok"`
	Waiting  int64    `json:"waiting"`
	Dead     int64    `json:"dead"`
	Records  int64    `json:"records"`
	Problems []string `json:"problems"`
	Lost     []string `json:"lost"`
}

// Run checks the store.
func (c *storeCheckCmd) Run(ctx context.Context, t *terminal) error {
	p := &progress{t: t}
	r, err := sqlite.Check(ctx, c.Data, func(n int64) { p.update("%s messages looked at", grouped(n)) })
	p.clear()
	if err != nil {
		return err
	}
	return printReport(t, &r, "sound", fmt.Sprintf("redrive store salvage --data %s --to DIR", c.Data))
}

type storeSalvageCmd struct {
	storeDir `embed:""`
	To       string `required:"" type:"path" placeholder:"DIR" help:"The new store."`
}

func (*storeSalvageCmd) Help() string {
	return examples("redrive store salvage --data ./redrive-data --to ./rescued", "then start the daemon with --data ./rescued")
}

// Run copies what can be read.
func (c *storeSalvageCmd) Run(ctx context.Context, t *terminal) error {
	p := &progress{t: t}
	r, err := sqlite.Salvage(ctx, c.Data, c.To, func(n int64) { p.update("%s messages copied", grouped(n)) })
	p.clear()
	if err != nil {
		return err
	}
	return printReport(t, &r, "copied", "")
}

// printReport prints what was found and fails if something is wrong.
func printReport(t *terminal, r *sqlite.Report, what, then string) error {
	sound := len(r.Problems) == 0 && len(r.Lost) == 0
	if t.json {
		out := storeReport{OK: sound, Waiting: r.Waiting, Dead: r.Dead, Records: r.Records, Problems: r.Problems, Lost: r.Lost}
		if err := t.writeJSON(out); err != nil {
			return err
		}
	} else {
		for _, text := range r.Problems {
			t.printf("%s %s\n", t.paint(bad, "damaged"), clean(text))
		}
		for _, id := range r.Lost {
			t.printf("%s %s\n", t.paint(bad, "lost"), clean(id))
		}
		t.printf("%s waiting and %s dead %s %s, %s %s\n", grouped(r.Waiting), grouped(r.Dead), plural(int(r.Waiting+r.Dead), "message", "messages"), what,
			grouped(r.Records), plural(int(r.Records), "record", "records"))
	}
	if sound {
		return nil
	}
	if then != "" {
		t.note("rescue what can be read with: %s", clean(then))
	}
	return errFailed
}

// defaultData is where a store is if nothing is said.
var defaultData = filepath.Clean(config.DefaultData)
