package redisstream

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Trim implements driver.Store. A claimed dead letter stays.
func (s *Store) Trim(ctx context.Context, r driver.Retention, limit int) (driver.Trimmed, error) {
	var t driver.Trimmed
	if limit <= 0 {
		limit = redrive.MaxPage
	}
	names := []string{r.Queue}
	if r.Queue == "" {
		var err error
		if names, err = s.queueNames(ctx); err != nil {
			return t, err
		}
		got, err := s.conn.Write(ctx, scriptTrim, s.keys(), limit)
		if err != nil {
			return t, s.fail(err)
		}
		t.Records = number(at(items(got), 1))
		limit -= int(t.Records)
	}
	for _, name := range names {
		if limit <= 0 {
			break
		}
		n, err := s.trimDead(ctx, name, &r, limit)
		t.Dead += int64(n)
		if err != nil {
			return t, err
		}
		if limit -= n; limit <= 0 {
			break
		}
		for _, q := range s.everywhere(name) {
			got, err := s.conn.Write(ctx, scriptTrim, q.s.keys(q), max(limit, 0))
			if err != nil {
				return t, s.fail(err)
			}
			n = int(number(at(items(got), 0)))
			t.Remembered += int64(n)
			limit -= n
			if err := s.fold(ctx, q); err != nil {
				return t, err
			}
			s.dismiss(ctx, q)
		}
	}
	return t, nil
}

// fold adds up deaths by time that became too old for their buckets.
func (s *Store) fold(ctx context.Context, q *queue) error {
	for at := "0"; ; {
		got, err := s.conn.Write(ctx, scriptTrim, q.s.keys(q), 0, at)
		if err != nil {
			return s.fail(err)
		}
		if at = text(items(got)[0]); at == "0" {
			return nil
		}
	}
}

// consumerIdle is how long a consumer was not seen before its name is removed.
const consumerIdle = time.Hour

// dismiss removes the names of dead consumers. It only tidies up, so its failure waits
// for the next time.
func (s *Store) dismiss(ctx context.Context, q *queue) {
	_, _ = s.conn.Write(ctx, scriptConsumers, q.keys[:1], consumerIdle.Milliseconds())
}

// trimDead removes dead letters that are too old or too many, oldest first.
func (s *Store) trimDead(ctx context.Context, name string, r *driver.Retention, limit int) (n int, err error) {
	if r.DeadAge <= 0 && r.DeadKeep <= 0 {
		return 0, nil
	}
	tallies, err := s.tallies(ctx, []string{name})
	if err != nil {
		return 0, err
	}
	dead, excess, oldest := int64(0), 0, int64(0)
	for _, t := range tallies[0] {
		dead += t.dead
		oldest = t.now - span(r.DeadAge)
	}
	if r.DeadKeep > 0 {
		excess = int(max(dead-r.DeadKeep, 0))
	}
	if r.DeadAge <= 0 {
		oldest = 0
	}
	for n < limit {
		removed, more, err := s.trimPage(ctx, name, r, min(limit-n, stepPage), excess-n, oldest)
		n += removed
		if err != nil || !more {
			return n, err
		}
	}
	return n, nil
}

// trimPage removes at most limit dead letters: those that died before a time, and the
// oldest as far as there is an excess.
func (s *Store) trimPage(ctx context.Context, name string, r *driver.Retention, limit, excess int, before int64) (n int, more bool, err error) {
	var list []*item
	err = s.scan(ctx, &redrive.Query{Queue: name, State: redrive.StateDead}, func(it *item, _ cursor) bool {
		if it.died >= before && excess <= len(list) {
			return false
		}
		if !it.leased {
			list = append(list, it)
		}
		return len(list) < limit
	})
	if err != nil || len(list) == 0 {
		return 0, false, err
	}
	for _, p := range s.all() {
		st := p.step(ctx)
		for _, it := range list {
			if it.q.s != p {
				continue
			}
			o := &changeOp{it: it, checks: true, what: "remove", ledger: []any{"dropped", 1}, memory: memory{outcome: redrive.OutcomeDrop, reason: it.reason, ended: true}}
			if r.Archived {
				o.ledger, o.memory.outcome = []any{"archived", 1}, redrive.OutcomeDead
			}
			if err := st.add(o); err != nil {
				return n, false, err
			}
		}
		results, err := st.run(ctx, scriptStep)
		if err != nil {
			return n, false, err
		}
		for i := range results {
			if number(at(items(results[i]), 0)) == codeDone {
				n++
			}
		}
	}
	return n, len(list) == limit && n > 0, nil
}
