package redislist

import (
	"context"
	"fmt"
	"slices"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/redisconn"
)

// Counts is what a queue holds at one moment.
type Counts struct {
	Waiting    int64 // in the list: never claimed yet
	Delayed    int64 // not claimed yet, or given back: due now or later
	Retries    int64 // due now or later after a failure
	Redriven   int64 // dead letters that were redriven and not claimed since
	Processing int64 // handed out and not settled
	Dead       int64 // kept here; see Options.KeepDead
}

// Counts returns what a queue holds.
func (s *Source) Counts(ctx context.Context, queue string) (Counts, error) {
	if err := s.enter(ctx); err != nil {
		return Counts{}, err
	}
	q, err := s.queue(queue)
	if err != nil {
		return Counts{}, err
	}
	st, err := s.stats(ctx, q)
	if err != nil {
		return Counts{}, err
	}
	return Counts{Waiting: st.waiting, Delayed: st.delayed[0], Retries: st.delayed[1], Redriven: st.delayed[2], Processing: st.processing, Dead: st.dead}, nil
}

// Processing returns what is handed out and not settled, at most limit, those claimed
// longest ago first, as leased entries: with who holds them and until when. One whose
// Until has passed is recovered by the next consumer that looks.
func (s *Source) Processing(ctx context.Context, queue string, limit int) ([]redrive.Entry, error) {
	all, err := s.page(ctx, queue, func(k *keys) string { return k.processing }, limit)
	if err != nil {
		return nil, err
	}
	entries := make([]redrive.Entry, len(all))
	for i, p := range all {
		e := p.row.entry(queue)
		e.State, e.Instance, e.Token, e.Until = redrive.StateLeased, p.row.instance, uint64(p.row.token), moment(max(p.until, 0)) //nolint:gosec // counted from 1
		entries[i] = e
	}
	return entries, nil
}

// DeadLetters returns the dead letters that are kept here, at most limit, the oldest
// first.
func (s *Source) DeadLetters(ctx context.Context, queue string, limit int) ([]redrive.Entry, error) {
	all, err := s.page(ctx, queue, func(k *keys) string { return k.dead }, limit)
	if err != nil {
		return nil, err
	}
	entries := make([]redrive.Entry, len(all))
	for i, p := range all {
		e := p.row.entry(queue)
		e.State, e.Reason, e.DiedAt = redrive.StateDead, p.row.reason, moment(p.row.died)
		entries[i] = e
	}
	return entries, nil
}

// Redrive makes dead letters that are kept here wait again, in the next generation and
// with fresh attempts. An item fails with [redrive.ErrNotFound] if it is none.
func (s *Source) Redrive(ctx context.Context, queue string, ids ...string) []error {
	return s.raise(ctx, "redrive", queue, ids)
}

// Drop removes dead letters that are kept here, as Redrive takes them.
func (s *Source) Drop(ctx context.Context, queue string, ids ...string) []error {
	return s.raise(ctx, "drop", queue, ids)
}

func (s *Source) raise(ctx context.Context, what, name string, ids []string) []error {
	errs := make([]error, len(ids))
	err := s.enter(ctx)
	var q *queue
	if err == nil {
		q, err = s.queue(name)
	}
	if err != nil {
		return fill(errs, err)
	}
	k := q.keys
	of := make([]int, len(ids))
	for i := range of {
		of[i] = i
	}
	for part := range slices.Chunk(of, batch) {
		args := []any{what, s.o.Remember.Microseconds()}
		for _, i := range part {
			args = append(args, ids[i])
		}
		v, err := s.conn.Write(ctx, raiseScript, []string{k.body, k.state, k.story, k.dead, k.deadIDs, k.due[redrive.LaneRedrive], k.ids, k.forget}, args...)
		got, err := codes(raiseScript.Name(), v, len(part), err)
		answer(errs, part, got, err)
	}
	s.look(q)
	return errs
}

// paged is an entry with the end of its lease, or -1.
type paged struct {
	row   *row
	until int64
}

// page reads the first entries of a sorted set, a hundred a call, so that the server is
// never held up. What is settled meanwhile may be missed or shown.
func (s *Source) page(ctx context.Context, queue string, set func(*keys) string, limit int) ([]paged, error) {
	if limit < 1 {
		return nil, &redrive.Error{Op: "look", Queue: queue, Err: fmt.Errorf("%w limit %d", redrive.ErrInvalid, limit), Hint: "ask for at least one"}
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	q, err := s.queue(queue)
	if err != nil {
		return nil, err
	}
	k := q.keys
	var all []paged
	for len(all) < limit {
		most := min(limit-len(all), batch)
		v, err := s.conn.Run(ctx, pageScript, []string{k.body, k.state, k.story, set(k), k.leases}, len(all), most)
		if err != nil {
			return nil, redisconn.Fault(err)
		}
		list, ok := v.([]any)
		if !ok || len(list)%2 != 0 {
			return nil, badAnswer(pageScript.Name(), v)
		}
		for pair := range slices.Chunk(list, 2) {
			r, err := parseRow(pair[0])
			if err != nil {
				return nil, err
			}
			until, _ := pair[1].(int64)
			all = append(all, paged{row: r, until: until})
		}
		if len(list)/2 < most {
			break
		}
	}
	return all, nil
}
