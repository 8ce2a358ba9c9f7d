package postgres

import (
	"context"
	"time"

	"github.com/redrive/redrive/driver"
)

// ReadRecords implements sqlstore.Server.
func (d dialect) ReadRecords(ctx context.Context, statement, space, key string, limit ...any) (list []driver.Record, err error) {
	err = d.read(ctx, statement, func() { list = nil }, func(r row) error {
		rec := driver.Record{Space: space}
		var expires *time.Time
		err := r.Scan(&rec.Key, &rec.Value, &rec.Version, &expires)
		rec.Value, rec.ExpiresAt = body(rec.Value), timeOf(expires)
		list = append(list, rec)
		return err
	}, append([]any{space, key}, limit...)...)
	return list, err
}
