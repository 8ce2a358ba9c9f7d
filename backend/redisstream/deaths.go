package redisstream

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redisconn"
)

// A bucket of deaths is width, start and number: nine bytes; see lib.lua.
const bucketLength = 9

var bucketWidths = []time.Duration{0, time.Minute, time.Hour, 24 * time.Hour}

// Deaths implements driver.Store. Causes beyond [driver.MaxDeathSeries] share a series, by
// partition.
func (s *Store) Deaths(ctx context.Context, query redrive.Query) ([]driver.Deaths, error) {
	names, err := s.named(ctx, &query)
	if err != nil {
		return nil, err
	}
	var all []driver.Deaths
	for _, name := range names {
		found := make(map[string]map[driver.DeathBucket]int64)
		for _, q := range s.everywhere(name) {
			series, err := s.series(ctx, q, &query)
			if err != nil {
				return nil, err
			}
			for cause, packed := range series {
				addBuckets(found, cause, packed, query.Since)
			}
		}
		for cause, buckets := range found {
			d := driver.Deaths{Queue: name, Reason: redrive.Reason(cause[0]), Signature: cause[1:]}
			for b, n := range buckets {
				b.Count = n
				d.Buckets = append(d.Buckets, b)
			}
			slices.SortFunc(d.Buckets, func(a, b driver.DeathBucket) int {
				return cmp.Or(a.Start.Compare(b.Start), cmp.Compare(b.Width, a.Width))
			})
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b driver.Deaths) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Signature, b.Signature))
	})
	return all, nil
}

// addBuckets adds the packed buckets of a cause that end after a time.
func addBuckets(found map[string]map[driver.DeathBucket]int64, cause, packed string, since time.Time) {
	for raw := []byte(packed); len(raw) >= bucketLength; raw = raw[bucketLength:] {
		width := bucketWidths[min(int(raw[0]), len(bucketWidths)-1)]
		start := time.Unix(60*int64(binary.LittleEndian.Uint32(raw[1:])), 0).UTC()
		if !start.Add(width).After(since) {
			continue
		}
		if found[cause] == nil {
			found[cause] = make(map[driver.DeathBucket]int64)
		}
		found[cause][driver.DeathBucket{Start: start, Width: width}] += int64(binary.LittleEndian.Uint32(raw[5:]))
	}
}

// series returns the packed buckets of a queue's causes that match.
func (s *Store) series(ctx context.Context, q *queue, query *redrive.Query) (map[string]string, error) {
	found := make(map[string]string)
	if query.Signature != "" {
		var causes []string
		for r := redrive.Reason(0); r <= driver.LastReason; r++ {
			if query.Reason == 0 || query.Reason == r {
				causes = append(causes, causeName(r, query.Signature))
			}
		}
		var packed []any
		err := redisconn.Repeated(ctx, func() (err error) {
			packed, err = s.conn.HMGet(ctx, q.keys[keyDeaths], causes...).Result()
			return err
		})
		for i, v := range packed {
			found[causes[i]] = text(v)
		}
		return found, s.fail(err)
	}
	for cursor := uint64(0); ; {
		var page []string
		err := redisconn.Repeated(ctx, func() (err error) {
			page, cursor, err = s.conn.HScan(ctx, q.keys[keyDeaths], cursor, "", causesPage).Result()
			return err
		})
		if err != nil {
			return nil, s.fail(err)
		}
		for i := 0; i+1 < len(page); i += 2 {
			if query.Reason == 0 || page[i][0] == byte(query.Reason) {
				found[page[i]] = page[i+1]
			}
		}
		if cursor == 0 {
			return found, nil
		}
	}
}
