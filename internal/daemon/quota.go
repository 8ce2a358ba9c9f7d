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
	quotaUnsaid = 1000 // a process counts so small a part of the quota by itself
	quotaTries  = 50   // compare-and-set against others
)

// quota counts what a token uses in a window of time: one record of the store per token
// and window, to which every process adds what it granted. A process adds it when that
// comes to 1/1000 of the quota; so N processes exceed the quota by at most N/1000, and by
// another 1/1000 for each process that was killed in the window. The token's meter locks it.
type quota struct {
	store driver.Store
	id    string
	limit int64
	per   time.Duration

	window int64
	used   int64 // of the record, by all, as last seen
	own    int64 // granted here, or given back, and not yet in the record
}

// quotaRecord is the value of the record.
type quotaRecord struct {
	Used int64 `json:"used"`
}

func quotaWindow(now time.Time, per time.Duration) int64 { return now.UnixNano() / int64(per) }

func quotaKey(id string, window int64) string { return fmt.Sprintf("%s:%d", id, window) }

// readQuota returns how much of a quota is used, with the version of its record.
func readQuota(ctx context.Context, store driver.Store, key string) (used, version int64, err error) {
	record, err := store.GetRecord(ctx, quotaSpace, key)
	if errors.Is(err, redrive.ErrNotFound) {
		return 0, 0, nil
	}
	var r quotaRecord
	if err == nil {
		err = json.Unmarshal(record.Value, &r)
	}
	return r.Used, record.Version, err
}

// take takes up to n.
func (q *quota) take(ctx context.Context, n int) (got int, err error) {
	if w := quotaWindow(time.Now(), q.per); w != q.window {
		q.window, q.used, q.own = w, 0, 0
	}
	if more := q.own + int64(n); more <= q.limit/quotaUnsaid && q.used+more <= q.limit {
		q.own = more
		return n, nil
	}
	return q.add(ctx, n)
}

// add takes up to n, by adding it to the record with what was not yet there.
func (q *quota) add(ctx context.Context, n int) (got int, err error) {
	key := quotaKey(q.id, q.window)
	for range quotaTries {
		used, version, err := readQuota(ctx, q.store, key)
		if err != nil {
			return 0, fmt.Errorf("quota of token %s: %w", q.id, err)
		}
		got = int(min(max(q.limit-used-q.own, 0), int64(n)))
		r := quotaRecord{used + q.own + int64(got)}
		if r.Used != used {
			value, err := json.Marshal(r)
			if err != nil {
				return 0, err
			}
			_, err = q.store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{{Space: quotaSpace, Key: key, Value: value, Version: version, Expires: 2 * q.per}}})
			if errors.Is(err, redrive.ErrVersion) {
				continue
			}
			if err != nil {
				return 0, err
			}
		}
		q.used, q.own = r.Used, 0
		return got, nil
	}
	return 0, &redrive.Error{Op: "quota", Err: redrive.ErrVersion, Hint: "many daemons change it at once; repeat"}
}

// state returns what is left, as far as this process knows, and the time to the
// window's end.
func (q *quota) state() (left int64, reset time.Duration) {
	now := time.Now()
	window := quotaWindow(now, q.per)
	reset = time.Unix(0, (window+1)*int64(q.per)).Sub(now)
	if window != q.window {
		return q.limit, reset
	}
	return q.limit - q.used - q.own, reset
}
