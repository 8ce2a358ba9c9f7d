package daemon

import (
	"net/http"

	"github.com/redrive/redrive/internal/daemon/config"
)

// route is one operation of the API.
type route struct {
	method  string
	pattern string
	scope   config.Scope // what a token needs; scopeOpen: no token, scopeAny: any
	handle  func(w http.ResponseWriter, r *http.Request, who *caller) error
}

// routes is the whole API. Everything that depends on it, such as the test that
// tries each with a wrong token, is derived from here.
func (a *app) routes() []route {
	return []route{
		{http.MethodGet, "/v1/me", scopeAny, a.me},
		{http.MethodPost, "/v1/logins", scopeAny, a.createLogin},
		{http.MethodGet, "/v1/events", config.ScopeRead, a.listen},
		{http.MethodPost, "/v1/queues/{queue}/messages", config.ScopePublish, a.publish},
		{http.MethodPost, "/v1/queues/{queue}/claims", config.ScopeConsume, a.claim},
		{http.MethodPost, "/v1/queues/{queue}/extensions", config.ScopeConsume, a.extend},
		{http.MethodPost, "/v1/queues/{queue}/settlements", config.ScopeConsume, a.settle},
		{http.MethodPost, "/v1/call/{queue}", config.ScopeCall, a.call},
		{http.MethodGet, "/v1/call/{queue}/{id}", config.ScopeCall, a.callResult},
		{http.MethodGet, "/v1/guards", config.ScopeRead, a.listGuards},
		{http.MethodGet, "/v1/guards/{queue}", config.ScopeRead, a.showGuard},
		{http.MethodPost, "/v1/guards/{queue}/force", config.ScopeRedrive, a.forceGuard},
		{http.MethodGet, "/v1/queues", config.ScopeRead, a.listQueues},
		{http.MethodGet, "/v1/queues/{queue}", config.ScopeRead, a.showQueue},
		{http.MethodPost, "/v1/queues/{queue}/pause", config.ScopeRedrive, a.pauseQueue},
		{http.MethodPost, "/v1/queues/{queue}/resume", config.ScopeRedrive, a.resumeQueue},
		{http.MethodGet, "/v1/queues/{queue}/messages", config.ScopeRead, a.listMessages},
		{http.MethodGet, "/v1/queues/{queue}/messages/{id}", config.ScopeRead, a.showMessage},
		{http.MethodDelete, "/v1/queues/{queue}/messages/{id}", config.ScopePurge, a.dropMessage},
		{http.MethodGet, "/v1/queues/{queue}/processing", config.ScopeRead, a.processing},
		{http.MethodGet, "/v1/queues/{queue}/series", config.ScopeRead, a.showSeries},
		{http.MethodGet, "/v1/queues/{queue}/monitor", config.ScopeRead, a.monitor},
		{http.MethodGet, "/v1/dead-letters", config.ScopeRead, a.listDead},
		{http.MethodPost, "/v1/dead-letters", config.ScopeRedrive, a.importDead},
		{http.MethodGet, "/v1/causes", config.ScopeRead, a.listCauses},
		{http.MethodGet, "/v1/causes/{signature}/deaths", config.ScopeRead, a.causeDeaths},
		{http.MethodPut, "/v1/causes/{signature}", config.ScopeRedrive, a.changeCause},
		{http.MethodGet, "/v1/causes/{signature}/facets", config.ScopeRead, a.causeFacets},
		{http.MethodGet, "/v1/causes/{signature}/verdict", config.ScopeRead, a.causeVerdict},
		{http.MethodPost, "/v1/counts", config.ScopeRead, a.createCount},
		{http.MethodGet, "/v1/counts/{id}", config.ScopeRead, a.showCount},
		{http.MethodDelete, "/v1/counts/{id}", config.ScopeRead, a.cancelCount},
		{http.MethodGet, "/v1/queues/{queue}/dead-letters/{id}", config.ScopeRead, a.showDead},
		{http.MethodPatch, "/v1/queues/{queue}/dead-letters/{id}", config.ScopeRedrive, a.editDead},
		{http.MethodDelete, "/v1/queues/{queue}/dead-letters/{id}", config.ScopePurge, a.dropDead},
		{http.MethodPost, "/v1/plans", config.ScopePropose, a.createPlan},
		{http.MethodGet, "/v1/plans", config.ScopeRead, a.listPlans},
		{http.MethodGet, "/v1/plans/{id}", config.ScopeRead, a.showPlan},
		{http.MethodPatch, "/v1/plans/{id}", config.ScopeRedrive, a.changePlan},
		{http.MethodGet, "/v1/plans/{id}/results", config.ScopeRead, a.planResults},
		{http.MethodPost, "/v1/plans/{id}/cancel", config.ScopePropose, a.cancelPlan},
		{http.MethodPost, "/v1/plans/{id}/release", config.ScopeRead, a.releasePlan}, // purge releases drops, redrive the rest
		{http.MethodPost, "/v1/plans/{id}/pause", config.ScopeRedrive, a.pausePlan},
		{http.MethodPost, "/v1/plans/{id}/resume", config.ScopeRedrive, a.resumePlan},
		{http.MethodGet, "/v1/ws", config.ScopePublish, a.websocket},
		{http.MethodGet, "/v1/sessions", config.ScopeRead, a.listSessions},
		{http.MethodGet, "/v1/alerts", config.ScopeRead, a.listAlerts},
		{http.MethodPost, "/v1/alerts/test", config.ScopeAdmin, a.testAlerts},
		{http.MethodGet, "/v1/verify", config.ScopeRead, a.verify},
		{http.MethodPost, "/v1/verify", config.ScopeAdmin, a.acknowledge},
		{http.MethodGet, "/v1/probe", config.ScopeRead, a.probeStore},
		{http.MethodGet, "/v1/backup", config.ScopeAdmin, a.backup},
		{http.MethodGet, "/debug/pprof/{profile}", config.ScopeAdmin, a.profile},
		{http.MethodGet, "/v1/config", config.ScopeAdmin, a.showConfig},
		{http.MethodGet, "/v1/tokens", config.ScopeAdmin, a.listTokens},
		{http.MethodGet, "/v1/report", config.ScopeRead, a.showReport},
		{http.MethodGet, "/v1/audit", config.ScopeAdmin, a.listAudit},
		{http.MethodGet, "/metrics", config.ScopeRead, a.metricsPage},
		{http.MethodGet, "/healthz", scopeOpen, a.healthz},
		{http.MethodGet, "/readyz", scopeOpen, a.readyz},
		{http.MethodGet, "/openapi.json", scopeOpen, a.openAPI},
	}
}

// mux mounts the routes. Each checks for itself who may use it, if the configuration
// has tokens; those of a trusted mux do not.
func (a *app) mux(trusted bool) *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range a.routes() {
		mux.Handle(r.method+" "+r.pattern, a.guarded(r, trusted))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { a.unrouted(mux, w, r) })
	return mux
}
