package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend"
	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/backlog"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/daemon/archive"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/daemon/events"
	"github.com/redrive/redrive/internal/daemon/gateway"
	"github.com/redrive/redrive/internal/daemon/gateway/spool"
	"github.com/redrive/redrive/internal/daemon/series"
	"github.com/redrive/redrive/plan"
	"github.com/redrive/redrive/telemetry"
)

// SocketName is the name of the Unix socket beside the data, by which commands on
// the same machine reach the daemon that has the store open. Who may open the socket
// needs no token.
const SocketName = "redrive.sock"

// Options configures a [Server]. Every field has a default.
type Options struct {
	// Logger defaults to [slog.Default].
	Logger *slog.Logger
	// Version stands in failures and in the user-agent of deliveries.
	Version string
	// Store is used instead of opening the one that the configuration names. It is
	// closed at the end of Run, and by a New that fails.
	Store driver.Store
	// Reload reads the configuration anew, on SIGHUP and when the file Watch changes.
	// Without it the configuration stays as it is.
	Reload func() (*config.Config, error)
	Watch  string
	// Listeners are served instead of an address of the configuration's, and closed at the
	// end of Run: sockets that outlive the process, so that a restart refuses no connection.
	Listeners []net.Listener
	// Started receives the (first) address that the daemon listens on as soon as it does.
	Started func(addr net.Addr)
	// AcceptLoss opens an embedded store whose log lacks what was synced to it.
	AcceptLoss bool
}

// Server is the daemon.
type Server struct {
	cfg      *config.Config
	o        Options
	log      *slog.Logger
	app      *app
	http     *http.Server
	socket   *http.Server
	closers  closers
	streams  []func()      // end the streams that keep pages up to date
	tls      *certificates // of the listener; nil: plain HTTP
	traces   *traces       // nil: none
	spool    *spool.Spool  // nil: none
	outages  *outages
	sources  *sources   // beside the store
	changing sync.Mutex // what consumes the queues

	archive   *archive.Archive
	retention *plan.RetentionRunner
}

// Bounds of the HTTP server. Bodies are bounded by their pace (see [gateway.Pace]),
// streams of results by the gateway.
const (
	readHeaderTimeout = 5 * time.Second
	writeTimeout      = 2 * time.Minute
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 16 << 10
	maxConnections    = 20_000
	drainTimeout      = 15 * time.Second // for requests under way at shutdown
	lastRequests      = time.Second      // for one more request on open connections, where the sockets were passed
)

