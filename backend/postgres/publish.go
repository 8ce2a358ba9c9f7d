package postgres

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/sqlstore"
)

// StoreItems implements sqlstore.Server: it stores the items of some calls in one statement, or of one call by COPY.
func (d dialect) StoreItems(ctx context.Context, items []*sqlstore.Item, single bool) (err error) {
	defer func(began time.Time) { d.base.Observe("publish", began, err) }(time.Now())
	if single {
		return d.copy(ctx, items)
	}
	return again(ctx, func() error {
		conn, err := d.acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		return store(ctx, pgxDB{conn}, d.sql, items)
	})
}

// groupBytes bounds a statement that calls share.
const groupBytes = 8 << 20

// store publishes items in as few statements as their ids allow: no id may be twice in
// one. Results go to the items; an error is the statement's, and what is done by then
// is not done again.
func store(ctx context.Context, q db, sql *statements, items []*sqlstore.Item) error {
	for len(items) > 0 {
		var now, later []*sqlstore.Item
		seen := make(map[redrive.Ref]bool)
		plain := true
		for _, it := range items {
			if it.Done {
				continue
			}
			if it.Chosen {
				if seen[it.Ref()] {
					later = append(later, it)
					continue
				}
				seen[it.Ref()] = true
			}
			plain = plain && it.Plain()
			now = append(now, it)
		}
		if len(now) == 0 {
			return nil
		}
		insert := storeGroup
		if plain {
			insert = storePlain
		}
		if err := insert(ctx, q, sql, now); err != nil {
			return err
		}
		for _, it := range now {
			it.Done = true
		}
		items = later
	}
	return nil
}

func storePlain(ctx context.Context, q db, sql *statements, items []*sqlstore.Item) error {
	if len(items) == 1 {
		it := items[0]
		_, err := q.exec(ctx, sql.Get("publish_one"), it.Queue, it.ID, it.Kind, encodeHeaders(it.Headers), body(it.Body),
			sqlstore.Micros(it.Delay), timeOrNull(it.DeliverAt), it.Size(), int32(it.Sum)) //nolint:gosec // the bits are what counts
		return err
	}
	if now, ok := nowArgs(items); ok {
		_, err := q.exec(ctx, sql.Get("publish_now"), now...)
		return err
	}
	n := len(items)
	queues, ids, kinds, headers := make([]string, n), make([]string, n), make([]string, n), make([]*string, n)
	bodies, delays, at, sizes, sums := make([][]byte, n), make([]int64, n), make([]*time.Time, n), make([]int64, n), make([]int32, n)
	for i, it := range items {
		queues[i], ids[i], kinds[i], headers[i] = it.Queue, it.ID, it.Kind, encodeHeaders(it.Headers)
		bodies[i], delays[i], at[i], sizes[i] = body(it.Body), sqlstore.Micros(it.Delay), timeOrNull(it.DeliverAt), int64(it.Size())
		sums[i] = int32(it.Sum) //nolint:gosec // the bits are what counts
	}
	_, err := q.exec(ctx, sql.Get("publish_plain"), queues, ids, kinds, headers, bodies, delays, at, sizes, sums)
	return err
}

// nowArgs are the arguments of publish_now, if it can store the items.
func nowArgs(items []*sqlstore.Item) ([]any, bool) {
	n := len(items)
	ids, bodies, sizes, sums := make([]string, n), make([][]byte, n), make([]int32, n), make([]int32, n)
	var kinds []string
	var headers []*string
	var bytes int64
	for i, it := range items {
		if it.Queue != items[0].Queue || it.Delay != 0 || !it.DeliverAt.IsZero() {
			return nil, false
		}
		if it.Kind != "" && kinds == nil {
			kinds = make([]string, n)
		}
		if kinds != nil {
			kinds[i] = it.Kind
		}
		if len(it.Headers) > 0 && headers == nil {
			headers = make([]*string, n)
		}
		if headers != nil {
			headers[i] = encodeHeaders(it.Headers)
		}
		size := it.Size()
		ids[i], bodies[i], sizes[i] = it.ID, body(it.Body), int32(size) //nolint:gosec // bounded
		sums[i] = int32(it.Sum)                                         //nolint:gosec // the bits are what counts
		bytes += int64(size)
	}
	return []any{items[0].Queue, ids, kinds, headers, bodies, sizes, n, bytes, sums}, true
}

// storeGroup publishes items whose ids differ.
func storeGroup(ctx context.Context, q db, sql *statements, items []*sqlstore.Item) error {
	var refused []*sqlstore.Item
	err := q.query(ctx, sql.Get("publish"), func(r row) error {
		var ord int
		if err := r.Scan(&ord); err != nil {
			return err
		}
		refused = append(refused, items[ord-1])
		return nil
	}, groupArgs(items)...)
	if err != nil || len(refused) == 0 {
		return err
	}
	return judge(ctx, q, sql, refused)
}

