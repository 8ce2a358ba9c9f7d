package redrive

import (
	"time"
)

// Query selects entries. Every field that is set narrows it.
type Query struct {
	Queue     string
	State     State // 0: any
	Reason    Reason
	Signature string // of the cause (dead), or, with State waiting, of the last failure
	Kind      string
	Key       string
	Since     time.Time // died (dead) or was published (else) at or after
	Until     time.Time // died or was published before or at: the frozen cutoff of a plan
	Text      string    // contained in the last error, or in the target's answer to the last attempt; byte for byte, upper and lower case differ
	Body      string    // contained in the body, byte for byte
	Header    string    // NAME or NAME=VALUE
	Plan      string    // was redriven, repaired or retried last by this plan
	NotPlan   string    // was not redriven, repaired or retried last by this plan
	Edited    bool      // was edited in place
	Retrying  bool      // waits in the lane of retries: it failed, or was given back, and is due now or later

	After string // the Next of the page before

	// How a store with [driver.Caps] Texts looks for the Text of dead letters.
	Shown      bool // in errors and answers as its masks show them
	ErrorsOnly bool // not in answers
	Limit      int  // entries (or causes) a page; 0: 100, at most 1000
	Bodies     bool // fill in bodies, headers, histories and originals
}

// Defaults and bounds of Query.Limit, and how many entries one page of a query that
// no index serves examines before it says so.
const (
	DefaultPage = 100
	MaxPage     = 1000
	Examined    = 20_000
)

// PageLimit returns the limit with its default and bound applied.
func (q *Query) PageLimit() int {
	if q.Limit <= 0 {
		return DefaultPage
	}
	return min(q.Limit, MaxPage)
}