// Run starts a daemon and works until ctx ends; see [Server.Run].
func Run(ctx context.Context, cfg *config.Config, o Options) error {
	s, err := New(cfg, o)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// New opens the store and puts the daemon together. It refuses an address that other
// machines reach without a token. Nothing is delivered before Run, which must be
// called, as it closes the store.
func New(cfg *config.Config, o Options) (*Server, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s := &Server{cfg: cfg, o: o}
	s.outages = newOutages(func(queue string) bool { q := cfg.Queues[queue]; return q != nil && q.Source != "" })
	s.log = s.outages.logger(o.Logger)
	store := o.Store
	err := checkListen(cfg, o.Listeners...)
	if err == nil {
		s.tls, err = newCertificates(cfg.TLS, s.log)
	}
	if store == nil {
		if err != nil {
			return nil, err
		}
		opened, err := openStore(cfg, o.embedded()...)
		if err != nil {
			return nil, err
		}
		store = opened
	}
	if err == nil {
		err = s.assemble(store)
	}
	if err == nil {
		err = s.app.auditLoss(context.Background(), store)
	}
	if err != nil {
		s.closers.close()
		return nil, errors.Join(err, store.Close())
	}
	return s, nil
}

// embedded are the options of stores in this process.
func (o *Options) embedded() []sqlite.Option {
	if !o.AcceptLoss {
		return nil
	}
	return []sqlite.Option{sqlite.AcceptLoss()}
}

// openTimeout bounds how long a store on a server may take to answer at the start.
const openTimeout = 30 * time.Second

// openStore opens the store that the configuration names.
func openStore(cfg *config.Config, embedded ...sqlite.Option) (driver.Store, error) {
	address, err := cfg.Store.Resolve()
	if err != nil {
		return nil, &redrive.Error{Op: "open", Err: fmt.Errorf("store: %w", err)}
	}
	if err := checkFolders(cfg); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	return backend.Open(ctx, address, embedded...)
}

// assemble puts the parts together around a store.
func (s *Server) assemble(store driver.Store) error {
	ctx := context.Background()
	if err := s.probe(ctx, store); err != nil {
		return err
	}
	if err := s.openArchive(ctx); err != nil {
		return err
	}
	a := &app{store: store, log: s.log, series: series.New(), outages: s.outages, tls: s.tls}
	s.app, a.counts, a.events = a, newCounts(a), events.New(a.watch)
	s.closers.add(a.counts.close)
	inForce, err := newLive(s.cfg)
	if err != nil {
		return err
	}
	a.live.Store(inForce)
	a.mask(store)
	instance := redrive.NewID()
	a.instance, a.guards = instance, make(map[string]*guardedQueue)
	a.metrics = telemetry.New(telemetry.Options{
		Queues: slices.Collect(maps.Keys(s.cfg.Queues)), Store: store, Runtime: true,
		Status: func() []engine.QueueStatus { return a.engine.Status() },
	})
	a.guardEvents = telemetry.NewGuards(a.guardReports)
	a.metrics.Registry().MustRegister(a.guardEvents)
	a.measure(store)
	if err := s.openSources(ctx); err != nil {
		return err
	}
	a.sources = s.sources
	a.sessions = s.newSessions(a, store, instance)
	s.traces, err = newTraces(ctx, a, s.cfg, s.o.Version, instance, s.log)
	if err != nil {
		return err
	}
	observers := engine.Observers{a.metrics, a.sessions, a.series, &a.ended}
	if s.traces != nil {
		observers = append(observers, s.traces)
		s.closers.add(s.traces.close)
	}
	sink, err := s.decorate(ctx, a, store)
	if err != nil {
		return err
	}
	a.engine = engine.New(store, engine.Options{
		Instance: instance, Logger: s.log, Observer: observers, Grace: s.cfg.Grace.Std(), Backlog: a.backlog,
		Service: s.cfg.Service, Version: s.o.Version, Environment: s.cfg.Environment, Masks: a.masking(),
	})
	a.pull = engine.NewPuller(a.engine, engine.PullOptions{
		Policies:  func(queue string) *engine.Policies { return a.live.Load().policies[queue] },
		Breaker:   func(queue string) engine.BreakerOptions { return a.live.Load().config.BreakerOf(queue) },
		Extractor: signer{a},
	})
	a.instances = newInstances(store, s.log, instance, s.o.Version, func() string { return a.live.Load().hash }, a.refusedSince)
	a.meters = newMeters(store, s.log, a.instances.live)
	a.plans = plan.New(a.store, plan.Options{
		Instance: instance, Logger: s.log, Archive: s.archive,
		Views: func(v string) plan.Finder { return a.finder(view(v)) }, Shown: a.shownBody,
		Ended: a.auditEnd,
	})
	s.retention = plan.NewRetention(a.store, plan.RetentionOptions{
		Rule: func(queue string) plan.RetentionRule { return a.conf().RetentionOf(queue) }, Archive: s.archive,
		Instance: instance, Logger: s.log,
	})
	a.gateway = gateway.New(sink, gateway.Options{
		MaxBody: int64(s.cfg.MaxBody), AllowQueue: a.allowQueue, AllowReply: a.allowReply, Accepted: a.metrics.Accepted, Shed: a.metrics.Shed, Logger: s.log,
	})
	s.newAlerts(a, store)
	s.newBackups(a)
	if err := s.consume(ctx); err != nil {
		return err
	}
	a.pauses = newPauses(a)
	if err := a.pauses.sync(ctx); err != nil {
		return fmt.Errorf("pauses: %w", err)
	}
	s.http = s.newHTTP(a.shell(s.withPages(a.mux(false)), func(host string) bool { return a.live.Load().tokens != nil || localHost(host) }))
	s.socket = s.newHTTP(a.shell(a.mux(true), anyHost))
	return nil
}

// decorate puts the decorators around the store; nothing else does. People and plans
// change messages through a.store, which logs each change. What is published passes,
// from the outside to the inside: the spool, which keeps it while the store is away; the
// meter of the caller's token; the limits of the backlog; the routes to queues that are at
// a broker; the store. The engine claims from the bare store.
func (s *Server) decorate(ctx context.Context, a *app, store driver.Store) (redrive.Sink, error) {
	a.store = &auditedStore{Store: store, log: s.log}
	routes := &routed{Store: store, sources: s.sources, answers: a.answersInto}
	a.backlog = backlog.New(routes, func(queue string) backlog.Limits { return a.live.Load().limits[queue] }, backlog.Options{Total: limitsOf(s.cfg.Limits, nil)})
	return s.openSpool(ctx, a, &meteredSink{a.backlog, s.traces, a.series})
}

// measure adds what a store knows of itself to the metrics.
func (a *app) measure(store driver.Store) {
	if of, ok := driver.As[driver.StatsStore](store); ok {
		a.metrics.Registry().MustRegister(telemetry.NewStoreStats(of))
	}
	if of, ok := driver.As[driver.RoomyStore](store); ok {
		a.metrics.Registry().MustRegister(telemetry.NewDisk(of))
	}
}

func (s *Server) newHTTP(h http.Handler) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: readHeaderTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// probe asks a store or source what its settings promise.
func (s *Server) probe(ctx context.Context, of driver.Source) error {
	for _, v := range of.Probe(ctx) {
		attrs := []slog.Attr{slog.String("of", of.Caps().Name), slog.String("setting", v.Setting), slog.String("value", v.Value), slog.String("promise", v.Promise), slog.String("hint", v.Hint)}
		switch v.Level {
		case driver.LevelRefused:
			return &redrive.Error{Op: "open", Err: fmt.Errorf("the %s of %s is %s: %s", v.Setting, of.Caps().Name, v.Value, v.Promise), Hint: v.Hint}
		case driver.LevelWarn:
			s.log.LogAttrs(ctx, slog.LevelWarn, "settings", attrs...)
		case driver.LevelOK:
			s.log.LogAttrs(ctx, slog.LevelDebug, "settings", attrs...)
		}
	}
	return nil
}

// Run serves and delivers until ctx ends or a part fails. It then stops accepting,
// lets requests and attempts under way end, and closes the store, in this order. It
// may be called once.
func (s *Server) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	listeners, err := s.listen(ctx)
	if err != nil {
		return errors.Join(err, s.app.store.Close())
	}
	var parts sync.WaitGroup
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	errs := make(chan error, 8)
	start := func(name string, f func() error) {
		parts.Go(func() {
			if err := f(); err != nil && !errors.Is(err, http.ErrServerClosed) {
				err = fmt.Errorf("%s: %w", name, err)
				errs <- err
				stop(err)
			}
		})
	}
	start("engine", func() error { return s.app.engine.Run(work) })
	start("plans", func() error { return s.app.plans.Run(work) })
	for name, g := range s.app.guards {
		start("guard "+name, func() error { return g.Run(work) })
	}
	start("sessions", func() error { return s.app.sessions.Run(work) })
	if s.spool != nil {
		start("spool", func() error { return s.spool.Run(work) })
	}
	start("retention", func() error { return s.retention.Run(work) })
	start("configuration", func() error { return s.watch(work) })
	start("pauses", func() error { s.app.pauses.run(work); return nil })
	start("outages", func() error { s.outages.watch(work, s.log, s.app.store.Now); return nil })
	start("sources", func() error { s.awaitSources(work); return nil })
	start("instances", func() error { s.app.instances.run(work); return nil })
	start("tokens", func() error { s.app.meters.run(work); return nil })
	start("alerts", func() error { s.app.alerts.Run(work); return nil })
	if b := s.app.backups; b != nil {
		start("backups", func() error { b.Run(work); return nil })
	}
	for _, l := range listeners {
		start("http", func() error { return s.serve(l) })
	}
	if socket := s.listenSocket(ctx); socket != nil {
		start("socket", func() error { return s.socket.Serve(socket) })
	}
	addr := listeners[0].Addr()
	s.log.LogAttrs(ctx, slog.LevelInfo, "listening", slog.String("address", addr.String()), slog.Bool("tls", s.tls != nil), slog.Bool("passed", len(s.o.Listeners) > 0), slog.Any("store", s.cfg.Store), slog.Int("queues", s.app.targets.count()))
	if s.o.Started != nil {
		s.o.Started(addr)
	}

	<-ctx.Done()
	s.log.LogAttrs(ctx, slog.LevelInfo, "shutting down", slog.Any("cause", context.Cause(ctx)))
	s.drain(listeners)
	stopWork()
	parts.Wait()
	s.closers.close()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	all = append(all, s.archive.Close(), s.app.store.Close())
	return errors.Join(all...)
}

