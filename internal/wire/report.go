package wire

import "time"

// Report is what happened since a time, to hand over.
type Report struct {
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until"`             // when it was made
	By      string    `json:"by"`                // who asked for it
	Queues  []string  `json:"queues,omitempty"`  // names or patterns: nothing of others is in it
	Plan    string    `json:"plan,omitempty"`    // it is about this plan and those that follow from it
	Version string    `json:"version,omitempty"` // of the daemon

	Died     int64         `json:"died"`                // messages, by the causes
	DiedMore bool          `json:"died_more,omitempty"` // at least so many
	Dead     int64         `json:"dead"`                // now
	Causes   []ReportCause `json:"causes"`              // of which something died, and of which something is still dead
	// CausesMore says that there are more, of which less is dead.
	CausesMore bool   `json:"causes_more,omitempty"`
	Plans      []Plan `json:"plans"` // that were made, ended or at work, the newest first
	// Actions are the audit log's entries, the newest first; they need the scope admin.
	Actions       []AuditEntry `json:"actions,omitempty"`
	ActionsMore   bool         `json:"actions_more,omitempty"`   // there are more
	ActionsHidden bool         `json:"actions_hidden,omitempty"` // the token may not see them
	Ledger        Verified     `json:"ledger"`
}

// ReportCause is a cause with what died of it. Count is what is still dead; a cause of which
// nothing is dead any more has no text, and First and Last of its deaths, to their minute, hour or day.
type ReportCause struct {
	Cause
	Died     int64 `json:"died"`
	DiedMore bool  `json:"died_more,omitempty"` // at least so many: of earlier deaths only hours or days are known
}
