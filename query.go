package redrive

import (
	"time"
)

// Query selects entries. Every field that is set narrows it.
type Query struct {
	Queue     string
	State     State // 0: any
	Reason    Reason
	Signature string
	Kind      string
	Key       string
	Since     time.Time // died (dead) or was published (else) at or after
	Until     time.Time // died or was published before or at: the frozen cutoff of a plan
	Text      string    // contained in the last error, or in the target's answer to the last attempt; byte for byte, upper and lower case differ
	Body      string    // contained in the body, byte for byte
	Header    string    // NAME or NAME=VALUE
	Plan      string    // was redriven or repaired last by this plan
	NotPlan   string    // was not redriven or repaired last by this plan
	Edited    bool      // was edited in place

	After  string // the Next of the page before
	View   View   // what Text looks at, in a store with [driver.Caps] Texts
	Limit  int    // entries (or causes) a page; 0: 100, at most 1000
	Bodies bool   // fill in bodies, headers, histories and originals
}

// View is what a search by text looks at.
type View uint8

// The views.
const (
	ViewAll    View = iota // errors and answers as they are
	ViewShown              // errors and answers as the store's masks show them
	ViewErrors             // errors only, as the masks show them
)

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
