package engine_test

import (
	"fmt"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// history follows every message through all processes and notes what must not be. It
// receives the truth: what the store did, not what the process heard of it. It is used
// under the simulation's lock.
type history struct {
	messages map[redrive.Ref]*life
	keys     map[string][]redrive.Ref // of the ordered queue, in order of publication
	isolated map[redrive.Ref]string   // suspects in flight in a process
	wrong    []string
	open     int // accepted and not ended

	claims, settles, suspects int
}

// simLostDecisions is how often the decision about a poison message may be lost on its
// way to the store, which counts as another crash.
const simLostDecisions = 3

// life is what the history knows of one message.
type life struct {
	accepted  bool
	ended     bool // terminal in its generation
	dead      redrive.Reason
	behaviour string
	generation,
	leases, // of this generation, less the released ones
	failures int
	token     uint64
	notBefore time.Time
	expires   time.Time
	before    *life // of the same key
}

func newHistory() *history {
	return &history{messages: make(map[redrive.Ref]*life), keys: make(map[string][]redrive.Ref), isolated: make(map[redrive.Ref]string)}
}

func (h *history) wrongf(format string, args ...any) {
	if len(h.wrong) < 20 {
		h.wrong = append(h.wrong, fmt.Sprintf(format, args...))
	}
}

// requested is called before a message is published for the first time.
func (h *history) requested(m *redrive.Message, behaviour string, at time.Time) {
	l := &life{behaviour: behaviour, notBefore: at.Add(m.Delay), expires: m.ExpiresAt}
	h.messages[m.Ref()] = l
	if m.Queue == queueOrdered {
		if earlier := h.keys[m.Key]; len(earlier) > 0 {
			l.before = h.messages[earlier[len(earlier)-1]]
		}
		h.keys[m.Key] = append(h.keys[m.Key], m.Ref())
	}
}

// accepted is called when a message is durable.
func (h *history) accepted(r redrive.Ref) {
	if l := h.messages[r]; !l.accepted {
		l.accepted = true
		if !l.ended {
			h.open++
		}
	}
}

func (h *history) claimed(d *redrive.Delivery, req driver.ClaimRequest) {
	h.claims++
	l := h.messages[d.Ref()]
	if l == nil {
		h.wrongf("phantom: %s was claimed and never published", d.Ref())
		return
	}
	h.accepted(d.Ref())
	l.leases++
	if d.Suspect {
		h.suspects++
		if !req.Isolated && !req.Expired {
			h.wrongf("%s is a suspect and was not claimed in isolation", d.Ref())
		}
	}
	switch {
	case l.ended:
		h.wrongf("resurrection: %s was claimed after its generation %d had ended", d.Ref(), l.generation)
	case d.Generation != l.generation:
		h.wrongf("%s: claimed in generation %d, want %d", d.Ref(), d.Generation, l.generation)
	case d.Receipt.Token <= l.token:
		h.wrongf("%s: token %d after %d", d.Ref(), d.Receipt.Token, l.token)
	case d.Attempt != l.leases:
		h.wrongf("%s: attempt %d, want %d", d.Ref(), d.Attempt, l.leases)
	case d.Failures != l.failures:
		h.wrongf("%s: %d failures, want %d", d.Ref(), d.Failures, l.failures)
	case d.Crashes > simCrashes+1+simLostDecisions:
		h.wrongf("%s: %d crashes", d.Ref(), d.Crashes)
	case !req.Expired && d.LeasedAt.Before(l.notBefore.Add(-time.Millisecond)):
		h.wrongf("early: %s was claimed %s before its time", d.Ref(), l.notBefore.Sub(d.LeasedAt))
	case !req.Expired && l.before != nil && !l.before.ended && l.before.generation == 0:
		h.wrongf("order: %s was claimed before the message ahead of it in key %q had ended", d.Ref(), d.Key)
	}
	l.token = d.Receipt.Token
	if req.Isolated {
		h.isolated[d.Ref()] = req.Instance
	}
}

// lost receives the claims whose answer did not arrive: nobody works on them.
func (h *history) lost(ds []redrive.Delivery) {
	for i := range ds {
		delete(h.isolated, ds[i].Ref())
	}
}

// killed receives which message a process died of.
func (h *history) killed(instance string, killer redrive.Ref) {
	for ref, by := range h.isolated {
		if by == instance && ref != killer {
			h.wrongf("%s was isolated in a process that died of %s", ref, killer)
		}
	}
}

func (h *history) settled(s *driver.Settlement) {
	h.settles++
	ref := s.Receipt.Ref
	l := h.messages[ref]
	delete(h.isolated, ref)
	if l == nil {
		h.wrongf("phantom: %s was settled and never published", ref)
		return
	}
	if s.Receipt.Token != l.token {
		h.wrongf("fence: %s was settled with token %d after a claim with %d", ref, s.Receipt.Token, l.token)
	}
	now := time.Now()
	l.notBefore = now.Add(s.After)
	switch s.Outcome {
	case redrive.OutcomeRelease:
		l.leases--
	case redrive.OutcomeRetry:
		l.failures++
	case redrive.OutcomeRepeat:
		l.generation++
		l.leases, l.failures = 0, 0
	case redrive.OutcomeDead, redrive.OutcomeDone, redrive.OutcomeDrop:
		h.end(ref, l, s, now)
	}
	if s.Outcome != redrive.OutcomeRetry && s.Outcome != redrive.OutcomeRelease {
		for i := range s.Emit {
			h.emitted(&s.Emit[i], now)
		}
	} else if len(s.Emit) > 0 {
		h.wrongf("%s: %d emits of a failed attempt", ref, len(s.Emit))
	}
}

func (h *history) end(ref redrive.Ref, l *life, s *driver.Settlement, now time.Time) {
	if l.ended {
		h.wrongf("%s ended twice in generation %d", ref, l.generation)
		return
	}
	l.ended, l.dead = true, s.Reason
	h.open--
	switch s.Reason {
	case redrive.ReasonExhausted:
		if l.failures+1 != simAttempts {
			h.wrongf("%s: dead as exhausted after %d failures", ref, l.failures+1)
		}
	case redrive.ReasonCrashed:
		if l.behaviour != "poison" {
			h.wrongf("%s (%s): dead as crashed, and it never killed anything", ref, l.behaviour)
		}
	case redrive.ReasonExpired:
		if l.expires.IsZero() || now.Before(l.expires) {
			h.wrongf("%s: dead as expired before its time", ref)
		}
	}
}

// emitted receives a message that became durable with a settlement.
func (h *history) emitted(m *redrive.Message, at time.Time) {
	if h.messages[m.Ref()] != nil {
		h.wrongf("%s was emitted twice", m.Ref())
		return
	}
	h.requested(m, "ok", at)
	h.accepted(m.Ref())
}

// redriven receives a dead letter that waits again.
func (h *history) redriven(r redrive.Ref, at time.Time) {
	l := h.messages[r]
	if !l.ended || l.dead == 0 {
		h.wrongf("%s was redriven and was not dead", r)
	}
	l.ended, l.dead = false, 0
	l.generation++
	l.leases, l.failures = 0, 0
	l.notBefore = at
	h.open++
}
