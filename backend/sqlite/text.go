package sqlite

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// What a dead row has instead of a text.
const (
	noText    int64 = -1 // it has no failure, so that no text is found in it; null in the file
	textApart int64 = 0  // its text is not in the index: a mask names it, or there are too many
)

// textRef binds the text of a dead row.
func (s *stmt) textRef(text int64) *stmt {
	if text == noText {
		return s.null()
	}
	return s.int(text)
}

// colTextRef reads the text of a dead row.
func (s *stmt) colTextRef(i int32) int64 {
	if s.colNull(i) {
		return noText
	}
	return s.colInt(i)
}

// textOf returns the row in table text for the newest failure of a dead letter, which is stored,
// and makes it where there is none.
func (t *tx) textOf(q *queue, r *row) (int64, error) {
	if r.flags&(flagFirst|flagLast) == 0 {
		return noText, nil
	}
	f, err := readFailure(t.read, r.seq, r.flags)
	if err != nil || f == nil {
		return textApart, err
	}
	answer := f.Details[driver.DetailAnswer]
	if t.s.masks.Hides(q.name, f.Message, answer) {
		return textApart, nil
	}
	hash := driver.TextHash(f.Message, answer)
	s := t.read(`SELECT text, error = ? AND answer = ? FROM text WHERE queue = ? AND hash = ?`).text(f.Message).text(answer).int(q.id).int(hash)
	found, there := textApart, false
	for s.next() {
		if there = true; s.colInt(1) == 1 {
			found = s.colInt(0)
		}
	}
	if err := s.done(); err != nil || there || q.state.counts[countTexts] >= t.s.maxTexts {
		return found, err
	}
	t.count(q, countTexts, 1)
	return t.write(`INSERT INTO text (queue, hash, error, answer) VALUES (?, ?, ?, ?) RETURNING text`).int(q.id).int(hash).text(f.Message).text(answer).one()
}

// dropText removes a text that a dead letter had, if it was the last one.
func (t *tx) dropText(q *queue, text int64) error {
	if text <= textApart {
		return nil
	}
	left, err := t.read(`SELECT 1 FROM dead INDEXED BY dead_text WHERE queue = ? AND text = ? LIMIT 1`).int(q.id).int(text).one()
	if err != nil || left != 0 {
		return err
	}
	t.count(q, countTexts, -1)
	return t.write(`DELETE FROM text WHERE text = ?`).int(text).run()
}

// texts are those of a queue that a query selects.
type texts struct {
	matching map[int64]bool
	apart    bool // some dead letters have texts that are not in the index
}

// textsOf looks for a query's text in the distinct texts of a queue.
func (f *finder) textsOf(q *queue) (*texts, error) {
	if f.texts[q.number] != nil {
		return f.texts[q.number], nil
	}
	found := &texts{matching: make(map[int64]bool)}
	query := f.query
	st := f.read(`SELECT text, error, answer FROM text WHERE queue = ? AND (? OR instr(error, ?) > 0 OR instr(answer, ?) > 0)`).
		int(q.number).flag(query.View != redrive.ViewAll).text(query.Text).text(query.Text)
	for st.next() {
		if f.s.masks.Contains(query, q.name, st.colText(1), st.colText(2)) {
			found.matching[st.colInt(0)] = true
		}
	}
	if err := st.done(); err != nil {
		return nil, err
	}
	one, err := f.read(`SELECT 1 FROM dead INDEXED BY dead_text WHERE queue = ? AND text = ? LIMIT 1`).int(q.number).int(textApart).one()
	found.apart = one != 0
	if f.texts == nil {
		f.texts = make(map[int64]*texts)
	}
	f.texts[q.number] = found
	return found, err
}

// hasText reports whether a dead letter has the query's text.
func (f *finder) hasText(q *queue, d *deadRow) (bool, error) {
	found, err := f.textsOf(q)
	if err != nil || d.text != textApart {
		return found != nil && found.matching[d.text], err
	}
	last, err := readFailure(f.read, d.seq, d.flags)
	return f.s.masks.HasText(f.query, q.name, last), err
}

// mostLists is how many texts are followed in the index, each by itself. If more match, so does much of
// what is dead, which is gone through instead.
const mostLists = 1000

