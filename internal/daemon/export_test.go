package daemon

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

// ReloadAfter is how long a change of the configuration's file may wait to be read.
const ReloadAfter = settleMost

// Route is a route as tests see it.
type Route struct {
	Method, Pattern string
	Scope           config.Scope
	Body            bool // it reads one
}

// What doctor says of the machine.
var (
	ClockFinding  = clockFinding
	FilesFinding  = filesFinding
	RoomFinding   = roomFinding
	InodesFinding = inodesFinding
)

// RouteTable returns all routes.
func RouteTable() (all []Route) {
	for _, r := range new(app).routes() {
		all = append(all, Route{r.method, r.pattern, r.scope, operations[r.method+" "+r.pattern].body != nil})
	}
	return all
}

// ServeOn serves the HTTP API of a daemon on a listener of the test, and nothing else,
// until the function that it returns is called.
func (s *Server) ServeOn(l net.Listener) (stop func()) {
	go func() { _ = s.http.Serve(l) }()
	return func() {
		s.drain(nil)
		_ = s.http.Close()
		s.closers.close()
		_ = s.app.store.Close()
		_ = s.archive.Close()
	}
}

// Replace puts the configuration that Options.Reload returns into force.
func (s *Server) Replace(ctx context.Context) error { return s.replace(ctx) }

// Judge draws a verdict from evidence, a status and the names of an error.
func Judge(e wire.Evidence, status int, types ...string) (verdict, why string) {
	s := symptoms{Evidence: e, status: status, types: types}
	return s.judge()
}

// CertificateFindings is what the daemon finds of certificates at a time.
func CertificateFindings(files config.TLS, now time.Time) ([]wire.Finding, error) {
	c, err := newCertificates(files, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	return c.findings(now), nil
}

// RunPlans carries out plans until ctx ends, which a daemon that only serves does not.
func (s *Server) RunPlans(ctx context.Context) { _ = s.app.plans.Run(ctx) }
