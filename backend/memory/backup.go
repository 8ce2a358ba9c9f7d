package memory

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"slices"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// backupLine is one line of a backup; one of its fields is set.
type backupLine struct {
	Queue  *backupQueue   `json:",omitempty"`
	Entry  *redrive.Entry `json:",omitempty"`
	Record *driver.Record `json:",omitempty"`
}

type backupQueue struct {
	Name     string
	Settings driver.QueueSettings
	Ledger   driver.Ledger
}

// Backup implements driver.Store: a line of JSON for each queue, each of its entries
// and each record. It is for looking at; there is nothing that reads it back.
func (s *Store) Backup(ctx context.Context, w io.Writer) error {
	lines, err := s.backup(ctx)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(w)
	for i := range lines {
		if err := enc.Encode(&lines[i]); err != nil {
			return &redrive.Error{Op: "backup", Err: err}
		}
	}
	return nil
}

// backup copies everything in one step, so that a slow writer holds nobody up.
func (s *Store) backup(ctx context.Context) ([]backupLine, error) {
	if err := s.enterExclusively(ctx); err != nil {
		return nil, err
	}
	defer s.step.Unlock()
	now := s.now()
	var lines []backupLine
	for _, name := range s.names() {
		q := s.lookup(name)
		q.refresh(now)
		lines = append(lines, backupLine{Queue: &backupQueue{name, q.settings, q.ledger}})
		for _, list := range []*order{&q.waiting, &q.dead} {
			for it := range list.after(0) {
				e := it.entry(true)
				lines = append(lines, backupLine{Entry: &e})
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.spaces)) {
		p := s.spaces[name]
		for _, key := range p.keys {
			r := p.records[key]
			lines = append(lines, backupLine{Record: &r})
		}
	}
	return lines, nil
}
