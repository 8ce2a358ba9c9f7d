package history

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

const sec = time.Second

// at returns an event that takes a tenth of a second.
func at(begin time.Duration, op Op, e Event) Event {
	e.Begin, e.Op = begin, op
	if e.End == 0 {
		e.End = begin + sec/10
	}
	if e.By == "" {
		e.By = "somebody"
	}
	if e.Queue == "" && op != OpExit {
		e.Queue = "q"
	}
	if e.Label == "" && op != OpFault && op != OpPlan && op != OpExit {
		e.Label = "m"
	}
	return e
}

func published(e Event) Event {
	e.Answer, e.ID = OK, "id-"+e.Label
	return at(0, OpPublish, e)
}

func claimed(begin time.Duration, receipt string) Event {
	return at(begin, OpClaim, Event{ID: "id-m", Receipt: receipt, Lease: sec})
}

func settled(begin time.Duration, receipt, outcome string) Event {
	return at(begin, OpSettle, Event{Receipt: receipt, Outcome: outcome, Answer: OK})
}

// m is the message of most histories.
var m = published(Event{Label: "m"})

// left is an end at which the message is there.
func left(l Left) Final {
	l.Queue, l.Label, l.ID = "q", "m", "id-m"
	return Final{Left: []Left{l}}
}

// redrove is an end at which so many plans had redriven the message.
func redrove(plans int) (f Final) {
	for i := range plans {
		f.Plans = append(f.Plans, PlanEnd{ID: "p" + strings.Repeat("'", i), Action: "redrive", State: "done", Done: 1, Results: []PlanResult{{"q", "id-m", "delivered"}}})
	}
	return f
}

// looked shows the message dead after so many redrives.
func looked(begin time.Duration, redrives int) Event {
	return at(begin, OpLook, Event{ID: "id-m", Outcome: Dead, Answer: OK, Redrives: redrives})
}

