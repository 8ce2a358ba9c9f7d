package driver

import (
	"context"
	"time"

	"github.com/redrive/redrive"
)

// Deaths is how often messages died of one cause, by time. Unlike [Cause.Count] it counts
// deaths: a redrive does not lower it.
type Deaths struct {
	Queue     string
	Reason    redrive.Reason
	Signature string        // [OtherCauses] for all causes that share one series
	Buckets   []DeathBucket // oldest first, without empty ones
}

// DeathBucket counts deaths from Start until Start plus Width.
type DeathBucket struct {
	Start time.Time
	Width time.Duration // a minute, an hour or a day; starts are multiples of it since 1970, in UTC
	Count int64
}

// How long deaths are kept in buckets of which width: minutes for an hour, hours for three
// days, days for thirty. [Store.Trim] adds older buckets up and removes the oldest.
const (
	DeathMinutes = time.Hour
	DeathHours   = 3 * 24 * time.Hour
	DeathDays    = 30 * 24 * time.Hour
)

// MaxDeathSeries is how many causes of a queue have a series of their own; the deaths of
// further ones are counted under [OtherCauses].
const MaxDeathSeries = 5000

// OtherCauses is the signature of the series of the causes beyond MaxDeathSeries, with the
// reason 0.
const OtherCauses = "other"

// DeathWidth is the width of the bucket for a death of some age, and 0 for one that is too
// old for any.
func DeathWidth(age time.Duration) time.Duration {
	switch {
	case age < DeathMinutes:
		return time.Minute
	case age < DeathHours:
		return time.Hour
	case age < DeathDays:
		return 24 * time.Hour
	}
	return 0
}

// CountFound is [Store.Count] for a query that no counter answers: it counts what find, a
// store's Find, returns until [redrive.Examined] entries were looked at.
func CountFound(ctx context.Context, find func(context.Context, redrive.Query) (Page, error), q redrive.Query) (Count, error) {
	var c Count
	q.Limit, q.Bodies = redrive.MaxPage, false
	for c.Examined < redrive.Examined {
		page, err := find(ctx, q)
		if err != nil {
			return Count{}, err
		}
		c.N += int64(len(page.Entries))
		c.Examined += int64(page.Examined)
		c.Index = page.Index && (c.Index || q.After == "")
		if page.Next == "" {
			c.Complete = true
			return c, nil
		}
		if !page.Complete {
			break
		}
		q.After = page.Next
	}
	return c, nil
}

// Count is how many entries match a query.
type Count struct {
	N int64
	// Complete is false when [redrive.Examined] entries were looked at and there are
	// more: then N is only how many of these match.
	Complete bool
	Examined int64 // how many entries were looked at; 0: counters by themselves answered
	Index    bool  // as in [Page]
}

// CausesFound is [Store.Causes] for a query that no counter answers: of what find, a store's Find,
// returns until [redrive.Examined] entries were looked at.
func CausesFound(ctx context.Context, find func(context.Context, redrive.Query) (Page, error), q redrive.Query) (list []Cause, complete bool, err error) {
	limit := q.PageLimit()
	q.State, q.Limit, q.Bodies = redrive.StateDead, causesPage, true
	var all Grouping
	for examined := 0; examined < redrive.Examined; {
		page, err := find(ctx, q)
		if err != nil {
			return nil, false, err
		}
		for i := range page.Entries {
			all.Add(&page.Entries[i])
		}
		if q.After, examined = page.Next, examined+page.Examined; q.After == "" || !page.Complete {
			break
		}
	}
	list, complete = all.Causes(limit)
	return list, complete && q.After == "", nil
}

// causesPage is how many entries are read at once with their bodies, to group them.
const causesPage = 100
