package wire

import "time"

// Hold is what keeps messages of a queue from being delivered, or lets only some through, or
// keeps new ones out.
type Hold struct {
	What   string     `json:"what"`             // one of the Hold constants
	Stops  string     `json:"stops"`            // "delivery" or "publishing"
	Target string     `json:"target,omitempty"` // the target, kind or provider; absent: the whole queue
	By     string     `json:"by,omitempty"`     // who paused it
	Since  *time.Time `json:"since,omitempty"`  // absent: not known
	Until  *time.Time `json:"until,omitempty"`  // the next probe, the end of a pause, the next message of a rate; absent: not known
	Detail string     `json:"detail"`           // for people
}

// HoldOf returns a hold; times that are zero are not known.
func HoldOf(what, target string, since, until time.Time, detail string) Hold {
	h := Hold{What: what, Stops: StopsDelivery, Target: target, Since: moment(since), Until: moment(until), Detail: detail}
	if what == HoldDisk || what == HoldLimit {
		h.Stops = StopsPublishing
	}
	return h
}

// What a hold may be.
const (
	HoldPause       = "pause"       // by a person, or because a handler asked for it
	HoldBreaker     = "breaker"     // until is the next probe
	HoldRate        = "rate"        // of the target
	HoldConcurrency = "concurrency" // of the target
	HoldRetryAfter  = "retry_after" // the target asked to wait
	HoldGuard       = "guard"       // a provider is limited or sick, or the backlog's pace
	HoldSlots       = "slots"       // all are taken
	HoldGate        = "gate"        // another limiter
	HoldSource      = "source"      // the server of the queue's source is away
	HoldStore       = "store"       // its server is away
	HoldDisk        = "disk"        // the store's is full
	HoldLimit       = "limit"       // limits of the backlog
	HoldNobody      = "nobody"      // consumes it
	HoldKeys        = "keys"        // messages wait behind the first one of their key

	// Of plans only.
	HoldCanary = "canary" // its messages are not at their end, or until then it is watched whether they come back
	HoldLane   = "lane"   // what is redriven has a share of the slots while others wait
)

// What a hold stops.
const (
	StopsDelivery   = "delivery"
	StopsPublishing = "publishing"
)
