package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// takenSpace has, under "PLAN/" and an id of its own, what was taken of a plan: messages that it redrove
// and that another plan, a person or retention changed before they were delivered. Nothing else tells
// them from what was delivered once they are gone.
const takenSpace = "plan-taken"

// takenKeep is longer than a plan is kept that runs for a while yet.
const takenKeep = 2 * planKeep

// taken is what was taken of a plan.
type taken struct {
	Count int64    `json:"n,omitempty"` // of which the names are not kept
	Names []string `json:"m,omitempty"` // the others, as "queue/id"
}

// takenOf returns what was taken of a plan. A message that two tried to change counts once.
func (p *Plans) takenOf(ctx context.Context, id string) (names map[redrive.Ref]bool, n int64, err error) {
	const page = 100
	names = make(map[redrive.Ref]bool)
	for after := id + "/"; ; {
		records, err := p.store.ListRecords(ctx, takenSpace, after, page)
		if err != nil {
			return nil, 0, fmt.Errorf("plan %s: what others took of it: %w", id, err)
		}
		for i := range records {
			if !strings.HasPrefix(records[i].Key, id+"/") {
				return names, n + int64(len(names)), nil
			}
			var t taken
			if err := json.Unmarshal(records[i].Value, &t); err != nil {
				return nil, 0, &redrive.Error{Op: "plan", ID: id, Err: fmt.Errorf("%w: record of what others took: %w", redrive.ErrCorrupt, err)}
			}
			n += t.Count
			for _, name := range t.Names {
				names[parseName(name)] = true
			}
			after = records[i].Key
		}
		if len(records) < page {
			return names, n + int64(len(names)), nil
		}
	}
}

// takenWrites returns the records of messages that bore the ids of other plans, by these.
func takenWrites(ctx context.Context, store driver.Store, of map[string][]string, named bool) ([]driver.RecordWrite, error) {
	var writes []driver.RecordWrite
	for id, names := range of {
		r, err := store.GetRecord(ctx, planSpace, id)
		if errors.Is(err, redrive.ErrNotFound) {
			continue // nobody asks for it any more
		}
		if err != nil {
			return nil, fmt.Errorf("plan %s: %w", id, err)
		}
		if plan, err := decodePlan(&r); err != nil || !plan.Lives() {
			continue // it delivers nothing, or cannot be read
		}
		parts := []taken{{Count: int64(len(names))}}
		if named {
			parts = parts[:0]
			for part := range slices.Chunk(names, planResultSlice) {
				parts = append(parts, taken{Names: part})
			}
		}
		for i := range parts {
			value, err := json.Marshal(&parts[i])
			if err != nil {
				return nil, fmt.Errorf("plan %s: %w", id, err)
			}
			writes = append(writes, driver.RecordWrite{Space: takenSpace, Key: id + "/" + redrive.NewID(), Value: value, Version: driver.AnyVersion, Expires: takenKeep})
		}
	}
	return writes, nil
}

// takes returns what the plan took of others with a batch.
func (p *Plan) takes(batch []planResult) map[string][]string {
	of := make(map[string][]string)
	for i := range batch {
		if r := &batch[i]; r.err == nil && r.From != "" && r.From != p.ID {
			of[r.From] = append(of[r.From], r.Name)
		}
	}
	return of
}

// NoteTaken notes that messages were redriven, dropped or archived without a plan, so that the plans that had
// redriven them do not count them as delivered. The entries are as they were before.
func NoteTaken(ctx context.Context, store driver.Store, entries ...redrive.Entry) error {
	of := make(map[string][]string)
	for i := range entries {
		if e := &entries[i]; e.Plan != "" {
			of[e.Plan] = append(of[e.Plan], e.Ref().String())
		}
	}
	writes, err := takenWrites(ctx, store, of, true)
	if err != nil || len(writes) == 0 {
		return err
	}
	_, err = store.Apply(ctx, driver.Batch{Records: writes})
	return err
}
