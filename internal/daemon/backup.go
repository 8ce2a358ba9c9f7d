package daemon

import (
	"context"
	"net/http"
	"time"
)

// backup streams a consistent copy of the store, in the store's own format. Once the
// first byte is sent an error can only break the connection off, which the client
// sees as a body that is cut short.
func (a *app) backup(w http.ResponseWriter, r *http.Request, who *caller) error {
	if err := who.confine(""); err != nil {
		return err
	}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Time{}) // a store may be large
	stop := context.AfterFunc(r.Context(), func() { _ = control.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	out := &startedWriter{ResponseWriter: w, ctx: r.Context()}
	err := a.store.Backup(r.Context(), out)
	if err == nil || !out.started {
		return err
	}
	a.log.ErrorContext(r.Context(), "backup aborted", "error", err)
	panic(http.ErrAbortHandler)
}

// startedWriter sends the header with the first byte.
type startedWriter struct {
	http.ResponseWriter
	ctx     context.Context //nolint:containedctx // the request's: nothing is sent after its end
	started bool
}

// Write implements io.Writer.
func (s *startedWriter) Write(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	if !s.started {
		s.started = true
		s.Header().Set("Content-Type", "application/octet-stream")
		s.Header().Set("Content-Disposition", `attachment; filename="redrive-backup"`)
		s.WriteHeader(http.StatusOK)
	}
	return s.ResponseWriter.Write(p)
}
