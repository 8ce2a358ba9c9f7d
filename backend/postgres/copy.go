package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/redrive/redrive/internal/sqlstore"
)

// copyFrom is the number of messages of one call from which on COPY is faster than an
// INSERT of arrays.
const copyFrom = 500

// copies reports whether a call goes by COPY: it is large, for one queue, and nothing
// can be in the way of its messages.
func copies(items []*sqlstore.Item) bool {
	if len(items) < copyFrom {
		return false
	}
	for _, it := range items {
		if !it.Plain() || it.Queue != items[0].Queue {
			return false
		}
	}
	return true
}

// copy stores items by COPY. Their due times are reckoned from the server's clock as it
// was at the beginning.
func (s *Store) copy(ctx context.Context, items []*sqlstore.Item) error {
	return s.inTx(ctx, "copy", func(tx db) error {
		var now time.Time
		if err := tx.query(ctx, s.sql.Get("now"), func(r row) error { return r.Scan(&now) }); err != nil {
			return err
		}
		size := int64(0)
		for _, it := range items {
			size += int64(it.Size())
		}
		source := pgx.CopyFromSlice(len(items), func(i int) ([]any, error) {
			it := items[i]
			due := now.Add(time.Duration(sqlstore.Micros(it.Delay)) * time.Microsecond)
			if at := timeOrNull(it.DeliverAt); at != nil && at.After(due) {
				due = *at
			}
			return []any{it.Queue, it.ID, it.Kind, encodeHeaders(it.Headers), body(it.Body), due, now, int32(it.Size()), int32(it.Sum), due.After(now)}, nil //nolint:gosec // bounded, and bits
		})
		conn := tx.(pgxDB).q.(pgx.Tx).Conn()
		_, err := conn.CopyFrom(ctx, pgx.Identifier{s.sql.schema, "message"},
			[]string{"queue", "id", "kind", "headers", "body", "due", "published", "size", "crc", "delayed"}, source)
		if err != nil {
			return err
		}
		_, err = tx.exec(ctx, s.sql.Get("copied"), items[0].Queue, len(items), size)
		return err
	})
}
