package wire

import (
	"slices"
	"strconv"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Cause counts the dead letters of one cause.
type Cause struct {
	Queue     string         `json:"queue"`
	Reason    redrive.Reason `json:"reason"`
	Signature string         `json:"signature"`
	Count     int64          `json:"count"`
	First     time.Time      `json:"first"`   // when the first of them died
	Last      time.Time      `json:"last"`    // when the last of them died
	Example   string         `json:"example"` // "queue/id" of the newest
	Type      string         `json:"type,omitempty"`
	Message   string         `json:"message,omitempty"`
	Status    int            `json:"status,omitempty"` // the HTTP status that the target answered the newest with
	Answer    string         `json:"answer,omitempty"` // what its answers have in common: keys, and values under some of them, which need the scope read-payload
	// State is new, acknowledged, ignored, resolved, or regressed: more died of it since that
	// was decided, on the version RegressedOn, if that is known.
	State       string     `json:"state,omitempty"`
	RegressedOn string     `json:"regressed_on,omitempty"`
	Life        *CauseLife `json:"life,omitempty"`
	Growing     bool       `json:"growing,omitempty"`    // something died of it in each of the last three minutes
	Quiet       bool       `json:"quiet,omitempty"`      // nothing died of it within the last 15 minutes
	PerMinute   float64    `json:"per_minute,omitempty"` // deaths a minute in the last three
	Minutes     []int64    `json:"minutes,omitempty"`    // deaths of each of the last 60 minutes, this one last; absent: none, or not known
}

// Bounds of Cause, in minutes.
const (
	shownMinutes = 60
	growingFor   = 3
	quietAfter   = 15
)

// GrowingFor is the time of which Cause.PerMinute is the mean. QuietAfter is for how long nothing died of
// a quiet one.
const (
	GrowingFor = growingFor * time.Minute
	QuietAfter = quietAfter * time.Minute
)

// Grows sets what is known of a cause by its deaths, which may be nil: those of a cause that has no
// series of its own.
func (c *Cause) Grows(d *driver.Deaths, now time.Time) {
	this := now.Truncate(time.Minute)
	if d != nil {
		for _, b := range d.Buckets {
			ago := int(this.Sub(b.Start) / time.Minute)
			if b.Width != time.Minute || ago < 0 || ago >= shownMinutes {
				continue
			}
			if c.Minutes == nil {
				c.Minutes = make([]int64, shownMinutes)
			}
			c.Minutes[shownMinutes-1-ago] += b.Count
		}
	}
	c.Quiet = now.Sub(c.Last) >= QuietAfter
	if c.Minutes == nil {
		return
	}
	c.Quiet = c.Quiet && !slices.ContainsFunc(c.Minutes[shownMinutes-quietAfter:], func(n int64) bool { return n > 0 })
	// This minute has only begun: if nothing died in it yet, the three before it tell.
	last := c.Minutes[shownMinutes-growingFor:]
	if last[growingFor-1] == 0 {
		last = c.Minutes[shownMinutes-growingFor-1 : shownMinutes-1]
	}
	var recent int64
	for _, n := range last {
		recent += n
	}
	c.Growing, c.PerMinute = !slices.Contains(last, 0), float64(recent)/growingFor
}

// Deaths is how often messages died of one cause, by time. A redrive does not lower it.
type Deaths struct {
	Queue     string        `json:"queue"`
	Reason    string        `json:"reason,omitempty"` // absent: of the causes beyond the first 5,000 of a queue together
	Signature string        `json:"signature"`
	Buckets   []DeathBucket `json:"buckets"` // oldest first, without empty ones
}

// DeathBucket counts deaths of a minute (of the last hour), an hour (of the last three
// days) or a day (of the last month).
type DeathBucket struct {
	Start time.Time `json:"start"`
	Width string    `json:"width"` // 1m, 1h or 1d
	Count int64     `json:"count"`
}

// DeathsOf returns deaths as they go over the wire.
func DeathsOf(d *driver.Deaths) Deaths {
	out := Deaths{Queue: d.Queue, Signature: d.Signature, Buckets: make([]DeathBucket, len(d.Buckets))}
	if d.Reason != 0 {
		out.Reason = d.Reason.String()
	}
	widths := map[time.Duration]string{time.Minute: "1m", time.Hour: "1h", 24 * time.Hour: "1d"}
	for i, b := range d.Buckets {
		out.Buckets[i] = DeathBucket{Start: b.Start.UTC(), Width: widths[b.Width], Count: b.Count}
	}
	return out
}

// CauseOf returns a cause as it goes over the wire. Without payload the values of its answer
// are left out.
func CauseOf(c *driver.Cause, payload bool) Cause {
	status, _ := strconv.Atoi(c.Status) // a worker may report anything
	return Cause{
		Queue: c.Queue, Reason: c.Reason, Signature: c.Signature, Count: c.Count, First: c.First.UTC(), Last: c.Last.UTC(),
		Example: c.Example.String(), Type: c.Type, Message: c.Message, Status: status, Answer: driver.Skeleton(c.Answer, payload),
	}
}

// Imported answers an import of dead letters.
type Imported struct {
	Imported   int64 `json:"imported"`
	Duplicates int64 `json:"duplicates"` // were there already, and left as they are
	// Ended are the duplicates that are not there any more: they were redriven and delivered since,
	// or, with restore=false, archived or dropped.
	Ended    int64        `json:"ended,omitempty"`
	Failed   int64        `json:"failed"`
	Problems []LineResult `json:"problems,omitempty"` // the first of those that failed
	// Lines are all lines, with lines=true in the query, in the order in which they were
	// decided.
	Lines []LineResult `json:"lines,omitempty"`
}
