package redisstream

import (
	"context"
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// double reads a number as struct.pack('<d') wrote it.
func double(raw string) int64 {
	return int64(math.Float64frombits(binary.LittleEndian.Uint64([]byte(raw[:8]))))
}

// lookup returns the messages of some names, nil where there is none, and what is
// remembered of their ids.
func (s *Store) lookup(ctx context.Context, refs []redrive.Ref) (found []*item, memories []string, err error) {
	if s.parts != nil {
		return s.lookupParts(ctx, refs)
	}
	found, memories = make([]*item, len(refs)), make([]string, len(refs))
	byQueue := make(map[string][]int)
	for i := range refs {
		byQueue[refs[i].Queue] = append(byQueue[refs[i].Queue], i)
	}
	for name, which := range byQueue {
		q := s.queue(name)
		for len(which) > 0 {
			n := min(len(which), stepPage)
			if err := s.lookupPage(ctx, q, refs, which[:n], found, memories); err != nil {
				return nil, nil, err
			}
			which = which[n:]
		}
	}
	return found, memories, nil
}

func (s *Store) lookupPage(ctx context.Context, q *queue, refs []redrive.Ref, which []int, found []*item, memories []string) error {
	args := make([]any, 0, 2*len(which))
	for _, i := range which {
		args = append(args, refs[i].ID, q.entry(refs[i].ID))
	}
	got, err := s.conn.Run(ctx, scriptGet, s.keys(q), args...)
	if err != nil {
		return s.fail(err)
	}
	list := items(got)
	now := number(at(list, 0))
	for n, i := range which {
		v := items(at(list, n+1))
		memories[i] = text(at(v, 5))
		if place := text(at(v, 0)); place != "" {
			it, err := q.decode(place, v[1], text(at(v, 2)), number(at(v, 3)), now)
			if err != nil {
				return err
			}
			it.blocked = number(at(v, 4)) == 1
			found[i] = it
		}
	}
	return nil
}

// Get implements driver.Store.
func (s *Store) Get(ctx context.Context, refs []redrive.Ref) ([]*redrive.Entry, error) {
	found, _, err := s.lookup(ctx, refs)
	if err != nil {
		return nil, err
	}
	entries := make([]*redrive.Entry, len(refs))
	for i, it := range found {
		if it != nil {
			e := it.show(true)
			entries[i] = &e
		}
	}
	return entries, nil
}

// Recall implements driver.Store.
func (s *Store) Recall(ctx context.Context, refs []redrive.Ref) ([]*driver.Remembered, error) {
	_, memories, err := s.lookup(ctx, refs)
	if err != nil {
		return nil, err
	}
	now, err := s.Now(ctx)
	if err != nil {
		return nil, err
	}
	found := make([]*driver.Remembered, len(refs))
	for i, m := range memories {
		parts := strings.Fields(m)
		if len(parts) != 5 {
			continue
		}
		hash, _ := strconv.ParseUint(parts[0], 16, 64)
		if till := number(parts[4]); till > 0 && till <= micros(now) {
			continue
		}
		found[i] = &driver.Remembered{Ref: refs[i], Hash: hash, Outcome: redrive.Outcome(number(parts[1])), Reason: redrive.Reason(number(parts[2])), At: moment(number(parts[3]))} //nolint:gosec // small
	}
	return found, nil
}
