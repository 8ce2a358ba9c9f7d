package alerts

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive/internal/wire"
)

// When alerts begin, are sent and end.
const (
	gatherFor = 15 * time.Second // a storm is waited for before its first message
	againIn   = 5 * time.Minute  // until the next message about alerts of one kind
	overAfter = 2 * time.Minute  // without the condition
	forgetIn  = 24 * time.Hour   // after its end: until then a cause is not new again
	repeatIn  = time.Minute      // to receivers that forget what is not repeated
)

// Bounds of what is remembered.
const (
	mostCauses = 1000 // of which each has an alert
	mostOver   = 5000 // alerts that are over: beyond, the oldest are forgotten early, and may begin again
)

// alert is an alert with what was sent of it. It is a record's value.
type alert struct {
	wire.Alert
	Path string            `json:"path,omitempty"`
	Once []string          `json:"once,omitempty"` // what it began for and does not begin again for
	Sent map[string]notice `json:"sent,omitempty"` // the newest, by receiver

	seen      time.Time // when its condition last held
	dirty     bool      // it differs from its record, in more than numbers
	saved     time.Time
	savedText string
}

// notice is a message about an alert.
type notice struct {
	State string    `json:"state"` // firing or over
	At    time.Time `json:"at"`
}

// board is what fires: a pure state, by subject.
type board map[string]*alert

// look takes what the rules say now. What is not in known was not looked at, and goes on.
func (b board) look(conditions []condition, now time.Time, known func(subject string) bool) {
	for i := range conditions {
		c := &conditions[i]
		a := b[c.subject]
		if a != nil && a.State == wire.AlertFiring {
			a.keep(c, now)
			continue
		}
		if c.begins && !a.was(c) {
			b[c.subject] = a.begin(c, now)
		}
	}
	for subject, a := range b {
		switch {
		case a.State == wire.AlertFiring && known(subject) && now.Sub(a.seen) >= overAfter:
			ended := now.UTC()
			a.State, a.EndedAt, a.Within, a.dirty = wire.AlertOver, &ended, "", true
		case a.State == wire.AlertOver && now.Sub(*a.EndedAt) >= forgetIn:
			delete(b, subject) // its record expires
		}
	}
	b.forget()
	b.nest()
}

// forget keeps what is over within its bound.
func (b board) forget() {
	var over []*alert
	for _, a := range b {
		if a.State == wire.AlertOver {
			over = append(over, a)
		}
	}
	if len(over) <= mostOver {
		return
	}
	slices.SortFunc(over, func(x, y *alert) int { return x.EndedAt.Compare(*y.EndedAt) })
	for _, a := range over[:len(over)-mostOver] {
		delete(b, a.Subject)
	}
}

// firingCauses counts the alerts of causes that fire.
func (b board) firingCauses() (n int) {
	for subject, a := range b {
		if a.State == wire.AlertFiring && family(subject) == ofCause {
			n++
		}
	}
	return n
}

// only forgets what was sent to receivers that are not there any more.
func (b board) only(receivers []*receiver) {
	for _, a := range b {
		maps.DeleteFunc(a.Sent, func(name string, _ notice) bool {
			return !slices.ContainsFunc(receivers, func(r *receiver) bool { return r.name == name })
		})
	}
}

// was reports whether the alert, which may be nil, began for a condition that begins only once.
func (a *alert) was(c *condition) bool {
	return a != nil && c.once != "" && slices.Contains(a.Once, c.onceKey())
}

func (c *condition) onceKey() string { return c.rule + " " + c.once }

// begin returns an alert that begins, in place of one that is over, or nil.
func (a *alert) begin(c *condition, now time.Time) *alert {
	next := &alert{Alert: wire.Alert{Subject: c.subject, Queue: c.queue, State: wire.AlertFiring, Since: now.UTC()}}
	if a != nil {
		next.Once, next.Sent, next.SentAt = a.Once, a.Sent, a.SentAt
	}
	next.keep(c, now)
	return next
}