// groupArgs are the arguments of publish.
func groupArgs(items []*sqlstore.Item) []any {
	n := len(items)
	queues, ids, kinds, keys, headers := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]*string, n)
	bodies, delays, at, expires, reply := make([][]byte, n), make([]int64, n), make([]*time.Time, n), make([]*time.Time, n), make([]string, n)
	generations, redrives, plans, origins, edited := make([]int64, n), make([]int64, n), make([]string, n), make([]string, n), make([]string, n)
	sizes, chosen, hashes, made, sums := make([]int64, n), make([]bool, n), make([]int64, n), make([]bool, n), make([]int32, n)
	for i, it := range items {
		queues[i], ids[i], kinds[i], keys[i], headers[i] = it.Queue, it.ID, it.Kind, it.Key, encodeHeaders(it.Headers)
		bodies[i], delays[i], at[i], expires[i] = body(it.Body), sqlstore.Micros(it.Delay), timeOrNull(it.DeliverAt), timeOrNull(it.ExpiresAt)
		reply[i], generations[i], redrives[i] = it.ReplyTo, int64(it.Generation), int64(it.Redrives)
		plans[i], origins[i], edited[i], sizes[i] = it.Plan, it.Origin, it.EditedFrom, int64(it.Size())
		chosen[i], hashes[i], made[i] = it.Chosen, int64(it.Hash), it.Made //nolint:gosec // the bits are what counts
		sums[i] = int32(it.Sum)                                            //nolint:gosec // the bits are what counts
	}
	return []any{queues, ids, kinds, keys, headers, bodies, delays, at, expires, reply, generations, redrives, plans, origins, edited,
		sizes, chosen, hashes, made, sums}
}

// judge tells refused messages from one another: the same again, or another under the
// same id.
func judge(ctx context.Context, q db, sql *statements, refused []*sqlstore.Item) error {
	queues, ids := make([]string, len(refused)), make([]string, len(refused))
	for i, it := range refused {
		queues[i], ids[i] = it.Queue, it.ID
		*it.Result = redrive.ErrDuplicate // if it is gone by now
	}
	return q.query(ctx, sql.Get("refused"), func(r row) error {
		var ord int
		var hash *int64
		var kind, key *string
		var body []byte
		if err := r.Scan(&ord, &hash, &kind, &key, &body); err != nil {
			return err
		}
		it := refused[ord-1]
		switch {
		case hash != nil:
			*it.Result = sqlstore.SameOrNot(uint64(*hash) == it.Hash) //nolint:gosec // the bits are what counts
		case kind != nil && key != nil:
			*it.Result = sqlstore.SameOrNot(it.Masks.BodyHash(&redrive.Message{Queue: it.Queue, Kind: *kind, Key: *key, Body: body}) == it.Hash)
		}
		return nil
	}, queues, ids)
}

// Times and values as they are stored.

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	switch y := t.UTC().Year(); {
	case y > 9999:
		t = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	case y < 1:
		t = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if up := t.Truncate(time.Microsecond); !up.Equal(t) {
		t = up.Add(time.Microsecond)
	}
	return &t
}

func body(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// encodeHeaders makes JSON of headers: pairs of name and value, both in Base64 as they
// are bytes; nil for none.
func encodeHeaders(h redrive.Headers) *string {
	if len(h) == 0 {
		return nil
	}
	pairs := make([][2][]byte, len(h))
	for i := range h {
		pairs[i] = [2][]byte{[]byte(h[i].Name), body(h[i].Value)}
	}
	b, err := json.Marshal(pairs)
	if err != nil {
		panic(err) // bytes can always be encoded
	}
	text := string(b)
	return &text
}

// decodeHeaders is the reverse of encodeHeaders. What cannot be read becomes a header that
// holds it as it is.
func decodeHeaders(b []byte) redrive.Headers {
	if len(b) == 0 {
		return nil
	}
	var pairs [][2][]byte
	if json.Unmarshal(b, &pairs) != nil {
		return redrive.Headers{{Name: headername.Damaged, Value: slices.Clone(b)}}
	}
	h := make(redrive.Headers, len(pairs))
	for i := range pairs {
		h[i] = redrive.Header{Name: string(pairs[i][0]), Value: pairs[i][1]}
	}
	return h
}

// storable makes text of a foreign message that a database can hold. What was lost is
// kept as bytes in a header, by the caller.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
