package daemon

import (
	"context"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// mostWatched is how many causes listeners hear of; beyond, they hear that there are more.
const mostWatched = 20_000

// moreKey is the key of the event that says so. No cause has it.
const moreKey = "more"

// watchedCauses are the causes of one look for listeners.
type watchedCauses struct {
	histories *histories
	causes    []driver.Cause
	more      map[string]int // how many are left out, by queue
}

// watchCauses looks at all causes. Of too many those stay that were there at the look before, so that
// nobody hears that one is gone while it is not. Only the collector of events calls it.
func (a *app) watchCauses(ctx context.Context, now time.Time, most int) (*watchedCauses, error) {
	h, err := a.histories(ctx, &redrive.Query{}, now, time.Time{})
	if err != nil {
		return nil, err
	}
	all := &watchedCauses{histories: h, more: make(map[string]int)}
	var others []driver.Cause
	for c, err := range a.eachCause(ctx, &redrive.Query{}, h) {
		switch {
		case err != nil:
			return nil, err
		case a.watched[nameOf(c)]:
			all.causes = append(all.causes, *c)
		case len(others) < most:
			others = append(others, *c)
		default:
			all.more[c.Queue]++
		}
	}
	room := min(len(others), most-len(all.causes))
	all.causes = append(all.causes, others[:room]...)
	for i := range others[room:] {
		all.more[others[room+i].Queue]++
	}
	a.watched = make(map[causeName]bool, len(all.causes))
	for i := range all.causes {
		a.watched[nameOf(&all.causes[i])] = true
	}
	return all, nil
}

// show renders the causes that a caller may see.
func (all *watchedCauses) show(a *app, who *caller, items map[string]any) {
	for i := range all.causes {
		if c := &all.causes[i]; who.sees(c.Queue) {
			items[c.Queue+"/"+c.Reason.String()+"/"+c.Signature] = a.showCause(all.histories, c, who)
		}
	}
	more := 0
	for queue, n := range all.more {
		if who.sees(queue) {
			more += n
		}
	}
	if more > 0 {
		items[moreKey] = wire.MoreCauses{More: more}
	}
}
