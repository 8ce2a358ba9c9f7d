// Package history checks what a run of the program showed from outside: every call of
// publishers, workers and operators, every delivery, and what was there at the end. It
// knows the promises of docs/guarantees.md and nothing of the engine.
package history

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Op is what somebody did.
type Op string

// The operations of a history.
const (
	OpPublish Op = "publish"
	OpDeliver Op = "deliver" // a request of the daemon to a receiver
	OpClaim   Op = "claim"   // of a worker: one event for each message that it got
	OpExtend  Op = "extend"
	OpSettle  Op = "settle"
	OpResult  Op = "result" // what a session received about the end of its message
	OpLook    Op = "look"   // somebody read it among the dead letters
	OpEdit    Op = "edit"
	OpDrop    Op = "drop"
	OpPlan    Op = "plan"  // the call that made a plan
	OpSteer   Op = "steer" // a plan was paused, resumed or cancelled; Outcome is its state since
	OpExit    Op = "exit"  // a daemon ended by itself; Begin is its start
	OpFault   Op = "fault"
)

// Answer is what the caller knows when its call is over.
type Answer string

// The answers to a call.
const (
	OK      Answer = "ok"
	Refused Answer = "refused" // nothing was changed, for certain
	Unknown Answer = "unknown" // the answer did not come, or said so
)

// What became of a message, by a settlement or a receiver's answer.
const (
	Done    = "done"
	Retry   = "retry"
	Release = "release"
	Dead    = "dead"
	Dropped = "dropped"
)

// Event is one call or one delivery. A message is known by its label, which stands in its
// body: its id may be made by the store, and the answer that tells it be lost.
type Event struct {
	N          int // the place in the history
	Begin, End time.Duration
	Op         Op
	By         string // who called
	Queue      string
	Label      string
	ID         string
	Answer     Answer
	Key        string // in a queue with order by key
	Seq        int    // the place of the message within its key, from 1
	Receipt    string
	Lease      time.Duration
	Generation int
	Redrives   int
	Outcome    string // of a settlement, a delivery or a result
	Rev        int    // of the body: 0 as published, n after the nth edit
	Garbled    bool   // the body is not what was published or edited
	Plan       string
	Action     string // of a plan; its Queue is that of its filter, if it has one
	Fault      Kind
	On         int // which daemon, link or server the fault hit; the store's server is 0
	Note       string
}

// String returns the event as a line.
func (e *Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "#%d %8.3fs-%.3fs %s %s", e.N, e.Begin.Seconds(), e.End.Seconds(), e.By, e.Op)
	for _, p := range []struct{ name, value string }{
		{"queue", e.Queue}, {"label", e.Label}, {"id", e.ID}, {"answer", string(e.Answer)}, {"outcome", e.Outcome}, {"key", e.Key},
		{"receipt", short(e.Receipt)}, {"plan", e.Plan}, {"action", e.Action}, {"fault", string(e.Fault)}, {"note", e.Note},
	} {
		if p.value != "" {
			fmt.Fprintf(&b, " %s=%s", p.name, p.value)
		}
	}
	for _, p := range []struct {
		name  string
		value int
	}{{"seq", e.Seq}, {"generation", e.Generation}, {"redrives", e.Redrives}, {"rev", e.Rev}} {
		if p.value != 0 {
			fmt.Fprintf(&b, " %s=%d", p.name, p.value)
		}
	}
	return b.String()
}

// short returns the end of a receipt: the beginnings are alike.
func short(receipt string) string {
	const shown = 12
	return receipt[max(0, len(receipt)-shown):]
}

// Left is a message that is there at the end.
type Left struct {
	Queue, Label, ID string
	State            string // dead, or what it waits for
	Rev              int
	Generation       int
	Redrives         int
	Garbled          bool
}

// Ledger is what the store counts of a queue.
type Ledger struct {
	Published, Done, Dropped int
	Dead, Waiting            int
}

// PlanEnd is a plan with its results, at the end.
type PlanEnd struct {
	ID, Action, State, Problem string
	Done, Failed               int
	Results                    []PlanResult
}

// PlanResult is what a plan says about one message.
type PlanResult struct{ Queue, ID, Outcome string }

// Final is what is there when faults and work have ended.
type Final struct {
	Left       []Left
	Copied     []Left // what another store has after a copy; nil: there was none
	Ledger     map[string]Ledger
	Unbalanced []string // what verify found
	Plans      []PlanEnd
	Problems   []string // what went wrong without belonging to a message
}

