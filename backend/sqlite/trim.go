package sqlite

import (
	"context"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// trimSlice bounds what one transaction removes, so that others are not kept
// waiting.
const trimSlice = 500

// Trim implements driver.Store.
func (s *Store) Trim(ctx context.Context, r driver.Retention, limit int) (driver.Trimmed, error) {
	var all driver.Trimmed
	for limit > 0 {
		slice := min(limit, trimSlice)
		var got driver.Trimmed
		var folded int64
		err := s.do(ctx, slice, func(t *tx) (err error) {
			if got, err = t.trim(&r, int64(slice)); err != nil {
				return err
			}
			folded, err = t.fold(trimSlice)
			return err
		})
		if err != nil {
			return all, err
		}
		n := got.Dead + got.Remembered + got.Records
		all.Dead += got.Dead
		all.Remembered += got.Remembered
		all.Records += got.Records
		if limit -= int(n); n == 0 && folded < trimSlice {
			break
		}
	}
	return all, nil
}

func (t *tx) trim(r *driver.Retention, limit int64) (got driver.Trimmed, err error) {
	got.Remembered, err = t.write(`DELETE FROM chosen WHERE (queue, id) IN (SELECT queue, id FROM chosen INDEXED BY chosen_until WHERE until <= ? ORDER BY until LIMIT ?)`).
		int(t.now).int(limit).changed()
	if err != nil {
		return got, err
	}
	limit -= got.Remembered
	got.Records, err = t.write(`DELETE FROM record WHERE (space, key) IN (SELECT space, key FROM record INDEXED BY record_expires WHERE expires <= ? ORDER BY expires LIMIT ?)`).
		int(t.now).int(limit).changed()
	if err != nil {
		return got, err
	}
	limit -= got.Records
	for _, q := range t.s.stored(r.Queue) {
		n, err := t.trimDead(q, r, limit)
		if err != nil {
			return got, err
		}
		got.Dead += n
		limit -= n
	}
	return got, nil
}

// stored returns the queue of a name, or all that are in the file.
func (s *Store) stored(name string) (list []*queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.queues {
		if q.number != 0 && (name == "" || name == q.name) {
			list = append(list, q)
		}
	}
	return list
}

// trimDead removes the dead letters of a queue that are too old or too many.
func (t *tx) trimDead(q *queue, r *driver.Retention, limit int64) (removed int64, err error) {
	dead := q.state.counts.dead()
	excess := int64(0)
	if r.DeadKeep > 0 {
		excess = dead - r.DeadKeep
	}
	if dead == 0 || limit <= 0 || r.DeadAge <= 0 && excess <= 0 {
		return 0, nil
	}
	var oldest int64
	if r.DeadAge > 0 {
		oldest = t.now - int64(r.DeadAge)
	}
	var seqs []int64
	s := t.read(`SELECT seq, died FROM dead INDEXED BY dead_died WHERE queue = ? ORDER BY died, seq`).int(q.id)
	for s.next() {
		if int64(len(seqs)) == limit || int64(len(seqs)) >= excess && s.colInt(1) >= oldest {
			break
		}
		if seq := s.colInt(0); t.s.leases.held(seq) == nil {
			seqs = append(seqs, seq)
		}
	}
	if err := s.done(); err != nil {
		return 0, err
	}
	c := countDropped
	if r.Archived {
		c = countArchived
	}
	for _, seq := range seqs {
		d, m, err := t.deadRow(q, seq)
		if err != nil {
			return removed, err
		}
		t.forgetLease(seq)
		t.count(q, c, 1)
		if err := t.exhume(q, &d, &m, redrive.OutcomeDead, d.reason); err != nil {
			return removed, err
		}
		removed++
	}
	return removed, nil
}
