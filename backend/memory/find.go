package memory

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Get implements driver.Store.
func (s *Store) Get(ctx context.Context, refs []redrive.Ref) ([]*redrive.Entry, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.step.RUnlock()
	now := s.now()
	entries := make([]*redrive.Entry, len(refs))
	for i, ref := range refs {
		q := s.lookup(ref.Queue)
		if q == nil {
			continue
		}
		q.mu.Lock()
		q.refresh(now)
		if it := q.byID[ref.ID]; it != nil {
			e := it.entry(true)
			entries[i] = &e
		}
		q.mu.Unlock()
	}
	return entries, nil
}

// Recall implements driver.Store.
func (s *Store) Recall(ctx context.Context, refs []redrive.Ref) ([]*driver.Remembered, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.step.RUnlock()
	now := s.now()
	found := make([]*driver.Remembered, len(refs))
	for i, ref := range refs {
		q := s.lookup(ref.Queue)
		if q == nil {
			continue
		}
		q.mu.Lock()
		if r := q.recall(ref.ID, now); r != nil {
			found[i] = &driver.Remembered{Ref: ref, Hash: r.hash, Outcome: r.outcome, Reason: r.reason, At: moment(r.at)}
		}
		q.mu.Unlock()
	}
	return found, nil
}

// entry is what a look into the store shows of an item.
func (it *item) entry(bodies bool) redrive.Entry {
	e := it.whole()
	if !bodies {
		e.Body, e.Headers, e.History, e.Original = nil, nil, redrive.History{Count: e.History.Count}, nil
		e.Checksum, e.OriginalChecksum = nil, nil
	}
	return e
}

func (it *item) whole() redrive.Entry {
	e := redrive.Entry{
		Message: it.msg, State: it.state(), Lane: it.lane,
		Attempts: it.attempts, Crashes: it.crashes, Suspect: it.suspect,
	}
	switch {
	case it.place == leased:
		e.Until, e.Instance, e.Token = moment(it.until), it.instance, it.token
	case !it.dead:
		e.Due = moment(it.due)
	}
	if it.dead {
		e.Reason, e.DiedAt = it.reason, moment(it.died)
	}
	e.History, e.Original = it.history, it.original
	sum, first := it.sum, it.firstSum
	if e.Checksum = &sum; e.Original != nil {
		e.OriginalChecksum = &first
	}
	return e
}

func (it *item) state() redrive.State {
	switch {
	case it.dead:
		return redrive.StateDead
	case it.place == leased:
		return redrive.StateLeased
	case it.place == blocked:
		return redrive.StateBlocked
	}
	return redrive.StateWaiting
}

// matches reports whether a query selects an item.
func (it *item) matches(q *redrive.Query) bool {
	e := it.whole()
	return driver.Match(q, &e)
}

// cursor is a place in the stable order of all entries: by queue, the waiting before
// the dead, then by seq.
type cursor struct {
	queue string
	dead  bool
	seq   uint64
}

func (c cursor) String() string {
	section := "w"
	if c.dead {
		section = "d"
	}
	return c.queue + "/" + section + strconv.FormatUint(c.seq, 10)
}

func parseCursor(s string) (cursor, error) {
	if s == "" {
		return cursor{}, nil
	}
	queue, rest, ok := strings.Cut(s, "/")
	if ok && rest != "" && (rest[0] == 'w' || rest[0] == 'd') {
		if seq, err := strconv.ParseUint(rest[1:], 10, 64); err == nil {
			return cursor{queue, rest[0] == 'd', seq}, nil
		}
	}
	return cursor{}, fmt.Errorf("%w place %q: take it from the page before", redrive.ErrInvalid, s)
}

// scan visits the items that a query may select, from its place on, until visit
// returns false. The caller holds the step lock.
func (s *Store) scan(query *redrive.Query, now int64, visit func(*queue, *item, cursor) bool) error {
	at, err := parseCursor(query.After)
	if err != nil {
		return err
	}
	names := []string{query.Queue}
	if query.Queue == "" {
		names = s.names()
	}
	for _, name := range names {
		if q := s.lookup(name); q != nil && name >= at.queue && !q.scan(query, at, now, visit) {
			return nil
		}
	}
	return nil
}

func (q *queue) scan(query *redrive.Query, at cursor, now int64, visit func(*queue, *item, cursor) bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refresh(now)
	from := func(dead bool) uint64 {
		if at.queue == q.name && at.dead == dead {
			return at.seq
		}
		return 0
	}
	wantWaiting := query.State != redrive.StateDead && query.Reason == 0 && (at.queue != q.name || !at.dead)
	if wantWaiting {
		for it := range q.waiting.after(from(false)) {
			if !visit(q, it, cursor{q.name, false, it.seq}) {
				return false
			}
		}
	}
	if query.State == 0 || query.State == redrive.StateDead {
		for it := range q.dead.after(from(true)) {
			if !visit(q, it, cursor{q.name, true, it.seq}) {
				return false
			}
		}
	}
	return true
}

// Find implements driver.Store. The order is by queue, the waiting before the dead,
// each in the order in which they came to be that.
func (s *Store) Find(ctx context.Context, query redrive.Query) (driver.Page, error) {
	if err := s.enter(ctx); err != nil {
		return driver.Page{}, err
	}
	defer s.step.RUnlock()
	page := driver.Page{Complete: true}
	limit, examined := query.PageLimit(), 0
	var last cursor
	err := s.scan(&query, s.now(), func(_ *queue, it *item, at cursor) bool {
		if len(page.Entries) == limit || examined == redrive.Examined {
			page.Next = last.String()
			page.Complete = len(page.Entries) == limit
			return false
		}
		examined++
		last = at
		if it.matches(&query) {
			page.Entries = append(page.Entries, it.entry(query.Bodies))
		}
		return true
	})
	page.Examined = examined
	return page, err
}

// Causes implements driver.Store. It always counts all.
func (s *Store) Causes(ctx context.Context, query redrive.Query) ([]driver.Cause, bool, error) {
	if err := s.enter(ctx); err != nil {
		return nil, false, err
	}
	defer s.step.RUnlock()
	after := query.After
	query.State, query.After = redrive.StateDead, ""
	var found driver.Grouping
	err := s.scan(&query, s.now(), func(_ *queue, it *item, _ cursor) bool {
		if e := it.whole(); driver.Match(&query, &e) {
			found.Add(&e)
		}
		return true
	})
	query.After = after
	list, all := found.Page(&query)
	return list, all, err
}
