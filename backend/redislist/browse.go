package redislist

import (
	"cmp"
	"context"
	"fmt"
	"math"
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
	Processing int64 // claimed and not settled, or given back by who took it over from another
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

// Processing returns what is claimed and not settled, at most limit, those claimed
// longest ago first, as leased entries: with who holds them and until when. One whose
// Until has passed is recovered by the next consumer that looks.
func (s *Source) Processing(ctx context.Context, queue string, limit int) ([]redrive.Entry, error) {
	q, err := s.browsed(ctx, queue, limit)
	if err != nil {
		return nil, err
	}
	held, err := s.order(ctx, q, q.keys.leases, math.MaxInt)
	if err != nil {
		return nil, err
	}
	// They stand there by the ends of their leases, which are of several lengths and extended.
	held = slices.DeleteFunc(held, func(p placed) bool { return p.claimed < 0 })
	slices.SortFunc(held, func(a, b placed) int {
		return cmp.Or(cmp.Compare(a.claimed, b.claimed), cmp.Compare(len(a.n), len(b.n)), cmp.Compare(a.n, b.n))
	})
	all, err := s.page(ctx, q, held[:min(len(held), limit)])
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
	q, err := s.browsed(ctx, queue, limit)
	if err != nil {
		return nil, err
	}
	dead, err := s.order(ctx, q, q.keys.dead, limit)
	if err != nil {
		return nil, err
	}
	all, err := s.page(ctx, q, dead)
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
		v, err := s.conn.Write(ctx, raiseScript, []string{k.body, k.state, k.history, k.dead, k.deadIDs, k.due[redrive.LaneRedrive], k.ids, k.forget}, args...)
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

// browsed is the queue that a look for at most limit entries is about.
func (s *Source) browsed(ctx context.Context, queue string, limit int) (*queue, error) {
	if limit < 1 {
		return nil, &redrive.Error{Op: "look", Queue: queue, Err: fmt.Errorf("%w limit %d", redrive.ErrInvalid, limit), Hint: "ask for at least one"}
	}
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	return s.queue(queue)
}

// placed is an entry's number and since when it is in flight, -1 if it is not.
type placed struct {
	n       string
	claimed int64
}

// orderPage is how many numbers one call reads, few enough that the server is never held up.
const orderPage = 500

// order reads the first numbers of a sorted set. What is settled meanwhile may be missed.
func (s *Source) order(ctx context.Context, q *queue, set string, limit int) (all []placed, err error) {
	for len(all) < limit {
		most := min(limit-len(all), orderPage)
		v, err := s.conn.Run(ctx, orderScript, []string{set, q.keys.state}, len(all), most)
		if err != nil {
			return nil, redisconn.Fault(err)
		}
		list, ok := v.([]any)
		if !ok || len(list)%2 != 0 {
			return nil, badAnswer(orderScript.Name(), v)
		}
		for pair := range slices.Chunk(list, 2) {
			n, _ := pair[0].(string)
			claimed, _ := pair[1].(int64)
			all = append(all, placed{n, claimed})
		}
		if len(list)/2 < most {
			break
		}
	}
	return all, nil
}

// page reads entries, a hundred a call. What is settled meanwhile is not there.
func (s *Source) page(ctx context.Context, q *queue, numbers []placed) ([]paged, error) {
	k := q.keys
	var all []paged
	for part := range slices.Chunk(numbers, batch) {
		args := make([]any, len(part))
		for i := range part {
			args[i] = part[i].n
		}
		v, err := s.conn.Run(ctx, pageScript, []string{k.body, k.state, k.history, k.leases}, args...)
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
	}
	return all, nil
}
