package engine

import (
	"hash/maphash"
	"slices"
	"strconv"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/text"
)

// BreakerOptions tunes the breaker of a queue: it tells an outage of the target from
// a poison message. A zero field means its default.
type BreakerOptions struct {
	Off         bool
	Window      time.Duration // attempts that ended within it are looked at; 10 s
	MinAttempts int           // fewer attempts decide nothing; 20
	MinMessages int           // nor do attempts of fewer messages; 10
	Share       float64       // of failed attempts that opens it; 0.9
	LastFailed  int           // and none of the last so many succeeded; 10
	ProbeMin    time.Duration // between probes, at first; 1 s
	ProbeMax    time.Duration // between probes, at most; 30 s
}

// MaxBreakerMessages bounds [BreakerOptions.MinMessages], as so many messages are remembered
// for each target or kind.
const MaxBreakerMessages = 256

func (o BreakerOptions) withDefaults() BreakerOptions {
	o.Window = text.Positive(o.Window, 10*time.Second)
	o.ProbeMin = text.Positive(o.ProbeMin, time.Second)
	o.ProbeMax = max(text.Positive(o.ProbeMax, 30*time.Second), o.ProbeMin)
	for _, n := range []struct {
		v         *int
		otherwise int
	}{{&o.MinAttempts, 20}, {&o.MinMessages, 10}, {&o.LastFailed, 10}} {
		if *n.v <= 0 {
			*n.v = n.otherwise
		}
	}
	o.MinMessages = min(o.MinMessages, MaxBreakerMessages)
	if !(o.Share > 0 && o.Share <= 1) {
		o.Share = 0.9
	}
	return o
}

// States of a breaker.
const (
	BreakerClosed  = "closed"  // everything flows
	BreakerOpen    = "open"    // nothing but a probe now and then is claimed
	BreakerProbing = "probing" // a probe is on its way
)

// BreakerStatus is one breaker of a queue as it stands.
type BreakerStatus struct {
	Key       string    // the target, or the kind where the queue names no target
	State     string    // [BreakerClosed], [BreakerOpen] or [BreakerProbing]
	Reason    string    // "24 of 25 attempts failed within 10s"; why it closed
	Since     time.Time // when it opened or closed
	NextProbe time.Time // while it is open: not before this
}

// How an attempt ended, as a breaker sees it.
type endedHow uint8

const (
	endedUnknown endedHow = iota // it says nothing about the target
	endedSuccess                 // it succeeded
	endedFailed                  // it failed, and that may be the target's fault
	endedRefused                 // the target, or the handler, refused this message: it works
)

// judge reads a settlement. A failure that is the message's fault says that the target
// works: an answer 400, 413, 415 or 422, and what a handler marked as permanent. Any other
// answer may be the target's own fault, also one that is not tried again (401, 403, 404, 410).
func judge(s *driver.Settlement) endedHow {
	if s == nil {
		return endedUnknown
	}
	switch s.Outcome {
	case redrive.OutcomeDone, redrive.OutcomeRepeat:
		return endedSuccess
	}
	if s.Failure == nil {
		if s.Outcome == redrive.OutcomeRetry {
			return endedFailed
		}
		return endedUnknown
	}
	switch s.Reason {
	case redrive.ReasonExpired, redrive.ReasonCrashed, redrive.ReasonLoop, redrive.ReasonManual, redrive.ReasonCorrupt: // there was no attempt
		return endedUnknown
	}
	switch s.Failure.Details[driver.DetailStatus] {
	case "400", "413", "415", "422":
		return endedRefused
	case "":
	default:
		return endedFailed
	}
	switch s.Reason {
	case 0, redrive.ReasonExhausted, redrive.ReasonUncertain, redrive.ReasonDisabled:
		return endedFailed
	}
	return endedRefused
}

// breakerSlots is how many slots of time the window of a breaker is made of.
const breakerSlots = 20

type breakerSlot struct {
	ended, failed uint32 // successes and failures; only the latter
}

// seenMessage is a message of which an attempt ended, and in which slot the last one.
type seenMessage struct {
	hash uint64
	slot int64 // 0: none
}

