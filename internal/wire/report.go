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

	Died     int64 `json:"died"`                // messages, by the causes
	DiedMore bool  `json:"died_more,omitempty"` // at least so many
	Dead     int64 `json:"dead"`                // now
	// CausesDied is of how many causes something died, CausesDead of how many something is still dead.
	// A plan over named messages knows its causes only as far as these are still there, or were
	// redriven: with CausesUnknown there may be others.
	CausesDied    int  `json:"causes_died"`
	CausesDead    int  `json:"causes_dead"`
	CausesUnknown bool `json:"causes_unknown,omitempty"`
	// Causes are those of which something died or is still dead, at most 1,000, the most deaths first;
	// CausesMore says that there are more.
	Causes     []ReportCause `json:"causes"`
	CausesMore bool          `json:"causes_more,omitempty"`
	// Plans were made, ended or at work, the newest first. Of those that let messages be delivered the first 50 have progress.
	Plans []Plan `json:"plans"`
	// Actions are the audit log's entries, the newest first; they need the scope admin.
	Actions       []AuditEntry `json:"actions,omitempty"`
	ActionsMore   bool         `json:"actions_more,omitempty"`   // there are more
	ActionsHidden bool         `json:"actions_hidden,omitempty"` // the token may not see them
	Ledger        Verified     `json:"ledger"`
}

// ReportCause is a cause with what died of it. Count is what is still dead; a cause of which
// nothing is dead any more has no text, and First and Last of its deaths, to their minute, hour or day.
// Without a reason it is what died of the causes beyond the first 5,000 of a queue, together.
type ReportCause struct {
	Cause
	Died     int64 `json:"died"`
	DiedMore bool  `json:"died_more,omitempty"` // at least so many: of earlier deaths only hours or days are known
}
