package wire

import "time"

// Facets are what a sample of a cause's dead letters has in common: half of it the oldest, half
// among the newest.
type Facets struct {
	Queue     string  `json:"queue,omitempty"` // absent: of all queues
	Signature string  `json:"signature"`
	Sample    int     `json:"sample"` // how many were looked at
	Of        int64   `json:"of"`     // how many dead letters the cause has
	Facets    []Facet `json:"facets"` // kind, target, host, version, status
	Headers   []Facet `json:"headers"`
	Paths     []Facet `json:"paths"` // places in bodies that are JSON and at most 64 kB, in which few different values stand
}

// Facet is one thing that messages may have in common.
type Facet struct {
	Name     string       `json:"name"`
	Present  int          `json:"present"`            // so many of the sample have it
	Distinct int          `json:"distinct,omitempty"` // different values, where these are shown
	Values   []FacetValue `json:"values,omitempty"`   // the most frequent first, at most ten; of bodies only with the scope read-payload
}

// FacetValue counts the messages that have one value.
type FacetValue struct {
	Value string `json:"value"`
	Count int    `json:"count"`
}

// The verdicts on a cause.
const (
	VerdictDown        = "down"        // the target is
	VerdictCredentials = "credentials" // of ours are refused
	VerdictPoison      = "poison"      // the data of these messages is refused, others are delivered
	VerdictBug         = "bug"         // in the handler or target: it fails for some kinds, and others pass
	VerdictUnclear     = "unclear"
)

// Verdict says what a cause looks like, and why. It starts nothing.
type Verdict struct {
	Cause    Cause    `json:"cause"`
	Verdict  string   `json:"verdict"` // down, credentials, poison, bug or unclear
	Why      string   `json:"why"`
	Evidence Evidence `json:"evidence"`
}

// Evidence are the numbers that a verdict is drawn from. Deliveries are those of the daemon that
// answers, in those of the last 15 minutes in which messages died of the cause, or in all of these
// if none died.
type Evidence struct {
	Delivered     int64      `json:"delivered"`      // messages of the queue
	Failed        int64      `json:"failed"`         // attempts at messages of the queue
	KindDelivered int64      `json:"kind_delivered"` // messages of the kinds that the sample has
	Minutes       int        `json:"minutes"`        // how many minutes were looked at; 0: the daemon delivered nothing
	Kinds         int        `json:"kinds"`          // different kinds in the sample
	Sample        int        `json:"sample"`
	Shared        string     `json:"shared,omitempty"` // what most of the sample have in common, of what differs at all: "kind = github.push"
	Share         float64    `json:"share"`            // the part of the sample that has it
	Breaker       string     `json:"breaker,omitempty"`
	NextProbe     *time.Time `json:"next_probe,omitempty"` // while the breaker is open
	Frame         string     `json:"frame,omitempty"`      // of the handler, where it panicked
}
