package redrive

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strconv"
	"sync"
	"time"
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

// maxBreakerMessages bounds MinMessages, as so many messages are remembered a key.
const maxBreakerMessages = 256

func (o BreakerOptions) withDefaults() BreakerOptions {
	o.Window = positive(o.Window, 10*time.Second)
	o.ProbeMin = positive(o.ProbeMin, time.Second)
	o.ProbeMax = max(positive(o.ProbeMax, 30*time.Second), o.ProbeMin)
	for _, n := range []struct {
		v         *int
		otherwise int
	}{{&o.MinAttempts, 20}, {&o.MinMessages, 10}, {&o.LastFailed, 10}} {
		if *n.v <= 0 {
			*n.v = n.otherwise
		}
	}
	o.MinMessages = min(o.MinMessages, maxBreakerMessages)
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

// Bounds of a breakerGate.
const (
	breakerKeys   = 256         // kinds it watches at once
	probeIDs      = 8           // messages probed recently that another probe avoids
	probeDeadline = time.Minute // a probe not reported by then is given up
)

// breakerGate keeps one breaker a target or kind of a queue. A breaker opens when
// within the window at least MinAttempts attempts of at least MinMessages messages
// ended, the share of them failed, and none of the last LastFailed succeeded. While
// it is open, one message at a time is claimed as a probe. One probe that succeeds
// closes it: the slots, which are filled as they come free, and the retry budget,
// which grows with successes, make for a gentle start.
//
// It locks for itself, because its status is read from outside.
type breakerGate struct {
	o        BreakerOptions
	target   string
	onChange func(BreakerStatus) // may be nil

	mu   sync.Mutex
	keys map[string]*breaker
	open []*breaker
	// A probe by kind that found nothing in a lane holds back the next one there, so
	// that probes do not keep the other kinds waiting.
	probeLane Lane // of the last probe granted
	holdUntil [Lanes]time.Time
}

func newBreakerGate(o BreakerOptions, target string) *breakerGate {
	return &breakerGate{o: o.withDefaults(), target: target, keys: make(map[string]*breaker)}
}

// Reserve implements Gate.
func (g *breakerGate) Reserve(now time.Time, a Ask) Grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.open) == 0 || a.Max <= 0 {
		return Grant{N: max(a.Max, 0)}
	}
	due, next := g.probesDue(now, a.Lane)
	switch {
	case len(due) > 0:
		return g.grantProbe(now, a.Lane, due)
	case g.target != "":
		return Grant{Until: next, Reason: "breaker open: " + g.open[0].reason}
	}
	grant := Grant{N: a.Max, Until: next, ExceptKinds: make([]string, len(g.open))}
	for i, b := range g.open {
		grant.ExceptKinds[i] = b.key
	}
	return grant
}

