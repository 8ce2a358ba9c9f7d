//go:build noui

package daemon

import "net/http"

const hasPages = false

// withPages leaves the dashboard out: the program was built without it.
func (s *Server) withPages(api http.Handler) http.Handler { return api }

// Pages has nothing to show: the program was built without the dashboard.
func (l *LocalAPI) Pages(string) http.Handler { return http.NotFoundHandler() }
