package postgres

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Counts implements driver.Store. Leased, blocked and suspect messages are counted in
// the index, the rest stands in the ledger.
func (s *Store) Counts(ctx context.Context, names ...string) ([]driver.Counts, error) {
	var list []driver.Counts
	err := s.read(ctx, "counts", func() { list = nil }, func(r row) error {
		c := driver.Counts{Dead: make(map[redrive.Reason]int64)}
		var fresh, retry, redriven, suspect, died *time.Time
		var b sqlstore.Ledger
		err := r.Scan(append([]any{&c.Queue, &c.Leased, &c.Blocked, &c.Suspects, &c.Due, &fresh, &retry, &redriven, &suspect, &died}, b.Dest()...)...)
		c.OldestDue = [driver.Lanes]time.Time{timeOf(fresh), timeOf(retry), timeOf(redriven)}
		c.OldestSuspect, c.OldestDead = timeOf(suspect), timeOf(died)
		if c.Due > driver.DueCounted {
			c.Due, c.DueMore = driver.DueCounted, true
		}
		b.Fill(&c)
		list = append(list, c)
		return err
	}, orNull(names), driver.DueCounted)
	if err != nil || len(names) == 0 {
		return list, err
	}
	found := make(map[string]driver.Counts, len(list))
	for _, c := range list {
		found[c.Queue] = c
	}
	list = make([]driver.Counts, len(names))
	for i, name := range names {
		c, ok := found[name]
		if !ok {
			c = driver.Counts{Queue: name, Dead: make(map[redrive.Reason]int64)}
		}
		list[i] = c
	}
	return list, nil
}

// SetUp implements sqlstore.Server.
func (d dialect) SetUp(ctx context.Context, queue string, s *driver.QueueSettings) error {
	return d.one(ctx, "configure", nil, func(row) error { return nil }, queue, s.OrderByKey, s.DeadRelease, sqlstore.Micros(s.Remember))
}
