package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Marks of claims for a source that does not keep them itself ([driver.Caps.RecordsClaims]):
// before the first handler of a claim runs, the ids of the claim stand in a record of
// the store, so that a process that finds a message again after a crash knows that it
// was in flight.
//
// A claim has a record of its own, which is written over by a later claim once all of
// its messages are settled: a mark may so name messages that are settled, which is
// harmless, as only what a source delivers a second time is looked up.
const (
	markSpace = "claims"
	// markKeep is how long the marks of a process are kept that did not come to an
	// orderly end: a crash is forgotten if nothing consumed the queue for so long.
	markKeep  = 30 * 24 * time.Hour
	markIDs   = 400 // a record: 400 ids of 128 bytes stay below MaxRecordSize
	markPage  = 100
	markGrace = 5 * time.Second // to take marks away at the end
)

// claimRecords are those of this process at one source.
type claimRecords struct {
	store    driver.Store
	instance string

	mu   sync.Mutex
	all  []*claimRecord
	free []*claimRecord
}

// claimRecord is one record.
type claimRecord struct {
	key  string
	ids  []string // as written
	held int      // of them not settled yet
}

// set makes the marks of a claim's messages durable and returns them, one a message.
func (m *claimRecords) set(ctx context.Context, queue string, ds []redrive.Delivery) ([]*claimRecord, error) {
	of := make([]*claimRecord, 0, len(ds))
	var writes []driver.RecordWrite
	var taken []*claimRecord
	m.mu.Lock()
	for chunk := range slices.Chunk(ds, markIDs) {
		mark := m.takeLocked(queue)
		taken = append(taken, mark)
		mark.ids, mark.held = mark.ids[:0], len(chunk)
		for i := range chunk {
			mark.ids = append(mark.ids, chunk[i].ID)
			of = append(of, mark)
		}
		writes = append(writes, mark.write())
	}
	m.mu.Unlock()
	_, err := m.store.Apply(ctx, driver.Batch{Records: writes, Relaxed: true})
	if err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, mark := range taken {
			mark.held = 0
			m.free = append(m.free, mark)
		}
		return nil, err
	}
	return of, nil
}

func (m *claimRecords) takeLocked(queue string) *claimRecord {
	prefix := markPrefix(queue)
	if i := slices.IndexFunc(m.free, func(c *claimRecord) bool { return strings.HasPrefix(c.key, prefix) }); i >= 0 {
		mark := m.free[i]
		m.free = slices.Delete(m.free, i, i+1)
		return mark
	}
	mark := &claimRecord{key: fmt.Sprintf("%s%s/%d", prefix, m.instance, len(m.all))}
	m.all = append(m.all, mark)
	return mark
}

func markPrefix(queue string) string { return queue + "/" }

func (c *claimRecord) write() driver.RecordWrite {
	return driver.RecordWrite{Space: markSpace, Key: c.key, Value: []byte(strings.Join(c.ids, "\n")), Version: driver.AnyVersion, Expires: markKeep}
}

// settled frees the mark of one message.
func (m *claimRecords) settled(mark *claimRecord) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mark.held--; mark.held == 0 {
		m.free = append(m.free, mark)
	}
}

// unset takes messages out of their marks before they are given back to the source,
// so that nobody who gets them next takes them for the victims of a crash. An error
// costs no more than that.
func (m *claimRecords) unset(ctx context.Context, ids map[*claimRecord][]string) {
	if len(ids) == 0 {
		return
	}
	var writes []driver.RecordWrite
	m.mu.Lock()
	for mark, gone := range ids {
		mark.ids = slices.DeleteFunc(mark.ids, func(id string) bool { return slices.Contains(gone, id) })
		writes = append(writes, mark.write())
	}
	m.mu.Unlock()
	_, _ = m.store.Apply(ctx, driver.Batch{Records: writes, Relaxed: true})
}

// clear removes the marks whose messages are all settled, at the end of the engine.
func (m *claimRecords) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	writes := make([]driver.RecordWrite, len(m.free))
	for i, mark := range m.free {
		writes[i] = driver.RecordWrite{Space: markSpace, Key: mark.key, Version: driver.AnyVersion}
	}
	ctx, cancel := context.WithTimeout(context.Background(), markGrace)
	defer cancel()
	if len(writes) > 0 {
		_, _ = m.store.Apply(ctx, driver.Batch{Records: writes, Relaxed: true}) // else they expire
	}
}

// named returns the ids of a queue that stand in marks of other processes.
func (m *claimRecords) named(ctx context.Context, queue string) (map[string]struct{}, error) {
	prefix := markPrefix(queue)
	ours := prefix + m.instance + "/"
	named := make(map[string]struct{})
	for after := prefix; ; {
		records, err := m.store.ListRecords(ctx, markSpace, after, markPage)
		if err != nil {
			return nil, err
		}
		for i := range records {
			r := &records[i]
			if !strings.HasPrefix(r.Key, prefix) {
				return named, nil
			}
			if !strings.HasPrefix(r.Key, ours) {
				for id := range strings.SplitSeq(string(r.Value), "\n") {
					named[id] = struct{}{}
				}
			}
			after = r.Key
		}
		if len(records) < markPage {
			return named, nil
		}
	}
}
