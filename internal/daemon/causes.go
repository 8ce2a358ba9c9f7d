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
	causes, complete, err := a.finder(who.view()).Causes(ctx, q)
	if err != nil {
		return list, err
	}
	lives, err := a.lives(ctx, q.Queue)
	if err != nil {
		return list, err
	}
	deaths, err := a.deaths(ctx, redrive.Query{Queue: q.Queue, Reason: q.Reason, Signature: q.Signature, Since: earliest(lives, now)})
	if err != nil {
		return list, err
	}
	of := make(map[causeName]*driver.Deaths, len(deaths))
	for i := range deaths {
		d := &deaths[i]
		of[causeName{d.Queue, d.Signature, d.Reason}] = d
	}
	list = wire.List[wire.Cause]{Items: make([]wire.Cause, 0, len(causes)), Complete: complete}
	for i := range causes {
		c := &causes[i]
		shown, series := a.cause(c, who), of[causeName{c.Queue, c.Signature, c.Reason}]
		shown.Grows(series, now)
		a.enliven(&shown, c, series, lives, now)
		list.Items = append(list.Items, shown)
	}
	return list, nil
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
