package daemon

import "github.com/redrive/redrive/internal/daemon/config"

// Route is a route as tests see it.
type Route struct {
	Method, Pattern string
	Scope           config.Scope
	Body            bool // it reads one
}

// RouteTable returns all routes.
func RouteTable() (all []Route) {
	for _, r := range new(app).routes() {
		all = append(all, Route{r.method, r.pattern, r.scope, operations[r.method+" "+r.pattern].body != nil})
	}
	return all
}
