package daemon

import (
	"context"
	"fmt"
	"net/http"
	"slices"

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
			return alerts.Settings{Alerts: c.Alerts, PublicURL: c.PublicURL, Environment: c.Environment}
		},
		Look: a.facts,
		Here: func() (h alerts.Here) {
			h.StoreAway = s.outages.away()[""]
			if of, ok := driver.As[driver.RoomyStore](store); ok {
				h.DiskFull = of.Full()
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
	causes, err := a.causes(ctx, redrive.Query{State: redrive.StateDead, Limit: redrive.MaxPage}, &watching, now.UTC())
	if err != nil {
		return nil, fmt.Errorf("causes: %w", err)
	}
	f := &alerts.Facts{Now: now, Causes: causes.Items, AllCauses: causes.Complete}
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

// listAlerts tells what fires. A token that is confined to queues sees what is about them.
func (a *app) listAlerts(w http.ResponseWriter, r *http.Request, who *caller) error {
	if _, err := parameters(r); err != nil {
		return err
	}
	publicURL := ""
	if c := a.conf(); c != nil {
		publicURL = c.PublicURL
	}
	list, err := alerts.List(r.Context(), a.store, a.alerts, publicURL)
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
