package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
	"github.com/redrive/redrive/plan"
)

const (
	countSpace = "counts"
	countLock  = "running"        // the key of the record that the one count has that runs
	countKeep  = 10 * time.Minute // a result
	countLease = time.Minute      // of the record of the one that runs: a page of a slow store may take long
	countNote  = time.Second      // between writes of the progress
)

// counts count in the background what no counter answers, one at a time a store. What they
// found so far, and at last, stands in a record, so that each daemon of a store tells of it.
type counts struct {
	a    *app
	ctx  context.Context //nolint:containedctx // of the counts, which outlive the requests that asked for them
	stop context.CancelFunc
	work sync.WaitGroup
}

func newCounts(a *app) *counts {
	s := &counts{a: a}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// close ends what runs here.
func (s *counts) close() {
	s.stop()
	s.work.Wait()
}

// count is a count as it is stored.
type count struct {
	wire.Count
	View string `json:"view,omitempty"` // what its filter looks at

	version, lock int64 // of its record and of that of the one that runs
}

func (c *count) end(state string, why error, now time.Time) {
	at := now.UTC()
	if c.State, c.UpdatedAt, c.EndedAt = state, at, &at; why != nil {
		c.Problem = why.Error()
	}
}

// load reads a count. One whose daemon no longer writes has failed.
func (s *counts) load(ctx context.Context, id string) (*count, error) {
	record, err := s.a.store.GetRecord(ctx, countSpace, id)
	if err != nil {
		return nil, err
	}
	c := new(count)
	if err := json.Unmarshal(record.Value, c); err != nil || id == countLock {
		return nil, &redrive.Error{Op: "count", ID: id, Err: redrive.ErrNotFound}
	}
	c.version = record.Version
	now, err := s.a.store.Now(ctx)
	if err == nil && c.State == wire.CountRunning && now.Sub(c.UpdatedAt) > countLease {
		c.end(wire.CountFailed, errors.New("the daemon that counted has ended"), now)
	}
	return c, err
}

// start counts, or returns the count of the same that runs or is known.
func (s *counts) start(ctx context.Context, c *count, q redrive.Query) (*count, error) {
	old, err := s.load(ctx, c.ID)
	if err == nil && (old.State == wire.CountRunning || old.State == wire.CountDone) {
		return old, nil
	}
	if err != nil && !errors.Is(err, redrive.ErrNotFound) {
		return nil, err
	}
	now, err := s.a.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	if q.Until.IsZero() { // what dies meanwhile would be counted for ever
		q.Until = now
	}
	c.State, c.StartedAt, c.UpdatedAt = wire.CountRunning, now.UTC(), now.UTC()
	n, err := s.a.finder(view(c.View)).Count(ctx, q)
	if err != nil {
		return nil, err
	}
	if n.Complete {
		c.Count.Count, c.Examined = n.N, n.Examined
		c.end(wire.CountDone, nil, now)
		_, err := s.a.store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{c.write(driver.AnyVersion)}})
		return c, err
	}
	all, err := s.a.store.Count(ctx, redrive.Query{Queue: q.Queue, State: q.State, Reason: q.Reason, Signature: q.Signature, Until: q.Until})
	if err != nil {
		return nil, err
	}
	if all.Complete {
		c.Total = all.N
	}
	_, err = s.a.store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{c.holds(0), c.write(driver.AnyVersion)}})
	if errors.Is(err, redrive.ErrVersion) {
		return nil, s.busy(ctx)
	}
	if err == nil {
		err = s.versions(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	answer := *c
	s.work.Go(func() { s.run(c, q) })
	return &answer, nil
}

// write is the record of a count.
func (c *count) write(version int64) driver.RecordWrite {
	value, err := json.Marshal(c)
	if err != nil { // no field can fail to encode
		panic(err)
	}
	return driver.RecordWrite{Space: countSpace, Key: c.ID, Value: value, Version: version, Expires: countKeep}
}

// holds is the record that says which count runs; it goes when the count has ended.
func (c *count) holds(version int64) driver.RecordWrite {
	w := driver.RecordWrite{Space: countSpace, Key: countLock, Version: version}
	if c.State == wire.CountRunning {
		w.Value, w.Expires = []byte(c.ID), countLease
	}
	return w
}

// versions reads the versions of a count's records.
func (s *counts) versions(ctx context.Context, c *count) error {
	for key, version := range map[string]*int64{c.ID: &c.version, countLock: &c.lock} {
		record, err := s.a.store.GetRecord(ctx, countSpace, key)
		if err != nil {
			return err
		}
		*version = record.Version
	}
	return nil
}

// busy says which count runs.
func (s *counts) busy(ctx context.Context) error {
	detail, hint := "another count runs", "try again when it has ended"
	if record, err := s.a.store.GetRecord(ctx, countSpace, countLock); err == nil {
		detail = "count " + string(record.Value) + " runs"
		hint = fmt.Sprintf("see GET /v1/counts/%s; wait for it, or cancel it with DELETE", record.Value)
	}
	return problem.New(http.StatusConflict, "count-running", "One count runs at a time", detail, hint)
}

// run counts page by page until it is done or cancelled.
func (s *counts) run(c *count, q redrive.Query) {
	in := s.a.finder(view(c.View))
	q.Limit, q.After = redrive.MaxPage, ""
	for noted := time.Now(); ; {
		page, err := s.find(in, q)
		if s.ctx.Err() != nil {
			err = errors.New("the daemon was stopped")
		}
		c.Count.Count += int64(len(page.Entries))
		c.Examined += int64(page.Examined)
		if c.Total > 0 {
			c.Examined = min(c.Examined, c.Total)
		}
		ended := err != nil || page.Next == ""
		if q.After = page.Next; !ended && time.Since(noted) < countNote {
			continue
		}
		if noted = time.Now(); !s.note(c, ended, err) || ended {
			return
		}
	}
}

// find returns a page. A panic fails the count, and not the daemon.
func (s *counts) find(in plan.Finder, q redrive.Query) (_ driver.Page, err error) {
	defer func() {
		if v := recover(); v != nil {
			s.a.log.LogAttrs(s.ctx, slog.LevelError, "count panicked", slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
			err = errors.New("panic: the log says more")
		}
	}()
	return in.Find(s.ctx, q)
}

// note writes how far a count is, or how it ended, and reports whether it may go on: not after
// it was cancelled, or when it was so slow that another began.
func (s *counts) note(c *count, ended bool, why error) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), countLease)
	defer cancel()
	now, err := s.a.store.Now(ctx)
	if err != nil {
		return false
	}
	switch c.UpdatedAt = now.UTC(); {
	case why != nil:
		shown, _ := s.a.masksOver(c.Filter.Queue).text(why.Error())
		c.end(wire.CountFailed, errors.New(shown), now)
	case ended:
		c.end(wire.CountDone, nil, now)
		c.Examined = max(c.Examined, c.Total)
	}
	_, err = s.a.store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{c.holds(c.lock), c.write(c.version)}})
	if err == nil && !ended {
		err = s.versions(ctx, c)
	}
	return err == nil
}

