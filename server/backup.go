package server

import (
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
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // a store may be large
	out := &startedWriter{w: w}
	err := a.store.Backup(r.Context(), out)
	if err == nil || !out.started {
		return err
	}
	a.log.ErrorContext(r.Context(), "the backup broke off", "error", err)
	panic(http.ErrAbortHandler)
}

// startedWriter sends the header with the first byte.
type startedWriter struct {
	w       http.ResponseWriter
	started bool
}

func (s *startedWriter) Write(p []byte) (int, error) {
	if !s.started {
		s.started = true
		s.w.Header().Set("Content-Type", "application/octet-stream")
		s.w.Header().Set("Content-Disposition", `attachment; filename="redrive-backup"`)
		s.w.WriteHeader(http.StatusOK)
	}
	return s.w.Write(p)
}