// History is a whole run.
type History struct {
	// Embedded says that leases end with the daemon.
	Embedded bool
	// Undoes says that a crash of the store's server may undo a claim.
	Undoes bool
	// Foreign are queues on a source: the ledger counts of them what came into the store, and
	// a publish without an id that is sent again may make a second message.
	Foreign []string
	Events  []Event
	Final   Final
}

// Violation is a promise that a history shows broken.
type Violation struct {
	Promise   string
	Queue, ID string
	Text      string
	Events    []Event // that show it
}

// String tells the whole.
func (v *Violation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s/%s: %s", v.Promise, v.Queue, v.ID, v.Text)
	for i := range v.Events {
		b.WriteString("\n    " + v.Events[i].String())
	}
	return b.String()
}

// message is what a history tells of one message.
type message struct {
	queue, label, id string
	events           []*Event // in the order of their beginnings
	left             []Left
}

// view is a history by message.
type view struct {
	*History
	messages map[string]*message // by queue/label
	labels   map[string]string   // by queue/id
	faults   []*Event
	plans    map[string]*Event // the call that made it
}

func look(h *History) *view {
	v := &view{History: h, messages: map[string]*message{}, labels: map[string]string{}, plans: map[string]*Event{}}
	for i := range h.Events {
		e := &h.Events[i]
		switch {
		case e.Op == OpFault:
			v.faults = append(v.faults, e)
			continue
		case e.Op == OpPlan:
			v.plans[e.Plan] = e
			continue
		case e.Op == OpSteer || e.Op == OpExit:
			continue
		}
		m := v.message(e.Queue, e.Label)
		m.events = append(m.events, e)
		if e.ID != "" {
			m.id = e.ID
			v.labels[e.Queue+"/"+e.ID] = e.Label
		}
	}
	for _, l := range h.Final.Left {
		m := v.message(l.Queue, l.Label)
		m.left = append(m.left, l)
		m.id = l.ID
		v.labels[l.Queue+"/"+l.ID] = l.Label
	}
	for _, m := range v.messages {
		slices.SortStableFunc(m.events, func(a, b *Event) int { return int(a.Begin - b.Begin) })
	}
	return v
}

func (v *view) message(queue, label string) *message {
	name := queue + "/" + label
	m := v.messages[name]
	if m == nil {
		m = &message{queue: queue, label: label}
		v.messages[name] = m
	}
	return m
}

// sorted returns the messages by name, so that a history is always judged alike.
func (v *view) sorted() []*message {
	names := make([]string, 0, len(v.messages))
	for name := range v.messages {
		names = append(names, name)
	}
	slices.Sort(names)
	list := make([]*message, len(names))
	for i, name := range names {
		list[i] = v.messages[name]
	}
	return list
}

// happened reports a fault of one of these kinds that touches a time. A source's server
// has no part in what the store promises.
func (v *view) happened(from, to time.Duration, kinds ...Kind) bool {
	return slices.ContainsFunc(v.faults, func(f *Event) bool {
		return f.touches(from, to, kinds) && (f.Fault != KillServer || f.On == 0)
	})
}

func (e *Event) touches(from, to time.Duration, kinds []Kind) bool {
	return e.Begin < to && e.End > from && slices.Contains(kinds, e.Fault)
}

func (v *view) foreign(m *message) bool { return slices.Contains(v.Foreign, m.queue) }

// ever is after the end of every history.
const ever = time.Duration(1<<63 - 1)

// some returns the events that a condition holds for.
func (m *message) some(is func(e *Event) bool) (list []*Event) {
	for _, e := range m.events {
		if is(e) {
			list = append(list, e)
		}
	}
	return list
}

func (m *message) any(is func(e *Event) bool) bool { return slices.ContainsFunc(m.events, is) }

// broken returns a violation with the events that show it, or all of the message's.
func (m *message) broken(promise, text string, shown ...*Event) Violation {
	if len(shown) == 0 {
		shown = m.events
	}
	id := m.id
	if id == "" {
		id = m.label
	}
	v := Violation{Promise: promise, Queue: m.queue, ID: id, Text: text}
	for _, e := range shown {
		v.Events = append(v.Events, *e)
	}
	return v
}
