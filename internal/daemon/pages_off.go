//go:build noui

package daemon

import "net/http"

// withPages leaves the dashboard out: the program was built without it.
func (s *Server) withPages(api http.Handler) http.Handler { return api }
