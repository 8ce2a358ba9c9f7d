package wire

import (
	"time"

	"github.com/redrive/redrive"
)

// The states of a cause.
const (
	CauseNew          = "new"
	CauseAcknowledged = "acknowledged"
	CauseIgnored      = "ignored"
	CauseResolved     = "resolved"
	CauseRegressed    = "regressed" // messages died of it again; nobody sets this
)

// CauseChange says what a person decided of a cause, instead of what was said before.
type CauseChange struct {
	Queue string `json:"queue"`
	// Reason of the dead letters; absent: whatever it is.
	Reason  redrive.Reason `json:"reason,omitempty"`
	State   string         `json:"state"`             // new, acknowledged, ignored or resolved
	Until   string         `json:"until,omitempty"`   // acknowledged: a time of RFC 3339, or a duration from now such as 2h; absent: until one more dies
	More    int64          `json:"more,omitempty"`    // ignored: until so many more have died
	Rate    float64        `json:"rate,omitempty"`    // ignored: until so many die a minute
	Plan    string         `json:"plan,omitempty"`    // resolved: by this plan
	Version string         `json:"version,omitempty"` // resolved: on this version of the service
	Note    string         `json:"note,omitempty"`    // at most 2 kB
	Link    string         `json:"link,omitempty"`    // of the incident: http or https
}

// CauseLife is what a person decided of a cause, and who.
type CauseLife struct {
	Until   *time.Time `json:"until,omitempty"`
	More    int64      `json:"more,omitempty"`
	Rate    float64    `json:"rate,omitempty"`
	Plan    string     `json:"plan,omitempty"`
	Version string     `json:"version,omitempty"`
	Note    string     `json:"note,omitempty"`
	Link    string     `json:"link,omitempty"`
	Decided string     `json:"decided"` // acknowledged, ignored or resolved
	// Reason is the one that was decided about; absent: all.
	Reason redrive.Reason `json:"reason,omitempty"`
	By     string         `json:"by"`
	At     time.Time      `json:"at"`
}

// Live sets the state of a cause by what a person decided of it, which may be nil. The deaths of the
// cause and the version of its newest failure are set before.
func (c *Cause) Live(l *CauseLife, deathsSince int64, version string, now time.Time) {
	c.State, c.Life = CauseNew, l
	if l == nil {
		return
	}
	again := c.Last.After(l.At) || deathsSince > 0
	switch c.State = l.Decided; l.Decided {
	case CauseAcknowledged:
		again = again && (l.Until == nil || now.After(*l.Until))
	case CauseIgnored:
		again = l.More > 0 && deathsSince >= l.More || l.Rate > 0 && c.PerMinute >= l.Rate
	}
	if again {
		c.State, c.RegressedOn = CauseRegressed, version
	}
}