// cancel ends a count, also one of another daemon, which sees it when it writes next.
func (s *counts) cancel(ctx context.Context, c *count) error {
	now, err := s.a.store.Now(ctx)
	if err != nil {
		return err
	}
	c.end(wire.CountCancelled, nil, now)
	_, err = s.a.store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{c.holds(driver.AnyVersion), c.write(c.version)}})
	return err
}

// createCount counts what matches a filter: at once where counters know it, else in the background.
func (a *app) createCount(w http.ResponseWriter, r *http.Request, who *caller) error {
	var req wire.CountRequest
	if err := readJSON(w, r, 1<<20, &req); err != nil {
		return err
	}
	if err := who.confine(req.Filter.Queue); err != nil {
		return err
	}
	q, err := queryOf(&req.Filter, who, a.utcNow(r))
	if err != nil {
		return err
	}
	if q.State == 0 {
		q.State = redrive.StateDead
	}
	c := &count{Count: wire.Count{Filter: req.Filter, Actor: who.name}, View: planView(who, &q)}
	c.ID = driver.DeriveID(countSpace, c.View, req.Filter.Parameters().Encode())
	if c, err = a.counts.start(r.Context(), c, q); err != nil {
		return err
	}
	status := http.StatusOK
	if c.State == wire.CountRunning {
		status = http.StatusAccepted
	}
	w.Header().Set("Location", "/v1/counts/"+c.ID)
	return writeJSON(w, status, c.Count)
}

// countOf returns the count that the path names, if the caller may see it: what it looks for may
// be what the caller may not see.
func (a *app) countOf(r *http.Request, who *caller) (*count, error) {
	id := r.PathValue("id")
	if err := driver.CheckID(id); err != nil {
		return nil, err
	}
	c, err := a.counts.load(r.Context(), id)
	if err != nil {
		return nil, err
	}
	if err := who.confine(c.Filter.Queue); err != nil {
		return nil, err
	}
	if (c.Filter.Text != "" || c.Filter.Body != "" || c.Filter.Header != "") && view(c.View) != who.view() {
		return nil, &redrive.Error{Op: "count", ID: id, Err: redrive.ErrNotFound, Hint: "it was made by a token that may see more or less: count with your own"}
	}
	return c, nil
}

func (a *app) showCount(w http.ResponseWriter, r *http.Request, who *caller) error {
	c, err := a.countOf(r, who)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, c.Count)
}

func (a *app) cancelCount(w http.ResponseWriter, r *http.Request, who *caller) error {
	c, err := a.countOf(r, who)
	if err == nil && c.Actor != who.name && !who.may(config.ScopeAdmin) {
		return lacks("to cancel a count that another token began", config.ScopeAdmin)
	}
	for ; err == nil && c.State == wire.CountRunning; c, err = a.countOf(r, who) {
		if err = a.counts.cancel(r.Context(), c); err != nil && !errors.Is(err, redrive.ErrVersion) {
			return err
		}
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, c.Count)
}
