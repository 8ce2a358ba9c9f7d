package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
	"github.com/redrive/redrive/plan"
)

// wholePage is how many entries are read at once with their bodies, which a list
// needs for the failures that come with them: it bounds what is in memory.
const wholePage = 16

// page finds one page and answers with it.
func (a *app) page(w http.ResponseWriter, r *http.Request, who *caller, q redrive.Query, after string, limit int) error {
	in := a.finder(who.view())
	list := wire.List[wire.Message]{Items: []wire.Message{}, Next: after, Complete: true}
	q.Limit = limit
	left := q.PageLimit()
	for left > 0 {
		q.After, q.Limit = list.Next, left
		if q.State == redrive.StateDead {
			q.Bodies, q.Limit = true, min(left, wholePage)
		}
		page, err := in.Find(r.Context(), q)
		if err != nil {
			return err
		}
		for i := range page.Entries {
			list.Items = append(list.Items, a.summary(&page.Entries[i]))
		}
		left -= len(page.Entries)
		list.Next, list.Complete = page.Next, page.Complete
		list.Examined += page.Examined
		if list.How != wire.HowScan {
			list.How = how(&q, page.Index)
		}
		if page.Next == "" || !page.Complete {
			break
		}
	}
	return writeJSON(w, http.StatusOK, list)
}

// how says how entries were found, if an index of texts led to all that has the query's text.
func how(q *redrive.Query, index bool) string {
	if q.Text != "" && !index || q.Body != "" || q.Header != "" || q.Kind != "" || q.State != redrive.StateDead && q.State != 0 {
		return wire.HowScan
	}
	return wire.HowIndex
}

func (a *app) listMessages(w http.ResponseWriter, r *http.Request, who *caller) error {
	v, err := parameters(r, messageArgs...)
	if err != nil {
		return err
	}
	limit, err := parseLimit(v)
	if err != nil {
		return err
	}
	f := wire.FilterFrom(v)
	f.Queue = r.PathValue("queue")
	if _, err := a.existing(r, f.Queue); err != nil {
		return err
	}
	q, err := queryOf(&f, who, a.utcNow(r))
	if err != nil {
		return err
	}
	return a.page(w, r, who, q, v.Get("after"), limit)
}

// entry returns a message, or a problem that says how it ended.
func (a *app) entry(r *http.Request) (*redrive.Entry, error) {
	ref, err := refOf(r)
	if err != nil {
		return nil, err
	}
	entries, err := a.store.Get(r.Context(), []redrive.Ref{ref})
	if err != nil {
		return nil, err
	}
	if entries[0] == nil {
		return nil, &redrive.Error{Op: "get", Queue: ref.Queue, ID: ref.ID, Err: redrive.ErrNotFound,
			Hint: "messages that were delivered are remembered only under an id that the publisher chose, for the time of remember"}
	}
	return entries[0], nil
}

// Bounds of waiting for a message, such as a result, to be there.
const (
	maxShowWait  = time.Minute
	showInterval = 20 * time.Millisecond // between looks, at first
	maxInterval  = 500 * time.Millisecond
)

// awaited returns a message that may not be there yet.
func (a *app) awaited(r *http.Request) (*redrive.Entry, error) {
	v, err := parameters(r, "wait", "unmasked")
	if err != nil {
		return nil, err
	}
	var wait time.Duration
	if s := v.Get("wait"); s != "" {
		if wait, err = time.ParseDuration(s); err != nil || wait < 0 || wait > maxShowWait {
			return nil, bad(fmt.Sprintf("wait %q", s), fmt.Sprintf("use a duration up to %s", maxShowWait))
		}
	}
	if wait > 0 {
		a.polls.note(r.PathValue("queue"), time.Now())
	}
	deadline := time.After(wait)
	for pause := showInterval; ; pause = min(2*pause, maxInterval) {
		e, err := a.entry(r)
		if wait == 0 || !errors.Is(err, redrive.ErrNotFound) {
			return e, err
		}
		select {
		case <-time.After(pause):
		case <-deadline:
			return e, err
		case <-a.gateway.Draining():
			return e, err
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

func (a *app) showMessage(w http.ResponseWriter, r *http.Request, who *caller) error {
	e, err := a.awaited(r)
	if errors.Is(err, redrive.ErrNotFound) {
		return a.showEnded(w, r, err)
	}
	if err != nil {
		return err
	}
	return a.writeWhole(w, r, e, who)
}

// showEnded answers with what is remembered, or with notFound.
func (a *app) showEnded(w http.ResponseWriter, r *http.Request, notFound error) error {
	ref := redrive.Ref{Queue: r.PathValue("queue"), ID: r.PathValue("id")}
	remembered, err := a.store.Recall(r.Context(), []redrive.Ref{ref})
	if err != nil {
		return err
	}
	if remembered[0] == nil || remembered[0].Outcome == 0 {
		return notFound
	}
	return writeJSON(w, http.StatusOK, wire.Ended(remembered[0]))
}

// dropMessage drops a message that waits.
func (a *app) dropMessage(w http.ResponseWriter, r *http.Request, who *caller) error {
	e, err := a.entry(r)
	if err != nil {
		return err
	}
	if e.State == redrive.StateDead {
		return problem.New(http.StatusConflict, "state", "The message is a dead letter", e.Ref().String(),
			fmt.Sprintf("drop it with DELETE /v1/queues/%s/dead-letters/%s", e.Queue, e.ID))
	}
	return a.change(w, r, who, e, driver.Change{Action: driver.ActDrop})
}

// change changes one message, which is as it was looked at.
func (a *app) change(w http.ResponseWriter, r *http.Request, who *caller, m *redrive.Entry, c driver.Change) error {
	ref := m.Ref()
	c.Note = "by " + who.name
	err := a.audited(r, who, wire.AuditEntry{Action: c.Action.String(), Queue: ref.Queue, Message: ref.ID}, func(e *wire.AuditEntry) error {
		results, err := a.store.Update(r.Context(), driver.Selection{Refs: []redrive.Ref{ref}}, c, 1)
		switch {
		case err != nil:
			return err
		case len(results) != 1:
			err = redrive.ErrNotFound
		default:
			err = results[0].Err
		}
		if err != nil {
			return &redrive.Error{Op: c.Action.String(), Queue: ref.Queue, ID: ref.ID, Err: err}
		}
		e.Count = 1
		return nil
	})
	if err != nil {
		return err
	}
	if c.Action == driver.ActDrop {
		if err := plan.NoteTaken(context.WithoutCancel(r.Context()), a.store, *m); err != nil { // it is dropped all the same
			a.log.LogAttrs(r.Context(), slog.LevelWarn, "a plan counts as delivered what was dropped", slog.String("plan", m.Plan), slog.String("queue", ref.Queue), slog.String("id", ref.ID), slog.Any("error", err))
		}
	}
	return writeJSON(w, http.StatusOK, wire.Changed{Queue: ref.Queue, ID: ref.ID, Done: changed[c.Action]})
}
