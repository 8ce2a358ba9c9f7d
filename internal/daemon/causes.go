package daemon

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
	"github.com/redrive/redrive/plan"
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
	list, err := a.causes(r.Context(), q, who, a.utcNow(r))
	if err != nil {
		return err
	}
	if life := r.URL.Query().Get("life"); life != "" {
		list.Items = slices.DeleteFunc(list.Items, func(c wire.Cause) bool { return c.State != life })
	}
	return writeJSON(w, http.StatusOK, list)
}

// causes returns the causes of what matches, as the caller may see them at a time.
func (a *app) causes(ctx context.Context, q redrive.Query, who *caller, now time.Time) (list wire.List[wire.Cause], err error) {
	all, err := a.findCauses(ctx, a.finder(who.view()), q, now, time.Time{})
	if err != nil {
		return list, err
	}
	list = wire.List[wire.Cause]{Items: make([]wire.Cause, len(all.causes)), Complete: all.complete}
	for i := range all.causes {
		list.Items[i] = a.showCause(all, &all.causes[i], who)
	}
	return list, nil
}

// found are causes with all that is known of them.
type found struct {
	causes   []driver.Cause
	complete bool
	deaths   map[causeName]*driver.Deaths
	lives    map[string]*wire.CauseLife
	now      time.Time
}

// findCauses returns the causes of dead letters, and when messages died of them: for an hour, or since
// an earlier time, or the first decision about one.
func (a *app) findCauses(ctx context.Context, in plan.Finder, q redrive.Query, now, since time.Time) (*found, error) {
	all := &found{now: now}
	var err error
	if all.causes, all.complete, err = in.Causes(ctx, q); err != nil {
		return nil, err
	}
	if all.lives, err = a.lives(ctx, q.Queue); err != nil {
		return nil, err
	}
	if first := earliest(all.lives, now); since.IsZero() || first.Before(since) {
		since = first
	}
	deaths, err := a.deaths(ctx, redrive.Query{Queue: q.Queue, Reason: q.Reason, Signature: q.Signature, Since: since})
	if err != nil {
		return nil, err
	}
	all.deaths = make(map[causeName]*driver.Deaths, len(deaths))
	for i := range deaths {
		d := &deaths[i]
		all.deaths[causeName{d.Queue, d.Signature, d.Reason}] = d
	}
	return all, nil
}

// showCause returns a cause as the caller may see it.
func (a *app) showCause(all *found, c *driver.Cause, who *caller) wire.Cause {
	shown, series := a.cause(c, who), all.deaths[causeName{c.Queue, c.Signature, c.Reason}]
	shown.Grows(series, all.now)
	a.enliven(&shown, c, series, all.lives, all.now)
	return shown
}

// causeName names a cause.
type causeName struct {
	queue, signature string
	reason           redrive.Reason
}

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
