package postgres

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

func scanRecord(r row, space string) (driver.Record, error) {
	rec := driver.Record{Space: space}
	var expires *time.Time
	err := r.Scan(&rec.Key, &rec.Value, &rec.Version, &expires)
	rec.Value, rec.ExpiresAt = body(rec.Value), timeOf(expires)
	return rec, err
}

// GetRecord implements driver.Store.
func (s *Store) GetRecord(ctx context.Context, space, key string) (driver.Record, error) {
	var rec driver.Record
	found := false
	err := s.read(ctx, "record_get", nil, func(r row) (err error) {
		found = true
		rec, err = scanRecord(r, space)
		return err
	}, space, key)
	if err == nil && !found {
		return rec, redrive.ErrNotFound
	}
	return rec, err
}

// ListRecords implements driver.Store.
func (s *Store) ListRecords(ctx context.Context, space, after string, limit int) ([]driver.Record, error) {
	if limit <= 0 {
		limit = redrive.DefaultPage
	}
	var list []driver.Record
	err := s.read(ctx, "record_list", func() { list = nil }, func(r row) error {
		rec, err := scanRecord(r, space)
		list = append(list, rec)
		return err
	}, space, after, limit)
	return list, err
}
