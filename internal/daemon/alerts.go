package daemon

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/alerts"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

// watching is who looks for alerts: what they tell leaves the daemon, so they show no payload.
var watching = caller{name: "alerts", scopes: []config.Scope{config.ScopeRead}}

func (s *Server) newAlerts(a *app, store driver.Store) {
	a.alerts = alerts.New(alerts.Options{
		Store: a.store, Instance: a.instance, Version: s.o.Version, Logger: s.log,
		Settings: func() alerts.Settings {
			c := a.conf()
			return alerts.Settings{Alerts: c.Alerts, PublicURL: linkBase(c), Environment: c.Environment}
		},
		Look: a.facts,
		Here: func() (h alerts.Here) {
			h.StoreAway = s.outages.away()[""]
			if of, ok := driver.As[driver.RoomyStore](store); ok {
				h.DiskFull = of.Full()
				h.Free, h.Total, _ = of.Room() // 0, where the system does not say
			}
			return h
		},
	})
}

// facts collects what alerts are about.
func (a *app) facts(ctx context.Context, ledger bool) (*alerts.Facts, error) {
	now, err := a.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	f := &alerts.Facts{Now: now}
	if f.Causes, err = a.causesThatDie(ctx, now.UTC()); err != nil {
		return nil, fmt.Errorf("causes: %w", err)
	}
	if f.Queues, err = a.allQueues(ctx, watching.sees); err != nil {
		return nil, fmt.Errorf("queues: %w", err)
	}
	plans, err := a.plans.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("plans: %w", err)
	}
	for i := range plans {
		f.Plans = append(f.Plans, a.planOf(&plans[i], &watching))
	}
	if ledger {
		audits, err := a.balance(ctx)
		if err != nil {
			return nil, fmt.Errorf("ledger: %w", err)
		}
		v := wire.VerifiedOf(audits)
		f.Ledger = &v
	}
	return f, nil
}

// causesThatDie are all causes of which something died lately, as alerts show them.
func (a *app) causesThatDie(ctx context.Context, now time.Time) (iter.Seq2[*wire.Cause, error], error) {
	h, err := a.histories(ctx, &redrive.Query{}, now, time.Time{})
	if err != nil {
		return nil, err
	}
	return func(yield func(*wire.Cause, error) bool) {
		for c, err := range a.eachCause(ctx, &redrive.Query{}, h) {
			switch {
			case err != nil:
				yield(nil, err)
				return
			case now.Sub(c.Last) >= wire.QuietAfter && h.deaths[nameOf(c)] == nil:
				continue // it is quiet
			}
			if shown := a.showCause(h, c, &watching); !yield(&shown, nil) {
				return
			}
		}
	}, nil
}

// linkBase is what the paths of pages are added to, or "" where nobody knows it or there are none.
func linkBase(c *config.Config) string {
	u := c.Public()
	if u == nil || c.UI.Off {
		return ""
	}
	return u.Scheme + "://" + u.Host + c.Base()
}

// listAlerts tells what fires. A token that is confined to queues sees what is about them.
func (a *app) listAlerts(w http.ResponseWriter, r *http.Request, who *caller) error {
	if _, err := parameters(r); err != nil {
		return err
	}
	links := ""
	if c := a.conf(); c != nil {
		links = linkBase(c)
	}
	list, err := alerts.List(r.Context(), a.store, a.alerts, links)
	if err != nil {
		return err
	}
	if who.confine("") != nil {
		list.Items = slices.DeleteFunc(list.Items, func(x wire.Alert) bool { return x.Queue == "" || !who.sees(x.Queue) })
		list.Complete, list.Receivers = false, []wire.AlertReceiver{}
	}
	return writeJSON(w, http.StatusOK, list)
}

// testAlerts sends a test message to each receiver.
func (a *app) testAlerts(w http.ResponseWriter, r *http.Request, who *caller) error {
	if a.alerts == nil {
		return notHere("receiver of alerts")
	}
	list := wire.List[wire.AlertTested]{Complete: true}
	err := a.audited(r, who, wire.AuditEntry{Action: "test alerts"}, func(e *wire.AuditEntry) error {
		list.Items = a.alerts.Test(r.Context())
		e.Count = int64(len(list.Items))
		return nil
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, list)
}
