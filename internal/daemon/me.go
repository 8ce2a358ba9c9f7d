package daemon

import (
	"net/http"

	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

// changing are the scopes that allow more than to look.
var changing = []config.Scope{config.ScopePublish, config.ScopeConsume, config.ScopeCall, config.ScopeRedrive, config.ScopePurge, config.ScopeAdmin}

// me tells a caller who it is and what it may do. It answers also while the store is away.
func (a *app) me(w http.ResponseWriter, r *http.Request, who *caller) error {
	if _, err := parameters(r); err != nil {
		return err
	}
	out := wire.Me{Name: who.name, Open: who.grant == nil, Queues: who.queues, ReadOnly: true}
	for _, s := range config.Scopes() {
		if who.may(s) {
			out.Scopes = append(out.Scopes, string(s))
		}
	}
	for _, s := range changing {
		out.ReadOnly = out.ReadOnly && !who.may(s)
	}
	if !who.expires.IsZero() {
		expires := who.expires.UTC()
		out.Expires = &expires
	}
	if a.instances == nil {
		return writeJSON(w, http.StatusOK, out)
	}
	out.Version, out.Instance = a.instances.self.Version, a.instances.self.ID
	if all, err := a.instances.list(r.Context()); err == nil {
		for i := range all {
			out.Instances = append(out.Instances, wire.Peer{ID: all[i].ID, Version: all[i].Version, StartedAt: all[i].StartedAt})
		}
	}
	return writeJSON(w, http.StatusOK, out)
}
