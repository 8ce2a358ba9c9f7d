package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
	"github.com/redrive/redrive/plan"
)

const (
	auditSpace   = "audit"
	auditKeep    = 90 * 24 * time.Hour
	auditPage    = 100
	auditExamine = 10_000 // entries a query looks at
)

// viaKey is under which a context has what a request came through.
type viaKey struct{}

// audited carries out a change under an entry in the audit log, which is durable before
// the change begins: what is not in the log was not done.
func (a *app) audited(r *http.Request, who *caller, e wire.AuditEntry, change func(e *wire.AuditEntry) error) error {
	now, err := a.store.Now(r.Context())
	if err != nil {
		return err
	}
	e.At, e.Actor, e.Remote, e.Outcome = now.UTC(), who.name, r.RemoteAddr, "begun"
	e.Via, _ = r.Context().Value(viaKey{}).(string)
	e.ID = auditID(now, redrive.NewID())
	ctx := context.WithoutCancel(r.Context())
	if err := a.writeAudit(ctx, &e); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	failed := change(&e)
	if e.Outcome = "done"; failed != nil {
		e.Outcome = failed.Error()
	}
	if err := a.writeAudit(ctx, &e); err != nil {
		a.log.LogAttrs(ctx, slog.LevelError, "outcome missing in the audit log", slog.String("entry", e.ID), slog.String("outcome", e.Outcome), slog.Any("error", err))
	}
	return failed
}

// auditID names an entry so that the newest is first in the order of keys.
func auditID(at time.Time, id string) string {
	return fmt.Sprintf("%016x-%s", math.MaxInt64-at.UnixNano(), id[24:])
}

func (a *app) writeAudit(ctx context.Context, e *wire.AuditEntry) error {
	write, err := auditWrite(e)
	if err != nil {
		return err
	}
	_, err = a.store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{write}})
	return err
}

func auditWrite(e *wire.AuditEntry) (driver.RecordWrite, error) {
	value, err := json.Marshal(e)
	return driver.RecordWrite{Space: auditSpace, Key: e.ID, Value: value, Version: driver.AnyVersion, Expires: auditKeep}, err
}

// auditLoss notes what a store in this process lacked when it was opened.
func (a *app) auditLoss(ctx context.Context, store driver.Store) error {
	lossy, ok := driver.As[interface{ Loss() (int64, error) }](store)
	if !ok {
		return nil
	}
	n, what := lossy.Loss()
	if what == nil {
		return nil
	}
	now, err := store.Now(ctx)
	if err != nil {
		return err
	}
	e := wire.AuditEntry{ID: auditID(now, redrive.NewID()), At: now.UTC(), Actor: "local", Action: "accept loss", Count: n, Note: what.Error(), Outcome: "done"}
	if err := a.writeAudit(ctx, &e); err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	return nil
}

// auditEnd is the entry of a plan that ended, with how many messages it changed.
func (a *app) auditEnd(p *plan.Plan) []driver.RecordWrite {
	e := wire.AuditEntry{
		ID: auditID(p.EndedAt, p.ID), At: p.EndedAt.UTC(), Actor: p.Request.Actor, Action: "plan ended", Queue: p.Request.Query.Queue, Plan: p.ID,
		Count: p.Done, Note: fmt.Sprintf("%s: %d changed, %d refused", wire.ActionOf(&p.Request), p.Done, p.Failed), Outcome: p.State.String(),
	}
	if p.ReleasedBy != "" {
		e.Note += "; released by " + p.ReleasedBy
	}
	write, err := auditWrite(&e)
	if err != nil {
		a.log.LogAttrs(context.Background(), slog.LevelError, "the audit log lacks the end of a plan", slog.String("plan", p.ID), slog.Any("error", err))
		return nil
	}
	return []driver.RecordWrite{write}
}

// listAudit lists who changed what, the newest first.
func (a *app) listAudit(w http.ResponseWriter, r *http.Request, who *caller) error {
	if err := who.confine(""); err != nil {
		return err
	}
	v, err := parameters(r, "actor", "action", "queue", "plan", "since", "until", "after", "limit")
	if err != nil {
		return err
	}
	limit, err := parseLimit(v)
	if err != nil {
		return err
	}
	if limit == 0 {
		limit = auditPage
	}
	now := a.utcNow(r)
	since, err := wire.ParseMoment("since", v.Get("since"), now)
	if err != nil {
		return err
	}
	until, err := wire.ParseMoment("until", v.Get("until"), now)
	if err != nil {
		return err
	}
	f := auditFilter{actor: v.Get("actor"), action: v.Get("action"), queue: v.Get("queue"), plan: v.Get("plan"), since: since, until: until}
	list, err := a.findAudit(r.Context(), &f, v.Get("after"), limit)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, list)
}

// auditFilter selects entries; empty fields do not.
type auditFilter struct {
	actor, action, queue, plan string
	since, until               time.Time
}

func (f *auditFilter) matches(e *wire.AuditEntry) bool {
	for _, f := range [][2]string{{f.actor, e.Actor}, {f.action, e.Action}, {f.queue, e.Queue}, {f.plan, e.Plan}} {
		if f[0] != "" && f[0] != f[1] {
			return false
		}
	}
	return (f.since.IsZero() || !e.At.Before(f.since)) && (f.until.IsZero() || e.At.Before(f.until))
}

// findAudit lists the entries that match, the newest first.
func (a *app) findAudit(ctx context.Context, f *auditFilter, after string, limit int) (wire.List[wire.AuditEntry], error) {
	list := wire.List[wire.AuditEntry]{Items: []wire.AuditEntry{}, Next: after}
	for examined := 0; examined < auditExamine; {
		records, err := a.store.ListRecords(ctx, auditSpace, list.Next, auditPage)
		if err != nil {
			return list, err
		}
		over := len(records) < auditPage
		for _, record := range records {
			var e wire.AuditEntry
			known := json.Unmarshal(record.Value, &e) == nil
			if known && e.At.Before(f.since) { // and so are all that follow
				over = true
				break
			}
			if known && f.matches(&e) {
				list.Items = append(list.Items, e)
			}
			list.Next = record.Key
			if len(list.Items) == limit {
				list.Complete = true
				return list, nil
			}
		}
		if examined += len(records); over {
			list.Next, list.Complete = "", true
			break
		}
	}
	return list, nil
}
