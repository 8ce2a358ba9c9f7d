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

// Claim records of a source that does not keep them itself ([driver.Caps.RecordsClaims]):
// before the first handler of a claim runs, the ids of the claim stand in a record of
// the store, so that a process that finds a message again after a crash knows that it
// was in flight.
//
// A claim has a record of its own, which is written over by a later claim once all of
// its messages are settled: a record may so name messages that are settled, which is
// harmless, as only what a source delivers a second time is looked up.
const (
	claimSpace = "claims"
	// claimKeep is how long the records of a process are kept that did not come to an
	// orderly end: a crash is forgotten if nothing consumed the queue for so long.
	claimKeep  = 30 * 24 * time.Hour
	claimIDs   = 400 // a record: 400 ids of 128 bytes stay below MaxRecordSize
	claimPage  = 100
	claimGrace = 5 * time.Second // to remove records at the end
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

// set makes the records of a claim's messages durable and returns them, one a message.
func (m *claimRecords) set(ctx context.Context, queue string, ds []redrive.Delivery) ([]*claimRecord, error) {
	of := make([]*claimRecord, 0, len(ds))
	var writes []driver.RecordWrite
	var taken []*claimRecord
	m.mu.Lock()
	for chunk := range slices.Chunk(ds, claimIDs) {
		record := m.takeLocked(queue)
		taken = append(taken, record)
		record.ids, record.held = record.ids[:0], len(chunk)
		for i := range chunk {
			record.ids = append(record.ids, chunk[i].ID)
			of = append(of, record)
		}
		writes = append(writes, record.write())
	}
	m.mu.Unlock()
	_, err := m.store.Apply(ctx, driver.Batch{Records: writes, Relaxed: true})
	if err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, record := range taken {
			record.held = 0
			m.free = append(m.free, record)
		}
		return nil, err
	}
	return of, nil
}

func (m *claimRecords) takeLocked(queue string) *claimRecord {
	prefix := claimPrefix(queue)
	if i := slices.IndexFunc(m.free, func(c *claimRecord) bool { return strings.HasPrefix(c.key, prefix) }); i >= 0 {
		record := m.free[i]
		m.free = slices.Delete(m.free, i, i+1)
		return record
	}
	record := &claimRecord{key: fmt.Sprintf("%s%s/%d", prefix, m.instance, len(m.all))}
	m.all = append(m.all, record)
	return record
}

func claimPrefix(queue string) string { return queue + "/" }

func (c *claimRecord) write() driver.RecordWrite {
	return driver.RecordWrite{Space: claimSpace, Key: c.key, Value: []byte(strings.Join(c.ids, "\n")), Version: driver.AnyVersion, Expires: claimKeep}
}

// settled frees the record of one message.
func (m *claimRecords) settled(record *claimRecord) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if record.held--; record.held == 0 {
		m.free = append(m.free, record)
	}
}

// unset takes messages out of their records before they are given back to the source,
// so that nobody who gets them next takes them for the victims of a crash. An error
// costs no more than that.
func (m *claimRecords) unset(ctx context.Context, ids map[*claimRecord][]string) {
	if len(ids) == 0 {
		return
	}
	var writes []driver.RecordWrite
	m.mu.Lock()
	for record, gone := range ids {
		record.ids = slices.DeleteFunc(record.ids, func(id string) bool { return slices.Contains(gone, id) })
		writes = append(writes, record.write())
	}
	m.mu.Unlock()
	_, _ = m.store.Apply(ctx, driver.Batch{Records: writes, Relaxed: true})
}

// clear removes the records whose messages are all settled, at the end of the engine.
func (m *claimRecords) clear() {
	m.mu.Lock()
	defer m.mu.Unlock()
	writes := make([]driver.RecordWrite, len(m.free))
	for i, record := range m.free {
		writes[i] = driver.RecordWrite{Space: claimSpace, Key: record.key, Version: driver.AnyVersion}
	}
	ctx, cancel := context.WithTimeout(context.Background(), claimGrace)
	defer cancel()
	if len(writes) > 0 {
		_, _ = m.store.Apply(ctx, driver.Batch{Records: writes, Relaxed: true}) // else they expire
	}
}

// named returns the ids of a queue that stand in records of other processes.
func (m *claimRecords) named(ctx context.Context, queue string) (map[string]struct{}, error) {
	prefix := claimPrefix(queue)
	ours := prefix + m.instance + "/"
	named := make(map[string]struct{})
	for after := prefix; ; {
		records, err := m.store.ListRecords(ctx, claimSpace, after, claimPage)
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
		if len(records) < claimPage {
			return named, nil
		}
	}
}
