package daemon

import (
	"context"
	"log/slog"
	"net/http"
	"sync"

	"github.com/redrive/redrive/deadletter"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/events"
	"github.com/redrive/redrive/internal/daemon/gateway"
	"github.com/redrive/redrive/plan"
)

// LocalAPI is the HTTP API over an opened store, without a daemon: nothing is
// delivered, but plans are carried out while it is open.
type LocalAPI struct {
	http.Handler
	app     *app
	closers closers // of pages
	stop    func()
}

// Local returns the API over a store that this process has opened, for commands that
// work on a store directly. Whoever can open the store may do everything, so there
// are no tokens. Dead letters are archived into the given archive, if it is not nil. log
// gets troubles. Close it before the store.
func Local(store driver.Store, archive deadletter.Archiver, log *slog.Logger) *LocalAPI {
	a := &app{store: store, log: log}
	a.plans = plan.New(store, plan.Options{Archive: archive, Logger: log, Ended: a.auditEnd})
	a.counts, a.events = newCounts(a), events.New(a.watch)
	a.gateway = gateway.New(store, gateway.Options{AllowReply: a.allowReply, Logger: log})
	ctx, cancel := context.WithCancel(context.Background())
	var runner sync.WaitGroup
	runner.Go(func() {
		if err := a.plans.Run(ctx); err != nil {
			log.Error("plans", slog.Any("error", err))
		}
	})
	return &LocalAPI{Handler: a.shell(a.mux(true), anyHost), app: a, stop: func() { cancel(); a.events.Close(); a.counts.close(); runner.Wait() }}
}

// Close ends what runs behind the API, after the step it is at.
func (l *LocalAPI) Close() {
	l.closers.close()
	l.stop()
}
