package redisstream

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redisconn"
)

// matches reports whether a query selects an item.
func (it *item) matches(q *redrive.Query) bool {
	e := it.show(true)
	return driver.Match(q, &e)
}

// cursor is a place in the order of Find: by queue, then entries of the stream, indexed
// messages by time of publication, and dead letters by time of death.
type cursor struct {
	queue   string
	section byte // one of sections
	score   string
	member  string
	places  []string // instead: those in all partitions
}

const sections = "skwd"

func (c *cursor) String() string {
	if c.places != nil {
		return formatPlaces(c.places)
	}
	return c.queue + "/" + string(c.section) + c.score + "/" + c.member
}

func parseCursor(s string) (c cursor, err error) {
	if s == "" {
		return cursor{}, nil
	}
	queue, rest, ok := strings.Cut(s, "/")
	score, member, ok2 := strings.Cut(rest, "/")
	if ok && ok2 && score != "" && strings.IndexByte(sections, score[0]) >= 0 {
		c = cursor{queue: queue, section: score[0], score: score[1:], member: member}
		_, _, entry := entryNumbers(c.score)
		_, err := strconv.ParseFloat(c.score, 64)
		if c.score == "" || entry == (c.section == 's') && entry != (err == nil) {
			return c, nil
		}
	}
	return cursor{}, fmt.Errorf("%w place %q: take it from the page before", redrive.ErrInvalid, s)
}

// findPage is how many messages one script reads: about 3 ms of the server's time.
const findPage = 50

// scan visits the messages that a query may select, from its place on, until visit
// returns false.
func (s *Store) scan(ctx context.Context, query *redrive.Query, visit func(*item, cursor) bool) error {
	if s.parts != nil {
		return s.scanParts(ctx, query, visit)
	}
	from, err := parseCursor(query.After)
	if err != nil {
		return err
	}
	names := []string{query.Queue}
	if query.Queue == "" {
		if names, err = s.queueNames(ctx); err != nil {
			return err
		}
	}
	for _, name := range names {
		if name < from.queue {
			continue
		}
		for i := range len(sections) {
			c := cursor{queue: name, section: sections[i]}
			if name == from.queue && from.section != 0 {
				if strings.IndexByte(sections, from.section) > i {
					continue
				}
				if from.section == c.section {
					c = from
				}
			}
			if !wants(query, c.section) {
				continue
			}
			if on, err := s.scanSection(ctx, c, query, visit); err != nil || !on {
				return err
			}
		}
	}
	return nil
}

// wants says whether a section may hold what a query selects.
func wants(q *redrive.Query, section byte) bool {
	if section == 'd' {
		return q.State == 0 || q.State == redrive.StateDead
	}
	waiting := q.State != redrive.StateDead && q.Reason == 0
	switch section {
	case 's': // what stands there has no key and was never dead
		return waiting && q.Key == "" && q.State != redrive.StateBlocked && !q.Retrying && q.Signature == ""
	case 'k':
		return waiting && q.Key != ""
	}
	return waiting && q.Key == ""
}

func (s *Store) scanSection(ctx context.Context, c cursor, query *redrive.Query, visit func(*item, cursor) bool) (on bool, err error) {
	q := s.queue(c.queue)
	top, cause := "+inf", ""
	if c.section == 'd' && query.Reason != 0 && query.Signature != "" {
		cause = causeName(query.Reason, query.Signature)
	}
	if !query.Until.IsZero() && c.section != 's' {
		top = strconv.FormatInt(micros(query.Until), 10)
	}
	if c.section != 's' && c.section != 'k' && c.score == "" && !query.Since.IsZero() {
		c.score = strconv.FormatInt(micros(query.Since)-1, 10)
		c.member = "~" // behind all of that time
	}
	for {
		got, err := s.conn.Run(ctx, scriptPage, s.keys(q), string(c.section), c.score, c.member, findPage, top, query.Key, cause)
		if err != nil {
			return false, s.fail(err)
		}
		list := items(got)
		now := number(at(list, 0))
		for _, v := range list[1:] {
			v := items(v)
			c.score, c.member = text(v[5]), text(v[6])
			if v[1] == "" { // dead, but still in the chain of its key
				continue
			}
			it, err := q.decode(text(v[0]), v[1], text(v[2]), number(v[3]), now)
			if err != nil {
				return false, err
			}
			it.blocked = number(v[4]) == 1
			if !visit(it, c) {
				return false, nil
			}
		}
		if len(list)-1 < findPage {
			return true, nil
		}
	}
}

// queueNames returns the queues in use, sorted. A step over several partitions names its
// queues in one of them.
func (s *Store) queueNames(ctx context.Context) ([]string, error) {
	if s.whole != nil {
		s = s.whole
	}
	var names []string
	for _, p := range s.all() {
		err := redisconn.Repeated(ctx, func() error {
			some, err := s.conn.SMembers(ctx, p.prefix+":queues").Result()
			names = append(names, some...)
			return err
		})
		if err != nil {
			return nil, s.fail(err)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Find implements driver.Store. The order is by queue; within it what was not touched
// yet, then the others that wait by time of publication, then the dead by time of death.
func (s *Store) Find(ctx context.Context, query redrive.Query) (driver.Page, error) {
	page := driver.Page{Complete: true}
	limit, examined := query.PageLimit(), 0
	var last cursor
	err := s.scan(ctx, &query, func(it *item, c cursor) bool {
		if len(page.Entries) == limit || examined == redrive.Examined {
			page.Next = last.String()
			page.Complete = len(page.Entries) == limit
			return false
		}
		examined++
		last = c
		if it.matches(&query) {
			page.Entries = append(page.Entries, it.show(query.Bodies))
		}
		return true
	})
	page.Examined = examined
	return page, err
}
