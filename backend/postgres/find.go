package postgres

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Get implements driver.Store.
func (s *Store) Get(ctx context.Context, refs []redrive.Ref) ([]*redrive.Entry, error) {
	entries := make([]*redrive.Entry, len(refs))
	if len(refs) == 0 {
		return entries, s.ready(ctx)
	}
	now, err := s.Now(ctx)
	if err != nil {
		return nil, err
	}
	found := make(map[redrive.Ref]*redrive.Entry, len(refs))
	queues, ids := names(refs)
	err = s.read(ctx, "get_messages", nil, func(r row) error {
		m, err := scanMessage(r)
		if err != nil {
			return err
		}
		found[m.Ref()], err = m.Entry(now, true)
		return err
	}, queues, ids)
	if err != nil {
		return nil, err
	}
	for i, ref := range refs {
		entries[i] = found[ref]
	}
	return entries, nil
}

// Recall implements driver.Store.
func (s *Store) Recall(ctx context.Context, refs []redrive.Ref) ([]*driver.Remembered, error) {
	found := make([]*driver.Remembered, len(refs))
	queues, ids := names(refs)
	err := s.read(ctx, "recall", nil, func(r row) error {
		var ord, outcome, reason int
		var hash int64
		var at time.Time
		if err := r.Scan(&ord, &hash, &outcome, &reason, &at); err != nil {
			return err
		}
		found[ord-1] = &driver.Remembered{Ref: refs[ord-1], Hash: uint64(hash), //nolint:gosec // the bits are what counts
			Outcome: redrive.Outcome(outcome), Reason: redrive.Reason(reason), At: at.UTC()} //nolint:gosec // small
		return nil
	}, queues, ids)
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Find implements driver.Store. Waiting messages come in the order of their ids, dead
// letters in that of their death, queue by queue.
func (s *Store) Find(ctx context.Context, q redrive.Query) (driver.Page, error) {
	page := driver.Page{Complete: true}
	if err := s.ready(ctx); err != nil {
		return page, err
	}
	at, err := sqlstore.ParseMark(q.After)
	if err != nil {
		return page, err
	}
	now, err := s.Now(ctx)
	if err != nil {
		return page, err
	}
	f := finder{store: s, query: &q, at: at, now: now, page: &page, left: redrive.Examined}
	return page, f.find(ctx)
}

// finder fills a page.
type finder struct {
	store *Store
	query *redrive.Query
	at    sqlstore.PageMark
	now   time.Time
	page  *driver.Page
	left  int // how many may still be looked at
}

var errFull = errors.New("the page is full")

func (f *finder) find(ctx context.Context) error {
	queues := []string{f.query.Queue}
	if f.query.Queue == "" {
		queues = nil
		err := f.store.read(ctx, "queue_names", func() { queues = nil }, func(r row) error {
			var name string
			err := r.Scan(&name)
			queues = append(queues, name)
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, queue := range queues {
		if queue < f.at.Queue {
			continue
		}
		if queue > f.at.Queue {
			f.at = sqlstore.PageMark{Queue: queue}
		}
		for _, dead := range []bool{false, true} {
			if dead && !f.at.Dead {
				f.at = sqlstore.PageMark{Queue: queue, Dead: true}
			}
			if dead != f.at.Dead || !f.wants(dead) {
				continue
			}
			if err := f.search(ctx); err != nil {
				if errors.Is(err, errFull) {
					return nil
				}
				return err
			}
		}
	}
	return nil
}

// wants reports whether waiting or dead messages can be what is looked for.
func (f *finder) wants(dead bool) bool {
	q := f.query
	if dead {
		return q.State == 0 || q.State == redrive.StateDead
	}
	return q.State != redrive.StateDead && q.Reason == 0 && q.Signature == ""
}

// search goes through the waiting or the dead messages of a queue, from f.at on.
func (f *finder) search(ctx context.Context) error {
	room := f.query.PageLimit() - len(f.page.Entries)
	name, args := f.statement(room + 1)
	full := false
	var last sqlstore.PageMark
	err := f.store.read(ctx, name, nil, func(r row) error {
		m, err := scanMessage(r)
		if err != nil {
			return err
		}
		if room == 0 {
			full = true
			return nil
		}
		room--
		last = sqlstore.PageMark{Queue: m.Queue, Dead: m.Dead, Died: m.Died, ID: m.ID}
		e, err := m.Entry(f.now, f.query.Bodies)
		if err != nil {
			return err
		}
		f.page.Entries = append(f.page.Entries, *e)
		return nil
	}, args...)
	if err != nil {
		return err
	}
	if full {
		if last.ID != "" {
			f.at = last
		}
		f.page.Next = f.at.String()
		return errFull
	}
	return f.bound(ctx)
}

// bound ends the page if as many were looked at as may be.
func (f *finder) bound(ctx context.Context) error {
	name, args := f.place()
	reached := false
	err := f.store.read(ctx, name, nil, func(r row) error {
		reached = true
		var died *time.Time
		err := r.Scan(&f.at.ID, &died)
		f.at.Died = timeOf(died)
		return err
	}, args...)
	if err != nil || !reached {
		return err
	}
	f.page.Next, f.page.Complete = f.at.String(), false
	return errFull
}

// statement returns the query of the phase that f.at is in.
func (f *finder) statement(limit int) (name string, args []any) {
	q := f.query
	header, value := headerFilter(q.Header)
	args = []any{f.at.Queue, f.at.ID, f.left, limit, orNullInt(int(q.State)), orNullText(q.Kind), orNullText(q.Key), orNullText(q.Plan),
		orNullText(q.NotPlan), sinceOrNull(q.Since), untilOrNull(q.Until), orNullText(q.Text), header, value}
	switch {
	case f.at.Dead:
		name = "find_dead"
		args = append(args, f.at.Died, orNullInt(int(q.Reason)), orNullText(q.Signature))
	case q.Key != "":
		name = "find_key"
	default:
		name = "find_waiting"
	}
	if q.Bodies {
		name += "_whole"
	}
	return name, args
}

func (f *finder) place() (name string, args []any) {
	q := f.query
	args = []any{f.at.Queue, f.at.ID, f.left}
	switch {
	case f.at.Dead:
		return "find_dead_place", append(args, f.at.Died, sinceOrNull(q.Since), untilOrNull(q.Until), orNullInt(int(q.Reason)), orNullText(q.Signature))
	case q.Key != "":
		return "find_key_place", append(args, q.Key)
	}
	return "find_waiting_place", args
}

func orNullText(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func orNullInt(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

// sinceOrNull and untilOrNull round as the times that they are compared with: those are
// whole microseconds.
func sinceOrNull(t time.Time) *time.Time { return timeOrNull(t) }

func untilOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.Truncate(time.Microsecond)
	return &t
}

// headerFilter is NAME or NAME=VALUE as headers are stored.
func headerFilter(want string) (name, value *string) {
	if want == "" {
		return nil, nil
	}
	n, v, valued := strings.Cut(want, "=")
	n = base64.StdEncoding.EncodeToString([]byte(n))
	if valued {
		v = base64.StdEncoding.EncodeToString([]byte(v))
		value = &v
	}
	return &n, value
}