// bad are histories that break one promise each.
var bad = []struct {
	name    string
	promise string
	h       History
	names   string // what the message of the violation must name
}{
	{"an acknowledged message is gone", "nothing acknowledged is lost", History{Events: []Event{m}}, "q/id-m"},
	{"one that failed for good is gone", "nothing acknowledged is lost", History{Events: []Event{m, at(sec, OpDeliver, Event{Outcome: Dead})}}, "#1"},
	{"a copy lacks one", "a copy has all that is left", History{Events: []Event{m}, Final: Final{Left: []Left{{Queue: "q", Label: "m", ID: "id-m", State: Dead}}, Copied: []Left{}}}, "q/id-m"},
	{"a copy has more redrives", "a copy has all that is left", History{Events: []Event{m}, Final: Final{
		Left: []Left{{Queue: "q", Label: "m", ID: "id-m", State: "waiting"}}, Copied: []Left{{Queue: "q", Label: "m", ID: "id-m", State: "waiting", Redrives: 1}},
	}}, "q/id-m"},
	{"a refused one is delivered", "what was refused is not stored", History{Events: []Event{
		at(0, OpPublish, Event{Answer: Refused}), at(sec, OpDeliver, Event{ID: "id-m", Outcome: Done}),
	}}, "q/id-m"},
	{"another body", "a body stays as it is", History{Events: []Event{m, at(sec, OpDeliver, Event{Outcome: Done, Garbled: true})}}, "#1"},
	{"a dead letter twice", "a message is in one place", History{Events: []Event{m}, Final: Final{Left: []Left{
		{Queue: "q", Label: "m", ID: "id-m", State: Dead}, {Queue: "q", Label: "m", ID: "id-m", State: Dead},
	}}}, "q/id-m"},
	{"three of two publishes", "a message is in one place", History{Events: []Event{at(0, OpPublish, Event{Answer: Unknown}), m}, Final: Final{Left: []Left{
		{Queue: "q", Label: "m", ID: "id-1", State: Dead}, {Queue: "q", Label: "m", ID: "id-2", State: Dead}, {Queue: "q", Label: "m", ID: "id-3", State: Dead},
	}}}, "q/id-3"},
	{"done and there", "what was settled is gone", History{Events: []Event{m, claimed(sec, "r1"), settled(2*sec, "r1", Done)}, Final: Final{Left: []Left{
		{Queue: "q", Label: "m", ID: "id-m", State: Dead},
	}}}, "#2"},
	{"settled by two", "nothing is settled twice", History{Events: []Event{
		m, claimed(sec, "r1"), claimed(3*sec, "r2"), settled(4*sec, "r2", Done), settled(5*sec, "r1", Dead),
	}}, "#4"},
	{"claimed when done", "what was settled does not come back", History{Events: []Event{m, claimed(sec, "r1"), settled(2*sec, "r1", Done), claimed(9*sec, "r2")}}, "#3"},
	{"dead and claimed again", "what was settled does not come back", History{Events: []Event{
		m, claimed(sec, "r1"), settled(2*sec, "r1", Dead), claimed(9*sec, "r2"), settled(10*sec, "r2", Done),
	}}, "#3"},
	{"a stale settlement", "a stale holder changes nothing", History{Events: []Event{m, claimed(sec, "r1"), claimed(3*sec, "r2"), settled(4*sec, "r1", Done)}}, "#3"},
	{"a stale extension", "a stale holder changes nothing", History{Events: []Event{
		m, claimed(sec, "r1"), claimed(3*sec, "r2"), at(4*sec, OpExtend, Event{Receipt: "r1", Lease: sec, Answer: OK}), settled(5*sec, "r2", Done),
	}}, "#3"},
	{"two holders", "a message has one holder", History{Events: []Event{m, claimed(sec, "r1"), claimed(sec+sec/2, "r2"), settled(2*sec, "r2", Done)}}, "#2"},
	{"two holders, the first extended", "a message has one holder", History{Events: []Event{
		m, claimed(sec, "r1"), at(sec+sec/2, OpExtend, Event{Receipt: "r1", Lease: sec, Answer: OK}), claimed(sec*21/10, "r2"), settled(3*sec, "r2", Done),
	}}, "#3"},
	{"dropped and claimed", "what was dropped is gone", History{Events: []Event{m, at(sec, OpDrop, Event{Answer: OK}), claimed(2*sec, "r1")}}, "#2"},
	{"dropped and there", "what was dropped is gone", History{Events: []Event{m, at(sec, OpDrop, Event{Answer: OK})},
		Final: Final{Left: []Left{{Queue: "q", Label: "m", ID: "id-m", State: Dead}}}}, "#1"},
	{"an edit is lost", "an edit is kept", History{Events: []Event{m, at(sec, OpEdit, Event{Rev: 1, Answer: OK}), claimed(2*sec, "r1"), settled(3*sec, "r1", Done)}}, "#1"},
	{"a refused edit shows", "a refused edit changes nothing", History{Events: []Event{m, at(sec, OpEdit, Event{Rev: 1, Answer: Refused})},
		Final: Final{Left: []Left{{Queue: "q", Label: "m", ID: "id-m", State: Dead, Rev: 1}}}}, "#1"},
	{"a success that nobody saw", "a result is true", History{Events: []Event{m, at(sec, OpResult, Event{Outcome: Done}), at(2*sec, OpDeliver, Event{Outcome: Done})}}, "#1"},
	{"the second of a key first", "order by key", History{Events: []Event{
		published(Event{Label: "m", Key: "k", Seq: 1}), published(Event{Label: "n", Key: "k", Seq: 2}),
		at(sec, OpDeliver, Event{Label: "n", Outcome: Done}), at(2*sec, OpDeliver, Event{Outcome: Done}),
	}}, "q/id-n"},
	{"the second while the first waits for its retry", "order by key", History{Events: []Event{
		published(Event{Label: "m", Key: "k", Seq: 1}), published(Event{Label: "n", Key: "k", Seq: 2}),
		at(sec, OpDeliver, Event{Outcome: Retry}), at(2*sec, OpDeliver, Event{Label: "n", Outcome: Done}), at(3*sec, OpDeliver, Event{Outcome: Done}),
	}}, "#2"},
	{"a plan redrives twice", "a plan redrives a message once", History{Events: []Event{
		m, at(sec, OpDeliver, Event{Outcome: Dead}), at(2*sec, OpPlan, Event{Plan: "p", Answer: OK}),
		at(3*sec, OpClaim, Event{Redrives: 2, Receipt: "r1"}), settled(4*sec, "r1", Done),
	}, Final: Final{Plans: []PlanEnd{{ID: "p", Action: "redrive", State: "done", Done: 1, Results: []PlanResult{{"q", "id-m", "delivered"}}}}}}, "#3"},
	{"a plan names a message twice", "a plan redrives a message once", History{Events: []Event{m, at(sec, OpDeliver, Event{Outcome: Dead}), at(2*sec, OpDeliver, Event{Outcome: Done})},
		Final: Final{Plans: []PlanEnd{{ID: "p", Action: "redrive", State: "done", Done: 2, Results: []PlanResult{{"q", "id-m", "delivered"}, {"q", "id-m", "delivered"}}}}}}, "q/id-m"},
	{"a plan without its cutoff", "a plan takes what had died before it", History{Events: []Event{
		m, at(sec, OpPlan, Event{Plan: "p", Answer: OK}), at(2*sec, OpDeliver, Event{Outcome: Dead}), at(3*sec, OpDeliver, Event{Outcome: Done}),
	}, Final: Final{Plans: []PlanEnd{{ID: "p", Action: "redrive", State: "done", Done: 1, Results: []PlanResult{{"q", "id-m", "delivered"}}}}}}, "#1"},
	{"a plan that miscounts", "a plan counts what it did", History{Events: []Event{m, at(sec, OpDeliver, Event{Outcome: Dead}), at(2*sec, OpDeliver, Event{Outcome: Done})},
		Final: Final{Plans: []PlanEnd{{ID: "p", Action: "redrive", State: "done", Done: 2, Results: []PlanResult{{"q", "id-m", "delivered"}}}}}}, "p"},
	{"done is counted twice", "the ledger equals the history", History{Events: []Event{m, at(sec, OpDeliver, Event{Outcome: Done})},
		Final: Final{Ledger: map[string]Ledger{"q": {Published: 1, Done: 2}}}}, "2 done"},
	{"a drop is not counted", "the ledger equals the history", History{Events: []Event{m, at(sec, OpDrop, Event{Answer: OK})},
		Final: Final{Ledger: map[string]Ledger{"q": {Published: 1}}}}, "0 dropped"},
	{"a drop of a plan is not counted", "the ledger equals the history", History{Events: []Event{m, at(sec, OpDeliver, Event{Outcome: Dead})},
		Final: Final{Ledger: map[string]Ledger{"q": {Published: 1}}, Plans: []PlanEnd{{ID: "p", Action: "drop", State: "done", Done: 1, Results: []PlanResult{{"q", "id-m", Dropped}}}}}}, "0 dropped"},
	{"a publish is not counted", "the ledger equals the history", History{Events: []Event{m, at(sec, OpDeliver, Event{Outcome: Done})},
		Final: Final{Ledger: map[string]Ledger{"q": {Done: 1}}}}, "0 published"},
	{"dead without a cause", "nothing dies without a cause", History{Events: []Event{m, claimed(sec, "r1"), settled(2*sec, "r1", Retry)}, Final: left(Left{State: Dead})}, "0 may have"},
	{"dead by a settlement that was refused", "nothing dies without a cause", History{Events: []Event{
		m, claimed(sec, "r1"), claimed(3*sec, "r2"), at(4*sec, OpSettle, Event{Receipt: "r1", Outcome: Dead, Answer: Refused}),
	}, Final: left(Left{State: Dead})}, "0 may have"},
	{"dead again without a cause", "nothing dies without a cause", History{Events: []Event{m, at(sec, OpDeliver, Event{Outcome: Dead}), at(3*sec, OpDeliver, Event{Outcome: Retry}), looked(4*sec, 1)},
		Final: redrove(1)}, "died 2 times"},
	{"alive again without a plan", "a plan redrives a message once", History{Events: []Event{m, at(sec, OpDeliver, Event{Outcome: Dead}), looked(2*sec, 0), at(3*sec, OpDeliver, Event{Outcome: Done})}}, "#3"},
	{"claimed in another generation", "a plan redrives a message once", History{Events: []Event{m, at(sec, OpClaim, Event{Receipt: "r1", Generation: 1})}}, "#1"},
	{"a plan redrives a delivered one twice", "a plan redrives a message once", History{Events: []Event{
		m, at(sec, OpDeliver, Event{Outcome: Dead}), looked(2*sec, 0), at(3*sec, OpPlan, Event{Plan: "p", Action: "redrive", Answer: OK}),
		at(4*sec, OpDeliver, Event{Outcome: Dead}), looked(5*sec, 1), at(6*sec, OpDeliver, Event{Outcome: Done}),
	}, Final: redrove(1)}, "#6"},
	{"one that is there was redriven twice", "a plan redrives a message once", History{Events: []Event{m, at(sec, OpDeliver, Event{Outcome: Dead}), at(3*sec, OpDeliver, Event{Outcome: Dead}), at(4*sec, OpDeliver, Event{Outcome: Dead})},
		Final: Final{Left: left(Left{State: Dead, Redrives: 2}).Left, Plans: redrove(1).Plans}}, "2 times"},
	{"dropped and delivered", "what was dropped is gone", History{Events: []Event{m, at(sec, OpDrop, Event{Answer: OK}), at(2*sec, OpDeliver, Event{Outcome: Done})}}, "#2"},
	{"dropped by a plan and claimed", "what was dropped is gone", History{Events: []Event{
		m, claimed(sec, "r1"), settled(2*sec, "r1", Dead), at(3*sec, OpPlan, Event{Plan: "p", Action: "drop", Answer: OK}), at(4*sec, OpClaim, Event{Receipt: "r2", Generation: 1}),
	}, Final: Final{Plans: []PlanEnd{{ID: "p", Action: "drop", State: "done", Done: 1, Results: []PlanResult{{"q", "id-m", Dropped}}}}}}, "#4"},
	{"a delivery shows what was before an edit", "an edit is kept", History{Events: []Event{m, at(sec, OpEdit, Event{Rev: 1, Answer: OK}), at(2*sec, OpDeliver, Event{Outcome: Done})}}, "#1"},
	{"a delivery shows an edit that was refused", "a refused edit changes nothing", History{Events: []Event{m, at(sec, OpEdit, Event{Rev: 1, Answer: Refused}), at(2*sec, OpDeliver, Event{Rev: 1, Outcome: Done})}}, "#2"},
	{"a plan leaves one out", "a plan takes all that match", History{Events: []Event{
		m, claimed(sec, "r1"), settled(2*sec, "r1", Dead), at(3*sec, OpPlan, Event{Plan: "p", Action: "redrive", Answer: OK}),
	}, Final: Final{Left: left(Left{State: Dead}).Left, Plans: []PlanEnd{{ID: "p", Action: "redrive", State: "done"}}}}, "#2"},
	{"a plan fails", "a plan ends", History{Final: Final{Plans: []PlanEnd{{ID: "p", Action: "redrive", State: "failed", Problem: "why"}}}}, "why"},
	{"a cancelled plan goes on", "a plan ends", History{Events: []Event{at(sec, OpSteer, Event{Plan: "p", Outcome: "cancelled", Answer: OK})},
		Final: Final{Plans: []PlanEnd{{ID: "p", Action: "redrive", State: "done"}}}}, "cancelled and is done"},
	{"a plan is gone", "a plan ends", History{Events: []Event{at(sec, OpPlan, Event{Plan: "p", Answer: OK})}}, "not there"},
	{"a receipt is accepted twice", "nothing is settled twice", History{Events: []Event{m, claimed(sec, "r1"), settled(2*sec, "r1", Retry), settled(3*sec, "r1", Retry)}}, "#3"},
	{"a receipt is extended when it is settled", "nothing is settled twice", History{Events: []Event{m, claimed(sec, "r1"), settled(sec*3/2, "r1", Release), at(2*sec, OpExtend, Event{Receipt: "r1", Lease: sec, Answer: OK})}}, "#3"},
	{"a stale settlement whose first answer was lost", "a stale holder changes nothing", History{Events: []Event{
		m, claimed(sec, "r1"), at(sec+sec/2, OpSettle, Event{Receipt: "r1", Outcome: Retry, Answer: Unknown}), claimed(2*sec, "r2"), settled(3*sec, "r1", Retry),
	}}, "#4"},
	{"a stale settlement on a store that undoes no claim", "a stale holder changes nothing", History{Events: []Event{
		m, claimed(sec, "r1"), claimed(3*sec, "r2"), at(3*sec, OpFault, Event{Fault: KillServer}), settled(4*sec, "r1", Done),
	}}, "#4"},
	{"two holders on a store that undoes no claim", "a message has one holder", History{Events: []Event{
		m, claimed(sec, "r1"), at(sec+sec/5, OpFault, Event{Fault: KillServer}), claimed(sec+sec/2, "r2"), settled(2*sec, "r2", Done),
	}}, "#3"},
	{"two holders when the source's server was killed", "a message has one holder", History{Undoes: true, Events: []Event{
		m, claimed(sec, "r1"), at(sec+sec/5, OpFault, Event{Fault: KillServer, On: 1}), claimed(sec+sec/2, "r2"), settled(2*sec, "r2", Done),
	}}, "#3"},
	{"two deliveries at once", "a message has one holder", History{Events: []Event{m, at(sec, OpDeliver, Event{Outcome: Retry, End: 2 * sec}), at(sec*3/2, OpDeliver, Event{Outcome: Done})}}, "#2"},
	{"the second first, and a plan dropped the first later", "order by key", History{Events: []Event{
		published(Event{Label: "m", Key: "k", Seq: 1}), published(Event{Label: "n", Key: "k", Seq: 2}), at(sec, OpDeliver, Event{Outcome: Dead}),
		at(2*sec, OpDeliver, Event{Label: "n", Outcome: Done}), at(3*sec, OpPlan, Event{Plan: "p", Action: "drop", Answer: OK}),
	}, Final: Final{Plans: []PlanEnd{{ID: "p", Action: "drop", State: "done", Done: 1, Results: []PlanResult{{"q", "id-m", Dropped}}}}}}, "q/id-n"},
	{"the first again after the second", "order by key", History{Events: []Event{
		published(Event{Label: "m", Key: "k", Seq: 1}), published(Event{Label: "n", Key: "k", Seq: 2}),
		at(sec, OpDeliver, Event{Outcome: Done}), at(2*sec, OpDeliver, Event{Label: "n", Outcome: Done}), at(3*sec, OpDeliver, Event{Outcome: Done}),
	}}, "#4"},
	{"a daemon ends by itself", "goes on", History{Events: []Event{at(sec, OpExit, Event{By: "daemon-1", End: 60 * sec})}}, "daemon-1"},
	{"verify found something", "the ledger balances", History{Final: Final{Unbalanced: []string{"q: 1 too many"}}}, "1 too many"},
	{"it does not go on", "goes on", History{Final: Final{Problems: []string{"3 wait for ever"}}}, "3 wait"},
}