// probesDue returns the open breakers that may be probed from a lane now, and when
// the next of the others may.
func (g *breakerGate) probesDue(now time.Time, l Lane) (due []*breaker, next time.Time) {
	for _, b := range g.open {
		at := b.probeAt
		if b.probing && !now.Before(b.probeEnds) {
			b.probing = false // it was lost on the way
		}
		if b.probing {
			at = b.probeEnds
		} else if g.target == "" && at.Before(g.holdUntil[l]) {
			at = g.holdUntil[l]
		}
		switch {
		case !now.Before(at):
			due = append(due, b)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return due, next
}

// grantProbe lets one message be claimed as a probe of one of the breakers.
func (g *breakerGate) grantProbe(now time.Time, l Lane, due []*breaker) Grant {
	g.probeLane = l
	grant := Grant{N: 1, Until: now.Add(g.o.ProbeMin), Reason: "breaker open: " + due[0].reason}
	for _, b := range due {
		b.probing, b.probe, b.probeEnds = true, "", now.Add(max(probeDeadline, g.o.ProbeMax))
		if g.target == "" {
			grant.Kinds = append(grant.Kinds, b.key)
			grant.Until = now // the other kinds need not wait for the probe
		}
		for _, id := range b.recent {
			if id != "" {
				grant.ExceptIDs = append(grant.ExceptIDs, id)
			}
		}
	}
	return grant
}

// probed returns the breakers whose probe a grant was, and who does not know yet
// which message it is.
func (g *breakerGate) probed(grant *Grant) (all []*breaker) {
	for _, b := range g.open {
		if b.probing && b.probe == "" && (g.target != "" || slices.Contains(grant.Kinds, b.key)) {
			all = append(all, b)
		}
	}
	return all
}

// Return implements Gate. A probe that found nothing does not use up its interval.
func (g *breakerGate) Return(now time.Time, grant Grant, unused int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if unused <= 0 || len(g.open) == 0 {
		return
	}
	for _, b := range g.probed(&grant) {
		b.probing = false
		clear(b.recent) // if nothing else waits, one of them again
		g.holdUntil[g.probeLane] = now.Add(g.o.ProbeMin / 4)
	}
}

// claimed tells what a grant was used for, so that the gate knows its probe.
func (g *breakerGate) claimed(grant Grant, ds []Delivery) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(ds) == 0 || len(g.open) == 0 {
		return
	}
	for _, b := range g.probed(&grant) {
		if b.key == g.key(&ds[0]) {
			b.setProbe(ds[0].ID)
		} else {
			b.probing = false // a message of another kind was taken
		}
	}
}

// Report implements Gate.
func (g *breakerGate) Report(now time.Time, d *Delivery, s *Settlement) {
	if g.o.Off {
		return
	}
	how, signature := judge(s)
	if changed := g.report(now, d, how, signature); changed.State != "" && g.onChange != nil {
		g.onChange(changed)
	}
}

// report returns the new status if the breaker opened or closed.
func (g *breakerGate) report(now time.Time, d *Delivery, how endedHow, signature string) (changed BreakerStatus) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.breaker(g.key(d))
	switch {
	case b == nil:
	case b.opened:
		if why := b.reportOpen(&g.o, now, d.ID, how, signature); why != "" {
			g.open = slices.DeleteFunc(g.open, func(o *breaker) bool { return o == b })
			b.change(false, now, why)
			return b.status()
		}
	case how != endedUnknown:
		if why := b.record(&g.o, now, d.ID, how, signature); why != "" {
			g.open = append(g.open, b)
			b.change(true, now, why)
			b.interval, b.probeAt = g.o.ProbeMin, now.Add(g.o.ProbeMin)
			return b.status()
		}
	}
	return BreakerStatus{}
}

// uncounted reports whether a transient failure of the delivery is recorded without
// being counted: it was in flight when its breaker opened.
func (g *breakerGate) uncounted(d *Delivery) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.open) == 0 {
		return false
	}
	b := g.keys[g.key(d)]
	return b != nil && b.opened && !b.isProbe(d.ID)
}

// states returns the breakers that are open or have been, by key.
func (g *breakerGate) states() []BreakerStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []BreakerStatus
	for _, b := range g.keys {
		if b.reason != "" {
			all = append(all, b.status())
		}
	}
	slices.SortFunc(all, func(x, y BreakerStatus) int { return cmp.Compare(x.Key, y.Key) })
	return all
}

func (g *breakerGate) key(d *Delivery) string {
	if g.target != "" {
		return g.target
	}
	return d.Kind
}

// breaker returns the breaker of a key, made on demand. When there are too many it
// replaces the closed one that was quiet for longest; nil if all are open.
func (g *breakerGate) breaker(key string) *breaker {
	b := g.keys[key]
	if b != nil {
		return b
	}
	if len(g.keys) < breakerKeys {
		b = &breaker{messages: make([]seenMessage, g.o.MinMessages)}
	} else {
		for _, old := range g.keys {
			if !old.opened && (b == nil || old.slot < b.slot) {
				b = old
			}
		}
		if b == nil {
			return nil
		}
		delete(g.keys, b.key)
		messages := b.messages
		clear(messages)
		*b = breaker{messages: messages}
	}
	b.key = key
	g.keys[key] = b
	return b
}

// How an attempt ended, as a breaker sees it.
type endedHow uint8

const (
	endedUnknown   endedHow = iota // it says nothing about the target
	endedSuccess                   // it succeeded
	endedTransient                 // it failed
	endedPermanent                 // it failed for good: the message's fault, or the target's
)

