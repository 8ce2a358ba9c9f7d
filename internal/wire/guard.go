package wire

import "github.com/redrive/redrive/guard"

// Guard is how the endpoints of a guarded queue are, and what became of its calls
// since the daemon started.
type Guard struct {
	Queue     string           `json:"queue"`
	Providers []guard.Stats    `json:"providers"`
	Deferred  map[string]int64 `json:"deferred"`  // calls that were put off, or could not be, by reason
	Failovers int64            `json:"failovers"` // calls that were tried with a second endpoint
	Tokens    map[string]int64 `json:"tokens"`    // calls by token
}

// ForceRequest sets the state of an endpoint.
type ForceRequest struct {
	State    string   `json:"state"`              // healthy, limited, down, recovering or isolated
	Provider string   `json:"provider,omitempty"` // absent: all endpoints
	For      Duration `json:"for,omitempty"`      // of down, limited and isolated; absent: an hour
}

// CallStatus is how a call stands that was put off and has no result yet.
type CallStatus struct {
	Queue string `json:"queue"`
	ID    string `json:"id"`
	State string `json:"state"`           // waiting, leased or blocked
	Error string `json:"error,omitempty"` // of its newest failure
}
