package server

import "github.com/redrive/redrive/config"

// Route is a route as tests see it.
type Route struct {
	Method, Pattern string
	Scope           config.Scope
}

// RouteTable returns all routes.
func RouteTable() (all []Route) {
	for _, r := range new(app).routes() {
		all = append(all, Route{r.method, r.pattern, r.scope})
	}
	return all
}
