package sqlstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/redrive/redrive/driver"
)

// Where classes begin that are dear to read as wholes is kept in records, so that the
// first claim of a process does not read what another has read before. What is learned
// is worth as much as what a process has seen itself, and no more: the whole is looked
// at at once, beside the claims.
const (
	floorsSpace = "_floors"
	floorsEvery = 10 * time.Second // between two exchanges,
	floorsNew   = time.Second      // unless there is a new floor
	floorsKept  = 24 * time.Hour   // a floor that no process refreshes
	floorsPage  = 1000             // records that are read at a time
)

// sharedFloor is a floor in a record.
type sharedFloor struct {
	Part
	From time.Time
}

// record names the record of a part.
func (p part) record() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%s", p.queue, p.class, p.kinds))
	return hex.EncodeToString(sum[:16])
}

// Share exchanges floors with other processes until ctx ends. What fails is tried again
// the next time.
func (f *Floors) Share(ctx context.Context, s driver.Store) {
	last := time.Now()
	for {
		Sleep(ctx, floorsNew)
		if ctx.Err() != nil {
			return
		}
		if time.Since(last) < floorsEvery && !f.hasNews() {
			continue
		}
		last = time.Now()
		if f.Tell(ctx, s) == nil {
			_ = f.Learn(ctx, s)
		}
	}
}

// hasNews reports whether there is a floor that other processes know nothing of.
func (f *Floors) hasNews() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, at := range f.of {
		if at.published.IsZero() && !at.from.IsZero() {
			return true
		}
	}
	return false
}

// Learn takes in the floors that other processes have shared, of parts that have none.
func (f *Floors) Learn(ctx context.Context, s driver.Store) error {
	for after := ""; ; {
		list, err := s.ListRecords(ctx, floorsSpace, after, floorsPage)
		if err != nil {
			return err
		}
		for i := range list {
			var shared sharedFloor
			if json.Unmarshal(list[i].Value, &shared) == nil && !shared.From.IsZero() {
				f.learn(&shared)
			}
			after = list[i].Key
		}
		if len(list) < floorsPage {
			return nil
		}
	}
}

func (f *Floors) learn(shared *sharedFloor) {
	key := partOf(&driver.ClaimRequest{Queue: shared.Queue, Kinds: shared.Kinds, ExceptKinds: shared.ExceptKinds}, shared.Class)
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.of[key]
	if at == nil {
		at = f.add(key, shared.Part) // to be looked at at once
	}
	if at != nil && at.from.IsZero() {
		at.from, at.published = shared.From, shared.From
	}
}

// Tell writes the floors that have moved into records, and deletes those of parts that
// need none any more.
func (f *Floors) Tell(ctx context.Context, s driver.Store) error {
	writes, published, gone := f.news()
	if len(writes) == 0 {
		return nil
	}
	if _, err := s.Apply(ctx, driver.Batch{Relaxed: true, Records: writes}); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for at, from := range published {
		at.published = from
	}
	for _, key := range gone {
		delete(f.gone, key)
	}
	return nil
}

// news returns what is to be written, and what of it is known then.
func (f *Floors) news() (writes []driver.RecordWrite, published map[*floor]time.Time, gone []part) {
	f.mu.Lock()
	defer f.mu.Unlock()
	published = make(map[*floor]time.Time)
	for key, at := range f.of {
		delete(f.gone, key)
		if at.from.IsZero() || at.from.Equal(at.published) {
			continue
		}
		value, err := json.Marshal(sharedFloor{at.Part, at.from})
		if err != nil || len(value) > driver.MaxRecordSize {
			continue
		}
		writes = append(writes, driver.RecordWrite{
			Space: floorsSpace, Key: key.record(), Value: value, Version: driver.AnyVersion, Expires: floorsKept,
		})
		published[at] = at.from
	}
	for key := range f.gone {
		writes = append(writes, driver.RecordWrite{Space: floorsSpace, Key: key.record(), Version: driver.AnyVersion})
		gone = append(gone, key)
	}
	return writes, published, gone
}

// drop forgets a floor, also for other processes. mu is held.
func (f *Floors) drop(key part) {
	known := f.of[key] != nil && !f.of[key].published.IsZero()
	delete(f.of, key)
	if !known {
		return
	}
	if f.gone == nil {
		f.gone = make(map[part]struct{})
	}
	f.gone[key] = struct{}{}
}