// keep notes that a condition holds. Text and numbers are those of the rule that the alert began
// with, as long as that holds.
func (a *alert) keep(c *condition, now time.Time) {
	first := a.seen != now // of this look
	a.seen = now
	if c.begins && !slices.Contains(a.Rules, c.rule) && !a.was(c) {
		a.Rules, a.dirty = append(a.Rules, c.rule), true
		if c.once != "" { // in place of what it began for before: nobody decides the same twice
			a.Once = append(slices.DeleteFunc(slices.Clone(a.Once), func(key string) bool { return strings.HasPrefix(key, c.rule+" ") }), c.onceKey())
		}
	}
	if first || c.rule == a.Rules[0] {
		a.Summary, a.Numbers, a.Next, a.Path = c.summary, c.numbers, c.next, c.path
	}
}

// nest says which alerts are consequences of others: causes of a queue that does not flow. Those of one
// at which every delivery is refused say what it is refused for.
func (b board) nest() {
	for _, a := range b {
		within := ""
		if outer := b[ofQueue+"/"+a.Queue]; family(a.Subject) == ofCause && outer != nil && outer.State == wire.AlertFiring &&
			slices.Contains(outer.Rules, wire.AlertQueueStuck) {
			within = outer.Subject
		}
		if a.State == wire.AlertFiring && a.Within != within {
			a.Within, a.dirty = within, true
		}
	}
}

// news is what a receiver should be sent.
type news struct{ firing, over []*alert }

func (n *news) none() bool { return len(n.firing)+len(n.over) == 0 }

// due returns what a receiver was not sent yet. A receiver that repeats wants everything that fires
// again and again.
func (b board) due(receiver string, repeats bool, now time.Time) (n news) {
	last := make(map[string]time.Time) // message, by kind of alert
	for subject, a := range b {
		if at := a.Sent[receiver].At; at.After(last[family(subject)]) {
			last[family(subject)] = at
		}
	}
	for _, subject := range slices.Sorted(maps.Keys(b)) {
		a := b[subject]
		t := a.Sent[receiver]
		if subject == ofReceiver+"/"+receiver { // it would not get it
			continue
		}
		rests := !repeats && now.Sub(last[family(subject)]) < againIn
		switch {
		case a.State == wire.AlertFiring && repeats && t.State == wire.AlertFiring && now.Sub(t.At) >= repeatIn,
			a.State == wire.AlertFiring && t.State != wire.AlertFiring && a.Within == "" && !rests && now.Sub(a.Since) >= gatherFor:
			n.firing = append(n.firing, a)
		case a.State == wire.AlertOver && t.State == wire.AlertFiring && !rests:
			n.over = append(n.over, a)
		}
	}
	return n
}

// tell notes that a receiver took a message.
func (n *news) tell(receiver string, now time.Time) {
	for _, a := range slices.Concat(n.firing, n.over) {
		if a.Sent == nil {
			a.Sent = make(map[string]notice)
		}
		at := now.UTC()
		a.dirty = a.dirty || a.Sent[receiver].State != a.State || a.Sent[receiver].At.IsZero() || now.Sub(a.Sent[receiver].At) >= againIn
		a.Sent[receiver], a.SentAt = notice{a.State, at}, &at
	}
}

// shown returns what fires, the oldest first, with links.
func (b board) shown(publicURL string) []wire.Alert {
	all := []wire.Alert{}
	for _, a := range b {
		if a.State == wire.AlertFiring {
			all = append(all, a.linked(publicURL))
		}
	}
	sortAlerts(all)
	return all
}

func (a *alert) linked(publicURL string) wire.Alert {
	out := a.Alert
	if publicURL != "" && a.Path != "" {
		out.Link = strings.TrimRight(publicURL, "/") + a.Path
	}
	return out
}

func sortAlerts(all []wire.Alert) {
	slices.SortFunc(all, func(x, y wire.Alert) int {
		if c := x.Since.Compare(y.Since); c != 0 {
			return c
		}
		return strings.Compare(x.Subject, y.Subject)
	})
}