func numbered(h *History) *History {
	h.Events = slices.Clone(h.Events)
	for i := range h.Events {
		h.Events[i].N = i
	}
	return h
}

func TestBadHistoriesAreRefused(t *testing.T) {
	for _, c := range bad {
		t.Run(c.name, func(t *testing.T) {
			found := Check(numbered(&c.h))
			for i := range found {
				if found[i].Promise == c.promise && strings.Contains(found[i].String(), c.names) {
					return
				}
			}
			t.Errorf("no violation of %q that names %q, but %v", c.promise, c.names, found)
		})
	}
}

// TestGoodHistoriesAreNot: what the promises allow.
func TestGoodHistoriesAreNot(t *testing.T) {
	delivered := at(sec, OpDeliver, Event{Outcome: Done})
	for _, c := range []struct {
		name string
		h    History
	}{
		{"nothing", History{}},
		{"done", History{Events: []Event{m, delivered}, Final: Final{Ledger: map[string]Ledger{"q": {Published: 1, Done: 1}}}}},
		{"delivered twice", History{Events: []Event{m, delivered, at(2*sec, OpDeliver, Event{Outcome: Done})}}},
		{"a refused publish", History{Events: []Event{at(0, OpPublish, Event{Answer: Refused})}, Final: Final{Ledger: map[string]Ledger{"q": {}}}}},
		{"forgotten with the power before its publisher had the answer", History{Events: []Event{at(0, OpPublish, Event{Answer: Unknown}), delivered, at(sec, OpFault, Event{Fault: PowerLoss})},
			Final: Final{Ledger: map[string]Ledger{"q": {}}}}},
		{"an unknown publish that is not there", History{Events: []Event{at(0, OpPublish, Event{Answer: Unknown})}, Final: Final{Ledger: map[string]Ledger{"q": {}}}}},
		{"an unknown publish that is", History{Events: []Event{at(0, OpPublish, Event{Answer: Unknown}), delivered}, Final: Final{Ledger: map[string]Ledger{"q": {Published: 1, Done: 1}}}}},
		{"two of two publishes", History{Foreign: []string{"q"}, Events: []Event{at(0, OpPublish, Event{Answer: Unknown}), m, at(sec, OpDeliver, Event{Outcome: Dead}), at(2*sec, OpEdit, Event{Rev: 1, Answer: OK})},
			Final: Final{Left: []Left{{Queue: "q", Label: "m", ID: "id-1", State: Dead}, {Queue: "q", Label: "m", ID: "id-2", State: Dead, Rev: 1}}, Ledger: map[string]Ledger{"q": {Published: 2, Dead: 2}}}}},
		{"a claim that a crash undid", History{Undoes: true, Events: []Event{m, claimed(sec, "r1"), at(sec+sec/5, OpFault, Event{Fault: KillServer}), claimed(sec+sec/2, "r2"), settled(2*sec, "r2", Done)}}},
		{"a settlement that is repeated", History{Events: []Event{
			m, claimed(sec, "r1"), at(sec+sec/2, OpSettle, Event{Receipt: "r1", Outcome: Retry, Answer: Unknown}), settled(2*sec, "r1", Retry),
			claimed(3*sec, "r2"), at(4*sec, OpSettle, Event{Receipt: "r1", Outcome: Retry, Answer: Refused}), settled(5*sec, "r2", Done),
		}}},
		{"looked at, redriven and done", History{Events: []Event{
			m, at(sec, OpDeliver, Event{Outcome: Dead}), looked(2*sec, 0), at(3*sec, OpPlan, Event{Plan: "p", Action: "redrive", Answer: OK}), at(4*sec, OpDeliver, Event{Outcome: Done}),
		}, Final: redrove(1)}},
		{"dropped by a plan and not seen again", History{Events: []Event{
			m, claimed(sec, "r1"), settled(2*sec, "r1", Dead), at(3*sec, OpPlan, Event{Plan: "p", Action: "drop", Answer: OK}),
		}, Final: Final{Plans: []PlanEnd{{ID: "p", Action: "drop", State: "done", Done: 1, Results: []PlanResult{{"q", "id-m", Dropped}}}}}}},
		{"a plan drops what waits, and of one only its publisher knew", History{Events: []Event{
			at(0, OpPublish, Event{Answer: Unknown}), at(sec, OpPlan, Event{Plan: "p", Action: dropWaiting, Answer: OK}),
		}, Final: Final{Ledger: map[string]Ledger{"q": {Published: 1, Dropped: 1}}, Plans: []PlanEnd{{ID: "p", Action: "drop", State: "done", Done: 1, Results: []PlanResult{{"q", "id-m", Dropped}}}}}}},
		{"delivered again when the first was given up", History{Events: []Event{m, at(sec, OpDeliver, Event{Outcome: Retry, End: 5 * sec}), at(4*sec, OpDeliver, Event{Outcome: Done})}}},
		{"a daemon whose disk lost its power ends", History{Events: []Event{at(sec, OpExit, Event{By: "daemon-1", End: 60 * sec}), at(59*sec, OpFault, Event{Fault: PowerLoss, End: 61 * sec})}}},
		{"a daemon does not start while a source is away", History{Events: []Event{at(sec, OpExit, Event{By: "daemon-1", End: 2 * sec}), at(0, OpFault, Event{Fault: KillServer, On: 1, End: 3 * sec})}}},
		{"a daemon does not start while its server is away", History{Events: []Event{at(sec, OpExit, Event{By: "daemon-1", End: 2 * sec}), at(0, OpFault, Event{Fault: KillServer, End: 3 * sec})}}},
		{"dead, redriven and done", History{Events: []Event{
			m, claimed(sec, "r1"), settled(2*sec, "r1", Dead), at(3*sec, OpPlan, Event{Plan: "p", Answer: OK}),
			at(4*sec, OpClaim, Event{Receipt: "r2", Generation: 1, Redrives: 1}), settled(5*sec, "r2", Done),
		}, Final: Final{Plans: []PlanEnd{{ID: "p", Action: "redrive", State: "done", Done: 1, Results: []PlanResult{{"q", "id-m", "delivered"}}}}}}},
		{"dead after the plan, by a clock that was moved between", History{Events: []Event{
			m, at(sec, OpPlan, Event{Plan: "p", Answer: OK}), at(sec+sec/2, OpFault, Event{Fault: MoveClock}),
			at(2*sec, OpDeliver, Event{Outcome: Dead}), at(3*sec, OpDeliver, Event{Outcome: Done}),
		}, Final: Final{Plans: []PlanEnd{{ID: "p", Action: "redrive", State: "done", Done: 1, Results: []PlanResult{{"q", "id-m", "delivered"}}}}}}},
		{"a lost edit comes late", History{Events: []Event{
			m, at(sec/2, OpDeliver, Event{Outcome: Dead}), at(sec, OpEdit, Event{Rev: 1, Answer: Unknown, End: 3 * sec}), at(2*sec, OpEdit, Event{Rev: 2, Answer: OK}),
		}, Final: Final{Left: []Left{{Queue: "q", Label: "m", ID: "id-m", State: Dead, Rev: 1}}}}},
		{"in order", History{Events: []Event{
			published(Event{Label: "m", Key: "k", Seq: 1}), published(Event{Label: "n", Key: "k", Seq: 2}),
			delivered, at(2*sec, OpDeliver, Event{Label: "n", Outcome: Done}),
		}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, v := range Check(numbered(&c.h)) {
				t.Error(v.String())
			}
		})
	}
}

