// Package daemon is the daemon: it puts a store, the engine with its deliveries,
// the runner of plans and the HTTP API together.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backlog"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/daemon/alerts"
	"github.com/redrive/redrive/internal/daemon/backups"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/daemon/events"
	"github.com/redrive/redrive/internal/daemon/gateway"
	"github.com/redrive/redrive/internal/daemon/gateway/ws"
	"github.com/redrive/redrive/internal/daemon/series"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
	"github.com/redrive/redrive/plan"
	"github.com/redrive/redrive/telemetry"
)

// app is what the handlers of the API work on. Parts that are nil are not there in a
// process that only looks into a store.
type app struct {
	store    driver.Store
	plans    *plan.Plans
	gateway  *gateway.Gateway
	sessions *ws.Gateway
	log      *slog.Logger

	description description

	leaving   atomic.Bool          // each answer is the last one on its connection
	live      atomic.Pointer[live] // nil: no configuration
	engine    *engine.Engine
	pauses    *pauses
	pull      *engine.Puller
	backlog   *backlog.Limiter
	metrics   *telemetry.Metrics
	instances *instances
	meters    *meters
	targets   targets
	polls     polls
	counts    *counts
	alerts    *alerts.Watcher
	backups   *backups.Keeper // nil: none are made
	series    *series.Series
	ended     sourceEndings
	outages   *outages // nil: a process that only looks
	events    *events.Hub[*caller]
	watched   map[causeName]bool      // of the collector of events: what it looked at last
	sources   *sources                // beside the store
	tls       *certificates           // of the listener; nil: plain HTTP
	refused   atomic.Pointer[refusal] // nil: the newest configuration is in force
	strangers strangers

	instance    string                   // names this process to others on the same store
	guards      map[string]*guardedQueue // by queue
	guardEvents *telemetry.Guards
}

// publish hands over to the gateway.
func (a *app) publish(w http.ResponseWriter, r *http.Request, who *caller) error {
	if who != &everyone {
		r = r.WithContext(context.WithValue(r.Context(), callerKey{}, who))
	}
	a.gateway.ServeHTTP(w, r)
	return nil
}

// allowReply is [app.mayReply] for what is published.
func (a *app) allowReply(r *http.Request, replyTo string) error {
	return a.mayReply(callerOfContext(r.Context()), replyTo)
}

// allowQueue lets messages into queues that are configured, or that hold or held
// some: a misspelt name must not collect messages that nobody delivers.
func (a *app) allowQueue(queue string) error {
	if a.conf() == nil {
		return nil
	}
	if _, ok := a.conf().Queues[queue]; ok {
		return nil
	}
	counts, err := a.store.Counts(context.Background(), queue)
	if err != nil {
		return err
	}
	if len(counts) > 0 && counts[0].Ledger.Entered() > 0 {
		return nil
	}
	return a.unknownQueue(queue)
}

func (a *app) unknownQueue(queue string) *problem.Problem {
	p := problem.New(http.StatusNotFound, "queue-not-found", "Queue not found", fmt.Sprintf("queue %q", queue), "")
	if a.conf() == nil { // whoever opens the store itself sees all of it
		var names []string
		if counts, err := a.store.Counts(context.Background()); err == nil {
			for i := range counts {
				names = append(names, counts[i].Queue)
			}
		}
		p.Hint = config.DidYouMean(queue, names)
		return p
	}
	p.Queues = slices.Sorted(maps.Keys(a.conf().Queues))
	known := "there are none"
	if len(p.Queues) > 0 {
		known = "there are " + strings.Join(p.Queues, ", ")
	}
	if near := config.DidYouMean(queue, p.Queues); near != "" {
		known = near + " " + known
	}
	p.Hint = fmt.Sprintf("%s; add it with --deliver %s=URL, or under queues: in the configuration", known, queue)
	return p
}

// shownConfig is the configuration in force, without secrets.
type shownConfig struct {
	*config.Config
	wire.ConfigStatus
}

// showConfig answers with the configuration; secrets show as ***.
func (a *app) showConfig(w http.ResponseWriter, r *http.Request, who *caller) error {
	if err := who.confine(""); err != nil {
		return err
	}
	if a.conf() == nil {
		return notHere("configuration")
	}
	all, err := a.instances.list(r.Context())
	if err != nil {
		return err
	}
	inForce := a.live.Load()
	answer := shownConfig{inForce.config, wire.ConfigStatus{Hash: inForce.hash, Instances: all}}
	if why := a.refused.Load(); why != nil {
		answer.Refused, answer.RefusedSince = why.why, &why.since
	}
	for _, one := range all {
		answer.Differs = answer.Differs || one.Hash != answer.Hash
	}
	return writeJSON(w, http.StatusOK, answer)
}

// notHere is the answer of a process that is not the daemon.
func notHere(what string) error {
	return problem.New(http.StatusNotImplemented, "no-daemon", "This needs the daemon", "there is no "+what+" without it", "start it with: redrive serve")
}

func (a *app) metricsPage(w http.ResponseWriter, r *http.Request, who *caller) error {
	if err := who.confine(""); err != nil {
		return err
	}
	if a.metrics == nil {
		return notHere("metrics page")
	}
	a.metrics.Handler().ServeHTTP(w, r)
	return nil
}

// health answers a probe.
type health struct {
	Status string `json:"status"` // "ok"
	// SourcesAway is how many sources of queues could not be opened since the start; those queues wait.
	SourcesAway int `json:"sources_away,omitempty"`
}

// healthz says that the process lives.
func (a *app) healthz(w http.ResponseWriter, _ *http.Request, _ *caller) error {
	return writeJSON(w, http.StatusOK, health{Status: "ok"})
}

// readyz says that messages are taken and delivered.
func (a *app) readyz(w http.ResponseWriter, r *http.Request, _ *caller) error {
	err := a.ready(r.Context())
	if err == nil {
		return writeJSON(w, http.StatusOK, health{Status: "ok", SourcesAway: a.sources.away()})
	}
	a.log.LogAttrs(r.Context(), slog.LevelDebug, "not ready", slog.Any("error", err))
	return problem.New(http.StatusServiceUnavailable, "not-ready", "The daemon is not ready", openly(err), "").After(time.Second)
}

var errStoreAway = errors.New("the store does not answer")

// openly is what whoever has no token learns of an error: nothing of its cause, which has
// the addresses and users of servers in it.
func openly(err error) string {
	switch {
	case errors.Is(err, errStoreAway), errors.Is(err, redrive.ErrUnavailable), errors.Is(err, redrive.ErrUnknown):
		return errStoreAway.Error()
	case errors.Is(err, redrive.ErrFull):
		return redrive.ErrFull.Error() + ": nothing is accepted, what waits is delivered"
	case errors.Unwrap(err) != nil:
		return "a part of it is down: its log says why"
	}
	return err.Error()
}

func (a *app) ready(ctx context.Context) error {
	if a.engine != nil {
		if err := a.engine.Ready(); err != nil {
			return err
		}
	}
	if _, err := a.store.Now(ctx); err != nil {
		return fmt.Errorf("%w: %w", errStoreAway, err)
	}
	if of, ok := driver.As[driver.RoomyStore](a.store); ok && of.Full() != nil {
		return of.Full()
	}
	return nil
}
