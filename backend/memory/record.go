package memory

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// space holds the records of one space, with their keys in order.
type space struct {
	keys    []string
	records map[string]driver.Record
}

func (p *space) set(r driver.Record) {
	if i, found := slices.BinarySearch(p.keys, r.Key); !found {
		p.keys = slices.Insert(p.keys, i, r.Key)
	}
	p.records[r.Key] = r
}

func (p *space) remove(key string) {
	if i, found := slices.BinarySearch(p.keys, key); found {
		p.keys = slices.Delete(p.keys, i, i+1)
	}
	delete(p.records, key)
}

// expired reports that a record is not there any more.
func expired(r *driver.Record, now time.Time) bool {
	return !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt)
}

// record returns a record under the records' lock.
func (s *Store) record(name, key string, now time.Time) (driver.Record, error) {
	if p := s.spaces[name]; p != nil {
		if r, ok := p.records[key]; ok && !expired(&r, now) {
			return r, nil
		}
	}
	return driver.Record{}, redrive.ErrNotFound
}

// writeRecords carries writes out whose versions were checked in the same step.
func (s *Store) writeRecords(writes []driver.RecordWrite, now time.Time) {
	s.recordsMu.Lock()
	defer s.recordsMu.Unlock()
	for i := range writes {
		w := &writes[i]
		p := s.spaces[w.Space]
		if p == nil {
			p = &space{records: make(map[string]driver.Record)}
			s.spaces[w.Space] = p
		}
		if w.Value == nil {
			p.remove(w.Key)
			continue
		}
		s.recordVersion++ // one for all records: so it rises also across a deletion
		r := driver.Record{Space: w.Space, Key: w.Key, Value: bytes.Clone(w.Value), Version: s.recordVersion}
		if w.Expires > 0 {
			r.ExpiresAt = now.Add(w.Expires)
		}
		p.set(r)
	}
}

// GetRecord implements driver.Store.
func (s *Store) GetRecord(ctx context.Context, space, key string) (driver.Record, error) {
	if err := s.enter(ctx); err != nil {
		return driver.Record{}, err
	}
	defer s.step.RUnlock()
	s.recordsMu.Lock()
	defer s.recordsMu.Unlock()
	r, err := s.record(space, key, s.clock())
	r.Value = bytes.Clone(r.Value)
	return r, err
}

// ListRecords implements driver.Store.
func (s *Store) ListRecords(ctx context.Context, space, after string, limit int) ([]driver.Record, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.step.RUnlock()
	s.recordsMu.Lock()
	defer s.recordsMu.Unlock()
	p := s.spaces[space]
	if p == nil {
		return nil, nil
	}
	if limit <= 0 {
		limit = redrive.DefaultPage
	}
	i, found := slices.BinarySearch(p.keys, after)
	if found {
		i++
	}
	now := s.clock()
	var list []driver.Record
	for ; i < len(p.keys) && len(list) < limit; i++ {
		if r := p.records[p.keys[i]]; !expired(&r, now) {
			r.Value = bytes.Clone(r.Value)
			list = append(list, r)
		}
	}
	return list, nil
}

// trimRecords removes expired records, at most limit.
func (s *Store) trimRecords(limit int, now time.Time) (n int) {
	s.recordsMu.Lock()
	defer s.recordsMu.Unlock()
	for _, p := range s.spaces {
		for _, key := range slices.Clone(p.keys) {
			if n == limit {
				return n
			}
			if r := p.records[key]; expired(&r, now) {
				p.remove(key)
				n++
			}
		}
	}
	return n
}
