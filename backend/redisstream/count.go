package redisstream

import (
	"context"
	"slices"
	"strconv"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redisconn"
)

// Count implements driver.Store. Any query by queue, reason, signature and time of death, and one
// by queue and state, is answered from counters; but for states of waiting messages while
// thousands of batches ran out.
func (s *Store) Count(ctx context.Context, query redrive.Query) (driver.Count, error) {
	byCause := query.Reason != 0 || query.Signature != ""
	byTime := !query.Since.IsZero() || !query.Until.IsZero()
	switch {
	case !counted(&query), query.State != redrive.StateDead && (query.State != 0 || !byCause) && byTime,
		byCause && query.State != 0 && query.State != redrive.StateDead:
		return driver.CountFound(ctx, s.Find, query)
	case query.State == redrive.StateDead || byCause:
		n, err := s.countDead(ctx, &query)
		return driver.Count{N: n, Complete: err == nil}, err
	}
	n, exact, err := s.countState(ctx, &query)
	if err == nil && !exact {
		return driver.CountFound(ctx, s.Find, query)
	}
	return driver.Count{N: n, Complete: err == nil}, err
}

// countDead counts dead letters by queue, reason, signature and time.
func (s *Store) countDead(ctx context.Context, query *redrive.Query) (n int64, err error) {
	names, err := s.named(ctx, query)
	if err != nil {
		return 0, err
	}
	w := whenOf(query)
	for _, name := range names {
		for _, q := range s.everywhere(name) {
			var some int64
			switch {
			case query.Reason == 0 && query.Signature == "":
				some, err = s.countDied(ctx, q, query)
			case query.Signature == "" && w == (when{}):
				some, err = s.countRange(ctx, q, lexRange{"[" + causeName(query.Reason, ""), "(" + causeName(query.Reason+1, "")})
			default:
				l := listing{found: make(map[string]int64)}
				err = s.listCauses(ctx, q, query, &l)
				for _, k := range l.found {
					some += k
				}
			}
			if n += some; err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// countDied counts all dead letters of some time.
func (s *Store) countDied(ctx context.Context, q *queue, query *redrive.Query) (n int64, err error) {
	low, high := "-inf", "+inf"
	w := whenOf(query)
	if w.from > 0 {
		low = strconv.FormatInt(w.from, 10)
	}
	if w.before > 0 {
		high = strconv.FormatInt(w.before-1, 10)
	}
	err = redisconn.Repeated(ctx, func() error {
		n, err = s.conn.ZCount(ctx, q.keys[keyDied], low, high).Result()
		return err
	})
	return n, s.fail(err)
}

// countState counts the messages in a state, all if that is 0. It is not exact where
// leases are an estimate.
func (s *Store) countState(ctx context.Context, query *redrive.Query) (n int64, exact bool, err error) {
	names, err := s.named(ctx, query)
	if err != nil {
		return 0, false, err
	}
	tallies, err := s.tallies(ctx, names)
	if err != nil {
		return 0, false, err
	}
	exact = true
	for _, t := range slices.Concat(tallies...) {
		waiting := t.entries + t.indexed
		switch query.State {
		case redrive.StateLeased:
			n += t.leased
		case redrive.StateBlocked:
			n += t.blocked
		case redrive.StateWaiting:
			n += waiting - t.leased - t.blocked
		default:
			n += waiting + t.dead
			continue
		}
		exact = exact && !t.guessed
	}
	return n, exact, nil
}

func (s *Store) countRange(ctx context.Context, q *queue, r lexRange) (n int64, err error) {
	err = redisconn.Repeated(ctx, func() error {
		n, err = s.conn.ZLexCount(ctx, q.keys[keyCauses], r.low, r.high).Result()
		return err
	})
	return n, s.fail(err)
}
