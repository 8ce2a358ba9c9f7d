package wire

import "time"

// Instance is a daemon that works on the store.
type Instance struct {
	ID        string    `json:"id"`
	Host      string    `json:"host"`
	PID       int       `json:"pid"`
	Version   string    `json:"version"`
	Hash      string    `json:"hash"` // of its configuration
	StartedAt time.Time `json:"started_at"`
	// RefusedSince is since when its configuration file is refused; absent: it is in force.
	RefusedSince *time.Time `json:"refused_since,omitempty"`
}

// Me is who asks, what that token allows, and whom it asks.
type Me struct {
	Name     string     `json:"name"`               // of the token
	Open     bool       `json:"open,omitempty"`     // no token is asked for: whoever reaches the daemon may do everything
	Scopes   []string   `json:"scopes"`             // with those that others imply
	Queues   []string   `json:"queues,omitempty"`   // names or patterns that the token is confined to; absent: all
	ReadOnly bool       `json:"read_only"`          // the token changes nothing
	Expires  *time.Time `json:"expires,omitempty"`  // absent: never
	Version  string     `json:"version,omitempty"`  // of the daemon that answers; absent without one, as is what follows
	Instance string     `json:"instance,omitempty"` // its id
	// Instances are the daemons on the store; absent while it does not answer.
	Instances []Peer `json:"instances,omitempty"`
}

// Login is a link to the pages.
type Login struct {
	URL     string     `json:"url"`
	Expires *time.Time `json:"expires,omitempty"` // absent: no login is needed
}

// Peer is what everyone may know of a daemon.
type Peer struct {
	ID        string    `json:"id"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"started_at"`
}

// ConfigStatus is what is said beside the configuration in force.
type ConfigStatus struct {
	Hash string `json:"hash"` // tells configurations apart
	// Refused says why the newest change of the file is not in force.
	Refused      string     `json:"refused,omitempty"`
	RefusedSince *time.Time `json:"refused_since,omitempty"`
	Instances    []Instance `json:"instances,omitempty"` // the daemons on this store
	// Differs says that not all of them have the same configuration.
	Differs bool `json:"differs,omitempty"`
}

// Token is a token of the configuration with its use. The token itself is not known.
type Token struct {
	ID       string     `json:"id,omitempty"`
	Name     string     `json:"name"`
	Scopes   []string   `json:"scopes"`
	Queues   []string   `json:"queues,omitempty"`
	Rate     string     `json:"rate,omitempty"`
	Quota    string     `json:"quota,omitempty"`
	Left     *int64     `json:"quota_left,omitempty"` // in the present window, of all daemons
	Expires  *time.Time `json:"expires,omitempty"`
	Expired  bool       `json:"expired,omitempty"`
	LastUsed *time.Time `json:"last_used,omitempty"` // to the minute
}

// AuditEntry tells who changed what.
type AuditEntry struct {
	ID      string    `json:"id"`
	At      time.Time `json:"at"`
	Actor   string    `json:"actor"`  // the token's name; "local" without tokens
	Action  string    `json:"action"` // "edit", "drop", "plan redrive", "pause", "reload", ...
	Queue   string    `json:"queue,omitempty"`
	Message string    `json:"message,omitempty"` // the id of the message, if it is about one
	Plan    string    `json:"plan,omitempty"`
	Count   int64     `json:"count,omitempty"` // messages it is about
	// CountMore says that Count is of those that were looked at: it is about at least so many.
	CountMore bool    `json:"count_more,omitempty"`
	Filter    *Filter `json:"filter,omitempty"` // that chose them
	Note      string  `json:"note,omitempty"`
	// Outcome is "begun" until it is known, then "done" or the error; of a plan that ended its state.
	Outcome string `json:"outcome"`
	Remote  string `json:"remote,omitempty"` // the address the request came from
	Via     string `json:"via,omitempty"`    // ui: a page; absent: the API itself
}

// Event is a change that a listener hears of. Topic is queues, causes or plans, Key the name of
// the item: a queue, queue/reason/signature, a plan's id; of causes "more" where there are more than 20,000 (see MoreCauses). Item is as the list of the topic has it.
// Three topics are about the stream itself: reset comes before a whole state, from which the listener
// begins anew; problem says that the daemon cannot look, and, removed, that it can again; end is
// the last event, with the problem.
type Event struct {
	Topic   string `json:"topic"`
	Key     string `json:"key,omitempty"`
	Item    any    `json:"item,omitempty"`
	Removed bool   `json:"removed,omitempty"`
}

// MoreCauses is the item under the key "more" of the topic causes: there are more than listeners hear of.
type MoreCauses struct {
	More int `json:"more"`
}

// Reset is the item of a reset.
type Reset struct {
	Events int `json:"events"` // how many follow that are the whole state
}