// judge reads a settlement. Of permanent failures it returns the signature.
func judge(s *Settlement) (endedHow, string) {
	if s == nil {
		return endedUnknown, ""
	}
	switch s.Outcome {
	case OutcomeDone, OutcomeRepeat:
		return endedSuccess, ""
	case OutcomeRetry:
		return endedTransient, ""
	}
	if s.Failure == nil {
		return endedUnknown, ""
	}
	switch s.Reason {
	case ReasonExpired, ReasonCrashed, ReasonLoop, ReasonManual: // there was no attempt
		return endedUnknown, ""
	case 0, ReasonExhausted, ReasonUncertain:
		return endedTransient, ""
	}
	return endedPermanent, s.Failure.Signature
}

// The window of a breaker is made of slots of time; permanent failures are counted
// for a few signatures, as only those that share one count.
const (
	breakerSlots      = 20
	breakerSignatures = 4
)

type breakerSlot struct {
	ended, failed uint32 // successes and transient failures; the latter alone
	permanent     [breakerSignatures]uint32
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
	slot       int64 // number of the current slot since 1970
	slots      [breakerSlots]breakerSlot
	total      breakerSlot // sum of slots
	signatures [breakerSignatures]string
	inRow      int           // failures since the last success
	messages   []seenMessage // as many as must differ, those seen last

	// While it is open.
	interval  time.Duration
	probeAt   time.Time // no probe before
	probing   bool
	probe     string    // id of the message that is the probe; empty: not claimed yet
	probeEnds time.Time // when it is given up
	recent    []string  // made by the first probe
	next      int       // in recent
	permanent string    // signature of the last probe, if it failed for good
}

// record counts an attempt and returns why the breaker opens, if it does.
func (b *breaker) record(o *BreakerOptions, now time.Time, id string, how endedHow, signature string) string {
	b.advance(o, now)
	slot := &b.slots[b.slot%breakerSlots]
	b.see(id)
	if how == endedSuccess {
		slot.ended++
		b.total.ended++
		b.inRow = 0
		return ""
	}
	b.inRow++
	if how == endedPermanent {
		i := b.signature(signature)
		slot.permanent[i]++
		b.total.permanent[i]++
	} else {
		slot.ended++
		slot.failed++
		b.total.ended++
		b.total.failed++
	}
	shared := slices.Max(b.total.permanent[:])
	ended, failed := int(b.total.ended+shared), int(b.total.failed+shared)
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
		for s, n := range old.permanent {
			b.total.permanent[s] -= n
		}
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

// signature returns the place of a signature. A new one takes that of the rarest: one
// that many failures share is soon the most frequent, whatever comes between.
func (b *breaker) signature(s string) int {
	least := 0
	for i, have := range b.signatures {
		if have == s && b.total.permanent[i] > 0 {
			return i
		}
		if b.total.permanent[i] < b.total.permanent[least] {
			least = i
		}
	}
	for i := range b.slots {
		b.slots[i].permanent[least] = 0
	}
	b.total.permanent[least] = 0
	b.signatures[least] = s
	return least
}

// reportOpen takes the end of an attempt while the breaker is open, and returns why
// it closes, if it does.
func (b *breaker) reportOpen(o *BreakerOptions, now time.Time, id string, how endedHow, signature string) string {
	if !b.isProbe(id) {
		if how == endedSuccess && b.probeAt.After(now) { // in flight when it opened: a good sign
			b.probeAt = now
		}
		return ""
	}
	current := b.probing && (b.probe == "" || b.probe == id)
	switch {
	case how == endedSuccess:
		return "a probe succeeded"
	case !current: // a probe that was given up, and fails late
		return ""
	case how == endedTransient:
		b.interval, b.permanent = min(2*b.interval, o.ProbeMax), ""
	case how == endedPermanent && b.permanent != "" && b.permanent != signature:
		return "probes failed for good with different signatures: the target tells messages apart"
	case how == endedPermanent:
		b.interval, b.permanent = o.ProbeMin, signature
	}
	b.probing, b.probeAt = false, now.Add(b.interval)
	return ""
}

func (b *breaker) setProbe(id string) {
	b.probe = id
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