func TestShrink(t *testing.T) {
	always := func() bool { return true }
	random := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		n := 1 + random.IntN(40)
		items := make([]int, n)
		for i := range items {
			items[i] = i
		}
		var guilty []int
		for range 1 + random.IntN(min(n, 3)) {
			if g := random.IntN(n); !slices.Contains(guilty, g) {
				guilty = append(guilty, g)
			}
		}
		slices.Sort(guilty)
		got := Shrink(items, func(some []int) bool {
			return !slices.ContainsFunc(guilty, func(g int) bool { return !slices.Contains(some, g) })
		}, always)
		if !slices.Equal(got, guilty) {
			t.Fatalf("%d items shrink to %v, want %v", n, got, guilty)
		}
	}
}

func TestFaultsComeFromTheSeed(t *testing.T) {
	draw := func(seed uint64) []Fault {
		return Faults(rand.New(rand.NewPCG(seed, 1)), Rig{Daemons: 2, Links: 3, Servers: 1}, 20*sec)
	}
	one := draw(7)
	if !slices.Equal(one, draw(7)) || slices.Equal(one, draw(8)) {
		t.Error("the faults are not those of their seed")
	}
	kinds := map[Kind]bool{}
	for _, f := range one {
		kinds[f.Kind] = true
		if f.At < 0 || f.At > 20*sec || f.For < 0 || f.For > longest {
			t.Error(f)
		}
	}
	if len(kinds) < 5 {
		t.Errorf("%v", one)
	}
}