// breaker is the state of one target or kind.
type breaker struct {
	key    string
	opened bool
	reason string // why it opened or closed; empty: it never did
	since  time.Time

	// While it is closed.
	slot     int64 // number of the current slot since 1970
	slots    [breakerSlots]breakerSlot
	total    breakerSlot   // sum of slots
	inRow    int           // failures since the last success
	messages []seenMessage // as many as must differ, those seen last

	// While it is open.
	interval  time.Duration
	probeAt   time.Time // no probe before
	probing   bool
	probe     string    // id of the message that is the probe; empty: not claimed yet
	probeEnds time.Time // when it is given up
	recent    []string  // the message that opened it, and probes
	next      int       // in recent
}

// record counts an attempt that succeeded or failed, and returns why the breaker opens, if
// it does.
func (b *breaker) record(o *BreakerOptions, now time.Time, id string, how endedHow) string {
	b.advance(o, now)
	slot := &b.slots[b.slot%breakerSlots]
	b.see(id)
	slot.ended++
	b.total.ended++
	if how == endedSuccess {
		b.inRow = 0
		return ""
	}
	b.inRow++
	slot.failed++
	b.total.failed++
	ended, failed := int(b.total.ended), int(b.total.failed)
	if b.inRow < o.LastFailed || ended < o.MinAttempts || float64(failed) < o.Share*float64(ended) {
		return ""
	}
	for _, m := range b.messages {
		if m.slot == 0 || m.slot <= b.slot-breakerSlots {
			return ""
		}
	}
	return strconv.Itoa(failed) + " of " + strconv.Itoa(ended) + " attempts failed within " + o.Window.String()
}

// advance drops the slots that left the window.
func (b *breaker) advance(o *BreakerOptions, now time.Time) {
	slot := now.UnixNano() / max(int64(o.Window)/breakerSlots, 1)
	if slot <= b.slot {
		return
	}
	for i := max(b.slot, slot-breakerSlots) + 1; i <= slot; i++ {
		old := &b.slots[i%breakerSlots]
		b.total.ended -= old.ended
		b.total.failed -= old.failed
		*old = breakerSlot{}
	}
	b.slot = slot
}

var breakerSeed = maphash.MakeSeed()

// see notes a message in place of itself or of the one that was seen longest ago.
func (b *breaker) see(id string) {
	hash := maphash.String(breakerSeed, id)
	oldest := 0
	for i := range b.messages {
		if b.messages[i].hash == hash && b.messages[i].slot != 0 {
			b.messages[i].slot = b.slot
			return
		}
		if b.messages[i].slot < b.messages[oldest].slot {
			oldest = i
		}
	}
	b.messages[oldest] = seenMessage{hash: hash, slot: b.slot}
}

// reportOpen takes the end of an attempt while the breaker is open, and returns why
// it closes, if it does.
func (b *breaker) reportOpen(o *BreakerOptions, now time.Time, id string, how endedHow) string {
	if !b.isProbe(id) {
		if (how == endedSuccess || how == endedRefused) && b.probeAt.After(now) { // in flight when it opened: a good sign
			b.probeAt = now
		}
		return ""
	}
	switch {
	case how == endedSuccess:
		return "a probe succeeded"
	case how == endedRefused:
		return "a probe was refused for its message: the target works"
	case !b.probing || b.probe != "" && b.probe != id: // a probe that was given up, and fails late
		return ""
	case how == endedFailed:
		b.interval = min(2*b.interval, o.ProbeMax)
	}
	b.probing, b.probeAt = false, now.Add(b.interval)
	return ""
}

func (b *breaker) setProbe(id string) {
	b.probe = id
	b.avoid(id)
}

// avoid lets the next probes be other messages than this one.
func (b *breaker) avoid(id string) {
	if b.recent == nil {
		b.recent = make([]string, probeIDs)
	}
	b.recent[b.next%probeIDs] = id
	b.next++
}

// isProbe reports whether a message is the probe, or was one that was given up.
func (b *breaker) isProbe(id string) bool {
	return b.probing && (b.probe == "" || b.probe == id) || slices.Contains(b.recent, id)
}

// change opens or closes the breaker, and forgets what it counted.
func (b *breaker) change(opened bool, now time.Time, why string) {
	messages := b.messages
	clear(messages)
	*b = breaker{key: b.key, opened: opened, reason: why, since: now, slot: b.slot, messages: messages}
}

func (b *breaker) status() BreakerStatus {
	s := BreakerStatus{Key: b.key, State: BreakerClosed, Reason: b.reason, Since: b.since}
	switch {
	case b.probing:
		s.State = BreakerProbing
	case b.opened:
		s.State, s.NextProbe = BreakerOpen, b.probeAt
	}
	return s
}