// byText reports whether the index of texts leads to the dead letters that a query may select.
func (f *finder) byText(q *queue, phase int64) (bool, error) {
	query := f.query
	if query.Text == "" || phase != phaseDead || query.Plan != "" || query.Edited {
		return false, nil
	}
	found, err := f.textsOf(q)
	return err == nil && len(found.matching) <= mostLists, err
}

// searchTexts goes through the dead letters that have a text, in the order of their death, by one list
// a distinct text.
func (f *finder) searchTexts(q *queue) error {
	found, err := f.textsOf(q)
	if err != nil {
		return err
	}
	lists := slices.Sorted(func(yield func(int64) bool) {
		for text := range found.matching {
			if !yield(text) {
				return
			}
		}
	})
	if found.apart {
		f.scanned = true
		lists = append(lists, textApart)
	}
	for more := len(lists) > 0; more; {
		var places []deadPlace
		if places, more, err = f.merge(q, lists); err != nil {
			return err
		}
		for _, p := range places {
			if f.filled() {
				return nil
			}
			f.examined++
			f.at.a, f.at.b = p.died, p.seq
			e, ok, err := f.dead(q, p.seq)
			if err != nil {
				return err
			}
			if ok {
				f.page.Entries = append(f.page.Entries, *e)
			}
		}
	}
	return nil
}

// deadPlace is a place in the order of death.
type deadPlace struct{ died, seq int64 }

func (p deadPlace) compare(o deadPlace) int {
	return cmp.Or(cmp.Compare(p.died, o.died), cmp.Compare(p.seq, o.seq))
}

// merge reads the beginnings of lists behind the cursor, and returns what of them comes before
// anything that was not read, and whether there is more.
func (f *finder) merge(q *queue, lists []int64) (places []deadPlace, more bool, err error) {
	from, until := f.span()
	end := deadPlace{math.MaxInt64, math.MaxInt64}
	most := max(int64(f.query.PageLimit())+1, redrive.Examined/10/int64(len(lists)))
	for _, text := range lists {
		st := f.read(`SELECT died, seq FROM dead INDEXED BY dead_text WHERE queue = ? AND text = ? AND (died, seq) > (?, ?) AND died <= ? ORDER BY died, seq LIMIT ?`).
			int(q.number).int(text).int(from.a).int(from.b).int(until).int(most)
		n := int64(0)
		for ; st.next(); n++ {
			places = append(places, deadPlace{st.colInt(0), st.colInt(1)})
		}
		if err := st.done(); err != nil {
			return nil, false, err
		}
		if last := len(places) - 1; n == most {
			if more = true; places[last].compare(end) < 0 {
				end = places[last]
			}
		}
	}
	slices.SortFunc(places, deadPlace.compare)
	for len(places) > 0 && places[len(places)-1].compare(end) > 0 {
		places = places[:len(places)-1]
	}
	return places, more, nil
}

// isOfText reports whether a query asks for dead letters by text, queue and time only.
func isOfText(q redrive.Query) bool {
	dead := q.State == redrive.StateDead && q.Text != ""
	q.Queue, q.State, q.Text, q.View, q.Since, q.Until, q.Limit, q.Bodies = "", 0, "", 0, time.Time{}, time.Time{}, 0, false
	return dead && q == redrive.Query{}
}

// countOfText counts dead letters by the index of texts, and reports false where it does not lead to
// all of them.
func (s *Store) countOfText(ctx context.Context, q *redrive.Query) (c driver.Count, ok bool, err error) {
	err = s.read(ctx, func(r *conn) error {
		return snapshot(r, func() error {
			c, ok = driver.Count{Complete: true, Index: true}, false
			f := finder{s: s, read: r.stmt, query: q}
			from, until := f.span()
			for _, queue := range f.queues() {
				found, err := f.textsOf(queue)
				if err != nil || found.apart {
					return err
				}
				for text := range found.matching {
					n, err := r.stmt(`SELECT count(*) FROM dead INDEXED BY dead_text WHERE queue = ? AND text = ? AND died > ? AND died <= ?`).
						int(queue.number).int(text).int(from.a).int(until).one()
					if err != nil {
						return err
					}
					c.N += n
				}
			}
			c.Examined, ok = c.N, true
			return nil
		})
	})
	return c, ok, err
}
