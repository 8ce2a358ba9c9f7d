package postgres

import (
	"context"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// storeTexts puts texts into the table of distinct ones.
func (s *Store) storeTexts(ctx context.Context, list []sqlstore.Text) (there []sqlstore.StoredText, err error) {
	err = s.one(ctx, "store_texts", func() { there = nil }, func(r row) error {
		var k sqlstore.StoredText
		err := r.Scan(&k.Queue, &k.Hash, &k.New)
		there = append(there, k)
		return err
	}, part(list, func(t *sqlstore.Text) string { return t.Queue }), part(list, func(t *sqlstore.Text) int64 { return t.Hash }),
		part(list, func(t *sqlstore.Text) string { return t.Error }), part(list, func(t *sqlstore.Text) string { return t.Answer }),
		part(list, func(t *sqlstore.Text) bool { return t.Room }))
	return there, err
}

func (s *Store) numberOfTexts(ctx context.Context, queue string) (n int, err error) {
	err = s.one(ctx, "number_of_texts", nil, func(r row) error { return r.Scan(&n) }, queue, driver.MaxTexts)
	return n, err
}

// textsOf looks for a query's text in the distinct texts of a queue. apart: some dead letters have
// texts that are not there.
func (s *Store) textsOf(ctx context.Context, queue string, q *redrive.Query) (matching map[int64]bool, apart bool, err error) {
	err = s.read(ctx, "texts", func() { matching, apart = make(map[int64]bool), false }, func(r row) error {
		var hash int64
		var text, answer string
		err := r.Scan(&hash, &text, &answer)
		switch {
		case hash == 0:
			apart = true
		case s.base.Masks.Contains(q, queue, text, answer):
			matching[hash] = true
		}
		return err
	}, queue, q.Text, q.Shown)
	return matching, apart, err
}

// mostLists is how many texts are followed in the index, each by itself. If more match, so does much of
// what is dead, which is gone through instead.
const mostLists = 1000

// searchTexts goes through the dead letters that have a text, in the order of their death.
func (d dialect) searchTexts(ctx context.Context, f *sqlstore.Finder) (end *sqlstore.PageCursor, err error) {
	q := f.Query
	matching, apart, err := d.textsOf(ctx, f.At.Queue, q)
	if err != nil {
		return nil, err
	}
	name, lists := "find_texts", make([]int64, 0, len(matching)+1)
	for hash := range matching {
		lists = append(lists, hash)
	}
	if apart {
		lists = append(lists, 0)
	}
	if len(lists) > mostLists {
		name, lists = "find_said", []int64{}
	} else if len(lists) == 0 {
		return nil, nil
	}
	if apart || len(lists) == 0 {
		f.Scanned()
	}
	most := max(f.Limit(), redrive.Examined/10/max(len(lists), 1))
	if q.Body != "" || q.Header != "" || q.Edited { // each has to be looked into
		name, most = name+"_whole", f.Limit()
	} else if q.Bodies {
		defer func() {
			if err == nil {
				err = f.Load(ctx)
			}
		}()
	}
	at := sqlstore.PageCursor{Died: f.At.Died, ID: f.At.ID}
	for {
		var page []*sqlstore.Message
		err := d.read(ctx, name, func() { page = nil }, func(r row) error {
			m, err := scanMessage(r)
			page = append(page, m)
			return err
		}, f.At.Queue, at.Died, at.ID, sinceOrNull(q.Since), untilOrNull(q.Until), most, lists)
		if err != nil {
			return nil, err
		}
		for _, m := range page {
			if !f.Look() {
				return &at, nil
			}
			at.Died, at.ID = m.Died, m.ID
			if ok, err := d.says(f, m, matching); err != nil || !ok {
				if err != nil {
					return nil, err
				}
				continue
			}
			if !q.Bodies {
				m.Headers, m.Body = nil, nil
			}
			if err := f.Add(m); err != nil || f.Full() {
				return nil, err
			}
		}
		if len(page) < most {
			return nil, nil
		}
	}
}

// says reports whether a query selects a dead letter, of which what it looks at was read.
func (d dialect) says(f *sqlstore.Finder, m *sqlstore.Message, matching map[int64]bool) (bool, error) {
	q := *f.Query
	if m.Text == nil || *m.Text != 0 && !matching[*m.Text] || q.Reason != 0 && q.Reason != m.Reason || q.Signature != "" && q.Signature != m.Signature {
		return false, nil
	}
	e, err := m.Entry(f.Now(), q.Edited)
	if err != nil || !driver.MatchMessage(&q, e) {
		return false, err
	}
	return *m.Text != 0 || d.base.Masks.HasText(&q, m.Queue, m.LatestFailure()), nil
}

// CountText implements sqlstore.Server.
func (d dialect) CountText(ctx context.Context, q *redrive.Query) (n int64, ok bool, err error) {
	queues := []string{q.Queue}
	if q.Queue == "" {
		if queues, err = d.QueueNames(ctx); err != nil {
			return 0, false, err
		}
	}
	for _, queue := range queues {
		matching, apart, err := d.textsOf(ctx, queue, q)
		if err != nil || apart {
			return 0, false, err
		}
		var lists []int64
		for hash := range matching {
			lists = append(lists, hash)
		}
		var in int64
		err = d.read(ctx, "count_texts", nil, func(r row) error { return r.Scan(&in) }, queue, sinceOrNull(q.Since), untilOrNull(q.Until), lists)
		if err != nil {
			return 0, false, err
		}
		n += in
	}
	return n, true, nil
}
