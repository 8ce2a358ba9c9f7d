package daemon

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// listCauses counts dead letters by cause, and tells which of them grow.
func (a *app) listCauses(w http.ResponseWriter, r *http.Request, who *caller) error {
	q, after, limit, err := a.deadQuery(r, who, "life")
	if err != nil {
		return err
	}
	if after != "" {
		return bad("causes have no pages", "narrow the filter, or raise limit")
	}
	q.Limit = limit
	var list wire.List[wire.Cause]
	if life := r.URL.Query().Get("life"); life == "" {
		list, err = a.causes(r.Context(), q, who, a.utcNow(r))
	} else {
		list, err = a.causesOf(r.Context(), q, who, a.utcNow(r), life)
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, list)
}

// causes returns the largest causes of what matches, as the caller may see them at a time.
func (a *app) causes(ctx context.Context, q redrive.Query, who *caller, now time.Time) (list wire.List[wire.Cause], err error) {
	found, complete, err := a.finder(who.view()).Causes(ctx, q)
	if err != nil {
		return list, err
	}
	h, err := a.histories(ctx, &q, now, time.Time{})
	if err != nil {
		return list, err
	}
	list = wire.List[wire.Cause]{Items: make([]wire.Cause, len(found)), Complete: complete}
	for i := range found {
		if err := a.countLate(ctx, h, &found[i]); err != nil {
			return list, err
		}
		list.Items[i] = a.showCause(h, &found[i], who)
	}
	return list, nil
}

// causesOf returns the largest causes in a state. All causes are looked at if counters know them,
// else the largest of those that match.
func (a *app) causesOf(ctx context.Context, q redrive.Query, who *caller, now time.Time, life string) (wire.List[wire.Cause], error) {
	all := largest[wire.Cause]{most: q.PageLimit(), order: func(x, y wire.Cause) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Queue, y.Queue), cmp.Compare(x.Reason, y.Reason), cmp.Compare(x.Signature, y.Signature))
	}}
	add := func(c wire.Cause) {
		if c.State == life {
			all.add(c)
		}
	}
	complete := true
	if counted := (redrive.Query{Queue: q.Queue, State: q.State, Reason: q.Reason, Signature: q.Signature, Limit: q.Limit}); q == counted {
		h, err := a.histories(ctx, &q, now, time.Time{})
		if err != nil {
			return wire.List[wire.Cause]{}, err
		}
		for c, err := range a.eachCause(ctx, &q, h) {
			if err != nil {
				return wire.List[wire.Cause]{}, err
			}
			add(a.showCause(h, c, who))
		}
	} else {
		q.Limit = redrive.MaxPage
		found, err := a.causes(ctx, q, who, now)
		if err != nil {
			return found, err
		}
		for i := range found.Items {
			add(found.Items[i])
		}
		complete = found.Complete
	}
	items, fit := all.list()
	return wire.List[wire.Cause]{Items: append([]wire.Cause{}, items...), Complete: complete && fit}, nil
}

// histories are what is known of causes beside their numbers: when messages died of them, and what
// people decided.
type histories struct {
	deaths map[causeName]*driver.Deaths
	lives  map[string]*wire.CauseLife
	late   map[causeName]lateDeaths
	now    time.Time
}

// histories reads those of the causes that match by queue, reason and signature: for an hour, or since
// an earlier time, or the first decision about one.
func (a *app) histories(ctx context.Context, q *redrive.Query, now, since time.Time) (*histories, error) {
	h := &histories{now: now, deaths: make(map[causeName]*driver.Deaths), late: make(map[causeName]lateDeaths)}
	var err error
	if h.lives, err = a.lives(ctx, q.Queue); err != nil {
		return nil, err
	}
	if first := earliest(h.lives, now); since.IsZero() || first.Before(since) {
		since = first
	}
	deaths, err := a.deaths(ctx, redrive.Query{Queue: q.Queue, Reason: q.Reason, Signature: q.Signature, Since: since})
	if err != nil {
		return nil, err
	}
	for i := range deaths {
		d := &deaths[i]
		h.deaths[causeName{d.Queue, d.Signature, d.Reason}] = d
	}
	return h, nil
}

// eachCause goes through all causes that match by queue, reason and signature, so that each may be shown.
func (a *app) eachCause(ctx context.Context, q *redrive.Query, h *histories) iter.Seq2[*driver.Cause, error] {
	return func(yield func(*driver.Cause, error) bool) {
		for c, err := range driver.AllCauses(ctx, a.store, *q) {
			if err == nil {
				err = a.countLate(ctx, h, c)
			}
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}

// showCause returns a cause as the caller may see it.
func (a *app) showCause(h *histories, c *driver.Cause, who *caller) wire.Cause {
	shown, name := a.cause(c, who), nameOf(c)
	shown.Grows(h.deaths[name], h.now)
	a.enliven(&shown, c, h)
	return shown
}

// causeName names a cause.
type causeName struct {
	queue, signature string
	reason           redrive.Reason
}

func nameOf(c *driver.Cause) causeName { return causeName{c.Queue, c.Signature, c.Reason} }

// causeDeaths tells when messages died of a cause, in all queues that the caller names.
func (a *app) causeDeaths(w http.ResponseWriter, r *http.Request, who *caller) error {
	v, err := parameters(r, "queue", "reason", "since")
	if err != nil {
		return err
	}
	f := wire.Filter{Queue: v.Get("queue"), Reason: v.Get("reason"), Since: v.Get("since"), Signature: r.PathValue("signature")}
	if err := who.confine(f.Queue); err != nil {
		return err
	}
	if f.Queue != "" {
		if _, err := a.existing(r, f.Queue); err != nil {
			return err
		}
	}
	q, err := f.Query(a.utcNow(r))
	if err != nil {
		return err
	}
	deaths, err := a.deaths(r.Context(), q)
	if err != nil {
		return err
	}
	list := wire.List[wire.Deaths]{Items: make([]wire.Deaths, len(deaths)), Complete: true}
	for i := range deaths {
		list.Items[i] = wire.DeathsOf(&deaths[i])
	}
	return writeJSON(w, http.StatusOK, list)
}

// deaths returns what the store knows of deaths by time, which may be nothing.
func (a *app) deaths(ctx context.Context, q redrive.Query) ([]driver.Deaths, error) {
	list, err := a.store.Deaths(ctx, q)
	if errors.Is(err, redrive.ErrUnsupported) {
		return nil, nil
	}
	return list, err
}
