package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

const (
	quotaSpace  = "quotas"
	quotaShares = 2000 // a window's quota is taken in so many parts
	quotaTries  = 50   // compare-and-set against others
)

// quota is this process's share of what a token may use in a window of time. Shares
// are taken from a record by compare-and-set before they are used, so that all
// processes together never exceed the limit, also not across a restart. What a process
// has taken and not used is lost for the window if it dies: one part in quotaShares.
// The token's meter locks it.
type quota struct {
	store driver.Store
	id    string
	limit int64
	per   time.Duration

	skew   time.Duration // of the store's clock to ours
	synced time.Time
	window int64
	ours   int64 // taken from the record and not used
	taken  int64 // of the record, by all, as last seen
}

// quotaRecord is the value of the record.
type quotaRecord struct {
	Taken int64 `json:"taken"`
}

// turn begins a new window when it is time, by the store's clock.
func (q *quota) turn(ctx context.Context) error {
	if q.synced.IsZero() || time.Since(q.synced) > time.Minute {
		now, err := q.store.Now(ctx)
		if err != nil {
			return err
		}
		q.skew, q.synced = time.Until(now), time.Now()
	}
	if w := q.number(); w != q.window {
		q.window, q.ours, q.taken = w, 0, 0
	}
	return nil
}

func (q *quota) number() int64 { return time.Now().Add(q.skew).UnixNano() / int64(q.per) }

// reset is the time until the window ends.
func (q *quota) reset() time.Duration {
	return time.Until(time.Unix(0, (q.window+1)*int64(q.per)).Add(-q.skew))
}

// take takes up to n, and says when there is more.
func (q *quota) take(ctx context.Context, n int) (got int, after time.Duration, err error) {
	if err := q.turn(ctx); err != nil {
		return 0, 0, err
	}
	if q.ours < int64(n) {
		if err := q.fetch(ctx, int64(n)-q.ours); err != nil {
			return 0, 0, err
		}
	}
	got = int(min(int64(n), q.ours))
	q.ours -= int64(got)
	return got, q.reset(), nil
}

// fetch takes another share of the record, of at least so much if there is as much.
func (q *quota) fetch(ctx context.Context, least int64) error {
	key := fmt.Sprintf("%s:%d", q.id, q.window)
	for range quotaTries {
		record, err := q.store.GetRecord(ctx, quotaSpace, key)
		if err != nil && !errors.Is(err, redrive.ErrNotFound) {
			return err
		}
		var r quotaRecord
		if err == nil {
			if err := json.Unmarshal(record.Value, &r); err != nil {
				return fmt.Errorf("quota of token %s: %w", q.id, err)
			}
		}
		share := min(max(least, q.limit/quotaShares), q.limit-r.Taken)
		q.taken = r.Taken
		if share <= 0 {
			return nil
		}
		r.Taken += share
		value, err := json.Marshal(r)
		if err != nil {
			return err
		}
		_, err = q.store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{{Space: quotaSpace, Key: key, Value: value, Version: record.Version, Expires: 2 * q.per}}})
		if errors.Is(err, redrive.ErrVersion) {
			continue
		}
		if err != nil {
			return err
		}
		q.ours += share
		q.taken = r.Taken
		return nil
	}
	return &redrive.Error{Op: "quota", Err: redrive.ErrVersion, Hint: "many daemons change it at once; repeat"}
}

func (q *quota) giveBack(n int64) { q.ours += n }

// state returns what is left, as far as this process knows, and the time to the
// window's end.
func (q *quota) state() (left int64, reset time.Duration) {
	if q.number() != q.window {
		return q.limit, q.per
	}
	return q.limit - q.taken + q.ours, q.reset()
}

// surrender gives unused shares back to the record, at the end of a process.
func (q *quota) surrender(ctx context.Context) error {
	if q.ours == 0 || q.number() != q.window {
		return nil
	}
	key := fmt.Sprintf("%s:%d", q.id, q.window)
	for range quotaTries {
		record, err := q.store.GetRecord(ctx, quotaSpace, key)
		if err != nil {
			return err
		}
		var r quotaRecord
		if err := json.Unmarshal(record.Value, &r); err != nil {
			return err
		}
		r.Taken -= q.ours
		value, err := json.Marshal(r)
		if err != nil {
			return err
		}
		_, err = q.store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{{Space: quotaSpace, Key: key, Value: value, Version: record.Version, Expires: 2 * q.per}}})
		if errors.Is(err, redrive.ErrVersion) {
			continue
		}
		q.ours = 0
		return err
	}
	return redrive.ErrVersion
}
