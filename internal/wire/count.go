package wire

import "time"

// CountRequest asks how many messages match a filter: dead letters, unless it names a state.
type CountRequest struct {
	Filter Filter `json:"filter"`
}

// The states of a count.
const (
	CountRunning   = "running"
	CountDone      = "done"
	CountCancelled = "cancelled"
	CountFailed    = "failed"
)

// Count is how many messages match a filter, of those that were there when it began. It is kept
// for ten minutes after its end.
type Count struct {
	ID        string     `json:"id"`
	Filter    Filter     `json:"filter"`
	State     string     `json:"state"`           // running, done, cancelled or failed
	Count     int64      `json:"count"`           // how many match; exact when it is done, else so far
	Examined  int64      `json:"examined"`        // how many were looked at; on a server, at least
	Total     int64      `json:"total,omitempty"` // how many there are to look at; absent: not known
	Actor     string     `json:"actor,omitempty"` // who asked first
	StartedAt time.Time  `json:"started_at"`
	UpdatedAt time.Time  `json:"updated_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	Problem   string     `json:"problem,omitempty"` // why it failed
}
