package redisstream

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// What a store with partitions holds.

// lookupParts looks where the ids lead, and for what is not there in all other
// partitions: a message with a key stands where that leads.
func (s *Store) lookupParts(ctx context.Context, refs []redrive.Ref) (found []*item, memories []string, err error) {
	found, memories = make([]*item, len(refs)), make([]string, len(refs))
	var mu sync.Mutex
	look := func(p *Store, which []int) {
		some, known, failed := p.lookup(ctx, pick(refs, which))
		mu.Lock()
		defer mu.Unlock()
		if failed != nil {
			err = failed
			return
		}
		for n, i := range which {
			if some[n] != nil {
				found[i] = some[n]
			}
			if known[n] != "" && (some[n] != nil || memories[i] == "") {
				memories[i] = known[n]
			}
		}
	}
	s.each(s.split(len(refs), func(i int) int { return s.leads(refs[i].ID) }), look)
	if err != nil {
		return nil, nil, err
	}
	elsewhere := make([][]int, len(s.parts))
	for i := range refs {
		for p := range s.parts {
			if found[i] == nil && p != s.leads(refs[i].ID) {
				elsewhere[p] = append(elsewhere[p], i)
			}
		}
	}
	s.each(elsewhere, look)
	return found, memories, err
}

// placesPrefix begins a place in the merged order: the places in the partitions follow.
const placesPrefix = "p!"

func formatPlaces(places []string) string {
	parts := make([]string, len(places))
	for i, p := range places {
		parts[i] = base64.RawURLEncoding.EncodeToString([]byte(p))
	}
	return placesPrefix + strings.Join(parts, ".")
}

func (s *Store) parsePlaces(after string) ([]string, error) {
	places := make([]string, len(s.parts))
	if after == "" {
		return places, nil
	}
	rest, ok := strings.CutPrefix(after, placesPrefix)
	parts := strings.Split(rest, ".")
	ok = ok && len(parts) == len(places)
	for i := 0; ok && i < len(parts); i++ {
		b, err := base64.RawURLEncoding.DecodeString(parts[i])
		if err == nil {
			_, err = parseCursor(string(b))
		}
		ok, places[i] = err == nil, string(b)
	}
	if !ok {
		return nil, fmt.Errorf("%w place %q: take it from the page before", redrive.ErrInvalid, after)
	}
	return places, nil
}

// before says whether a place comes before another in the order of Find.
func (c *cursor) before(d *cursor) bool {
	if c.queue != d.queue {
		return c.queue < d.queue
	}
	if a, b := strings.IndexByte(sections, c.section), strings.IndexByte(sections, d.section); a != b {
		return a < b
	}
	switch c.section {
	case 's':
		ms, seq, _ := entryNumbers(c.score)
		ms2, seq2, _ := entryNumbers(d.score)
		return cmp.Or(cmp.Compare(ms, ms2), cmp.Compare(seq, seq2)) < 0
	case 'k':
		return c.member < d.member
	}
	a, _ := strconv.ParseFloat(c.score, 64)
	b, _ := strconv.ParseFloat(d.score, 64)
	return a < b
}

// found is where a scan of a partition stands.
type found struct {
	it   *item
	at   cursor
	next func() (*item, cursor, bool)
	stop func()
	more bool
}

func (f *found) on() { f.it, f.at, f.more = f.next() }

// scanParts merges the scans of all partitions.
func (s *Store) scanParts(ctx context.Context, query *redrive.Query, visit func(*item, cursor) bool) error {
	places, err := s.parsePlaces(query.After)
	if err != nil {
		return err
	}
	errs := make([]error, len(s.parts))
	heads := make([]found, len(s.parts))
	defer func() {
		for i := range heads {
			heads[i].stop()
		}
	}()
	for i, p := range s.parts {
		q := *query
		q.After = places[i]
		heads[i].next, heads[i].stop = iter.Pull2(func(yield func(*item, cursor) bool) { errs[i] = p.scan(ctx, &q, yield) })
	}
	for i := range heads {
		heads[i].on()
	}
	for {
		if err := driver.FirstError(errs); err != nil {
			return err
		}
		least := -1
		for i := range heads {
			if heads[i].more && (least < 0 || heads[i].at.before(&heads[least].at)) {
				least = i
			}
		}
		if least < 0 {
			return nil
		}
		h := &heads[least]
		if !visit(h.it, cursor{places: places}) {
			return nil
		}
		places[least] = h.at.String() // from now on it is behind
		h.on()
	}
}

// tallies returns the tallies of queues by partition.
func (s *Store) tallies(ctx context.Context, queues []string) ([][]*tally, error) {
	all := make([][]*tally, 0, len(queues))
	for page := range slices.Chunk(queues, lookBatch) {
		var keys [][]string
		for _, name := range page {
			for _, q := range s.everywhere(name) {
				keys = append(keys, q.s.keys(q))
			}
		}
		answers, err := s.conn.RunEach(ctx, scriptCounts, keys)
		if err != nil {
			return nil, s.fail(err)
		}
		each := len(keys) / len(page)
		for some := range slices.Chunk(answers, each) {
			list := make([]*tally, each)
			for i := range some {
				list[i] = readTally(some[i])
			}
			all = append(all, list)
		}
	}
	return all, nil
}

// merge adds the counts of a partition.
func merge(c, more *driver.Counts) {
	for lane := range c.Waiting {
		c.Waiting[lane] += more.Waiting[lane]
	}
	c.Leased += more.Leased
	c.Blocked += more.Blocked
	c.Suspects += more.Suspects
	c.Bytes += more.Bytes
	c.Due += more.Due
	c.DueMore = c.DueMore || more.DueMore || c.Due > driver.DueCounted
	c.Due = min(c.Due, driver.DueCounted)
	for lane, due := range more.OldestDue {
		c.OldestDue[lane] = earlier(c.OldestDue[lane], due)
	}
	c.OldestSuspect = earlier(c.OldestSuspect, more.OldestSuspect)
	c.OldestDead = earlier(c.OldestDead, more.OldestDead)
	for reason, n := range more.Dead {
		c.Dead[reason] += n
	}
	mergeLedger(&c.Ledger, &more.Ledger)
}

// earlier returns the earlier of two times; zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func mergeLedger(b, more *driver.Ledger) {
	b.Published += more.Published
	b.Parked += more.Parked
	b.Imported += more.Imported
	b.MovedIn += more.MovedIn
	b.Repeated += more.Repeated
	b.Done += more.Done
	b.Dropped += more.Dropped
	b.Archived += more.Archived
	b.MovedOut += more.MovedOut
}

func mergeAudit(a, more *driver.Audit) {
	mergeLedger(&a.Ledger, &more.Ledger)
	a.Waiting += more.Waiting
	a.Dead += more.Dead
	a.Problems = append(a.Problems, more.Problems...)
}

// mergeEvents makes one event of those of a queue's partitions.
func mergeEvents(events []driver.Event) driver.Event {
	e := events[0]
	for _, more := range events[1:] {
		e.NextDueIn = min(e.NextDueIn, more.NextDueIn)
		e.Lanes |= more.Lanes
		e.Suspects = e.Suspects || more.Suspects
	}
	return e
}