// serve serves a listener until it is closed.
func (s *Server) serve(l net.Listener) error {
	err := s.http.Serve(l)
	if errors.Is(err, net.ErrClosed) && s.app.leaving.Load() {
		return nil
	}
	return err
}

// leave stops accepting on passed sockets, whose next process takes the connections that
// come from now on. Those that are open may still ask once, and are closed with the
// answer: a client that sends while we close an idle connection could not know whether its
// message was accepted.
func (s *Server) leave(listeners []net.Listener) {
	s.app.leaving.Store(true)
	for _, l := range listeners {
		if err := l.Close(); err != nil {
			s.log.LogAttrs(context.Background(), slog.LevelWarn, "a passed socket cannot be closed", slog.Any("error", err))
		}
	}
	<-time.After(lastRequests)
}

// drain ends the requests: streams at the line they have come to, all others when
// they are answered, and what takes longer than drainTimeout at once. New ones are refused,
// except where the sockets were passed: there nothing comes after leave.
func (s *Server) drain(listeners []net.Listener) {
	if len(s.o.Listeners) > 0 {
		s.drainPull() // workers settle on new connections too
		s.leave(listeners)
		s.app.gateway.EndStreams()
	} else {
		s.app.gateway.Drain()
	}
	s.app.events.Close()
	for _, end := range s.streams {
		end()
	}
	s.drainSessions()
	if len(s.o.Listeners) == 0 {
		s.drainPull()
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	for _, server := range []*http.Server{s.http, s.socket} {
		if err := server.Shutdown(ctx); err != nil {
			s.log.LogAttrs(ctx, slog.LevelWarn, "shutdown timeout: open requests aborted", slog.Any("error", err))
			_ = server.Close() // nothing more can be done for them
		}
	}
}

// drainPull delivers nothing more to workers. What they hold stays theirs where leases
// outlive this process: the next daemon takes their settlements. Else they have the time
// of grace to settle it, and then it is given back: a shutdown is no failure of theirs.
func (s *Server) drainPull() {
	pull := s.app.pull
	pull.Drain()
	n := pull.Holding()
	if s.app.store.Caps().KeepsLeases {
		if n > 0 {
			s.log.LogAttrs(context.Background(), slog.LevelInfo, "messages still in flight at workers: the next daemon accepts their settlements until the leases expire", slog.Int("messages", n))
		}
		return
	}
	if n > 0 {
		s.log.LogAttrs(context.Background(), slog.LevelInfo, "waiting for workers to settle messages in flight; the rest is released uncounted",
			slog.Int("messages", n), slog.Duration("at_most", s.cfg.Grace.Std()))
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for grace := time.After(s.cfg.Grace.Std()); pull.Holding() > 0; {
		select {
		case <-tick.C:
			continue
		case <-grace:
		}
		break
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if err := pull.ReleaseAll(ctx); err != nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "cannot release claims of workers", slog.Any("error", err))
	}
}

// socketPath is where the socket is, or "" for a store without a folder.
func (s *Server) socketPath() string {
	dir := s.cfg.StoreDir()
	if s.o.Store != nil || dir == "" {
		return ""
	}
	return filepath.Join(dir, SocketName)
}
