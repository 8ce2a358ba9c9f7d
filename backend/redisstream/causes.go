package redisstream

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Dead letters by cause. The set of causes has a member for each dead letter of a queue, by
// reason, signature and time of death, so the server counts any range of it by two seeks.

// causeName is a cause as the scripts have it, and the beginning of its members.
func causeName(r redrive.Reason, signature string) string { return string([]byte{byte(r)}) + signature }

// when is a range of times of death in microseconds: from one, before another; 0: no bound.
type when struct{ from, before int64 }

func whenOf(q *redrive.Query) (w when) {
	if !q.Since.IsZero() {
		w.from = micros(q.Since) + int64(bit(q.Since.Nanosecond()%1000 > 0))
	}
	if !q.Until.IsZero() {
		w.before = micros(q.Until) + 1
	}
	return w
}

// texts are the bounds as the members of the set of causes have them.
func (w when) texts() (from, before string) {
	if w.from > 0 {
		from = fmt.Sprintf("%014x", w.from)
	}
	if w.before > 0 {
		before = fmt.Sprintf("%014x", w.before)
	}
	return from, before
}

// lexRange is a range of the set of causes.
type lexRange struct{ low, high string }

// of returns the range of a cause.
func (w when) of(cause string) lexRange {
	from, before := w.texts()
	if before == "" {
		return lexRange{"[" + cause + "\x00" + from, "(" + cause + "\x01"}
	}
	return lexRange{"[" + cause + "\x00" + from, "(" + cause + "\x00" + before}
}

// counted reports whether the set of causes knows all that a query asks for.
func counted(q *redrive.Query) bool {
	rest := *q
	rest.Queue, rest.State, rest.Reason, rest.Signature, rest.Since, rest.Until = "", 0, 0, "", time.Time{}, time.Time{}
	rest.Limit, rest.Bodies = 0, false
	return rest == redrive.Query{}
}

// named returns the queues of a query.
func (s *Store) named(ctx context.Context, q *redrive.Query) ([]string, error) {
	if q.Queue != "" {
		return []string{q.Queue}, nil
	}
	return s.queueNames(ctx)
}

// causesPage is how many causes one script lists, showPage how many it shows examples of.
const (
	causesPage = 500
	showPage   = 50
)

// causesExamined bounds how many dead letters Causes looks at.
const causesExamined = 5 * redrive.Examined

// Causes implements driver.Store. A query by queue, reason, signature and time looks at as
// many dead letters as it returns causes, and lists the causes themselves; any other looks
// at no more than 100,000 dead letters.
func (s *Store) Causes(ctx context.Context, query redrive.Query) ([]driver.Cause, bool, error) {
	after := query.After
	query.State, query.After = redrive.StateDead, ""
	if !counted(&query) {
		return s.groupCauses(ctx, query)
	}
	names, err := s.named(ctx, &query)
	if err != nil {
		return nil, false, err
	}
	query.After = after
	at, paged := driver.ParseCauseCursor(after)
	var list []driver.Cause
	for _, name := range slices.Sorted(slices.Values(names)) {
		l := listing{found: make(map[string]int64)}
		if paged {
			if name < at.Queue || len(list) > query.PageLimit() {
				continue
			}
			if l.most = query.PageLimit() + 1; name == at.Queue {
				l.after = causeName(at.Reason, at.Signature)
			}
		}
		for _, q := range s.everywhere(name) {
			if err := s.listCauses(ctx, q, &query, &l); err != nil {
				return nil, false, err
			}
		}
		for cause, n := range l.found {
			list = append(list, driver.Cause{Queue: name, Reason: redrive.Reason(cause[0]), Signature: cause[1:], Count: n})
		}
	}
	list, all := driver.PageCauses(list, &query)
	if err := s.showCauses(ctx, list, whenOf(&query)); err != nil {
		return nil, false, err
	}
	return slices.DeleteFunc(list, func(c driver.Cause) bool { return c.Last.IsZero() }), all, nil // it went meanwhile
}

// groupCauses groups the dead letters of a query that counters do not answer.
func (s *Store) groupCauses(ctx context.Context, query redrive.Query) ([]driver.Cause, bool, error) {
	var found driver.Grouping
	examined := 0
	err := s.scan(ctx, &query, func(it *item, _ cursor) bool {
		if examined++; examined > causesExamined {
			return false
		}
		if e := it.show(true); driver.Match(&query, &e) {
			found.Add(&e)
		}
		return true
	})
	list, all := found.Causes(query.PageLimit())
	return list, all && examined <= causesExamined, err
}

// listing gathers the numbers of a queue's causes, of all its partitions.
type listing struct {
	found map[string]int64
	after string // a cause: those that come after it; "": all
	most  int    // of a partition; 0: any
}

// listCauses adds the numbers of a queue's causes, or of its partition's, to what was found.
func (s *Store) listCauses(ctx context.Context, q *queue, query *redrive.Query, l *listing) error {
	w := whenOf(query)
	since, before := w.texts()
	if query.Signature != "" {
		for _, r := range redrive.Reasons() {
			if query.Reason != 0 && query.Reason != r {
				continue
			}
			cause := causeName(r, query.Signature)
			n, err := s.countRange(ctx, q, w.of(cause))
			if err != nil {
				return err
			}
			if n > 0 {
				l.found[cause] += n
			}
		}
		return nil
	}
	from, stop := "\x01", ""
	if query.Reason != 0 {
		from, stop = causeName(query.Reason, ""), causeName(query.Reason+1, "")
	}
	if l.after != "" {
		from = max(from, l.after+"\x01")
	}
	for n := 0; from != "" && (l.most == 0 || n < l.most); {
		got, err := s.conn.Run(ctx, scriptCauses, q.s.keys(q), since, before, "list", from, stop, causesPage)
		if err != nil {
			return s.fail(err)
		}
		page := items(got)
		for i := 1; i+1 < len(page); i += 2 {
			l.found[text(page[i])] += number(page[i+1])
			n++
		}
		from = text(at(page, 0))
	}
	return nil
}

// showCauses fills in when the first and the last of each cause died, and the last one as its
// example.
func (s *Store) showCauses(ctx context.Context, list []driver.Cause, w when) error {
	since, before := w.texts()
	byQueue := make(map[string][]int)
	for i := range list {
		byQueue[list[i].Queue] = append(byQueue[list[i].Queue], i)
	}
	for name, which := range byQueue {
		for _, q := range s.everywhere(name) {
			for page := range slices.Chunk(which, showPage) {
				args := []any{since, before, "show"}
				for _, i := range page {
					args = append(args, causeName(list[i].Reason, list[i].Signature))
				}
				got, err := s.conn.Run(ctx, scriptCauses, q.s.keys(q), args...)
				if err != nil {
					return s.fail(err)
				}
				for n, i := range page {
					if err := q.showCause(&list[i], items(got)[4*n:4*n+4]); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// showCause adds what a partition knows of a cause.
func (q *queue) showCause(c *driver.Cause, v []any) error {
	id, blob := text(v[2]), text(v[3])
	if blob == "" {
		return nil
	}
	if first := moment(number(v[0])); c.First.IsZero() || first.Before(c.First) {
		c.First = first
	}
	if last := moment(number(v[1])); !last.Before(c.Last) {
		it, err := q.decode("d"+id, blob, "", 0, 0)
		if err != nil {
			return err
		}
		c.Last, c.Example = last, it.msg.Ref()
		c.Show(it.history.Latest())
	}
	return nil
}
