package alerts

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

var began = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// desk plays looks at a board, and sends what is due to one receiver.
type desk struct {
	*testing.T
	board   board
	rules   *Watcher
	now     time.Time
	repeats bool
	sent    []string // "firing a b; over c", a message each
}

func newDesk(t *testing.T) *desk {
	b := make(board)
	return &desk{T: t, board: b, rules: &Watcher{flow: make(flow), shared: b}, now: began}
}

// look looks and sends, then lets time pass.
func (d *desk) look(f Facts, pass time.Duration) {
	d.Helper()
	f.Now = d.now
	conditions, err := d.rules.about(&f, config.DefaultOldest)
	if err != nil {
		d.Fatal(err)
	}
	d.board.look(conditions, d.now, func(string) bool { return true })
	d.send()
	d.now = d.now.Add(pass)
}

func (d *desk) send() {
	n := d.board.due("r", d.repeats, d.now)
	if n.none() {
		return
	}
	var parts []string
	for word, all := range map[string][]*alert{"firing": n.firing, "over": n.over} {
		for _, a := range all {
			parts = append(parts, word+" "+a.Subject+" "+strings.Join(a.Rules, "+"))
		}
	}
	slices.Sort(parts)
	d.sent = append(d.sent, strings.Join(parts, "; "))
	n.tell("r", d.now)
}

// during repeats a look every 15 s.
func (d *desk) during(f func() Facts, span time.Duration) {
	d.Helper()
	for end := d.now.Add(span); d.now.Before(end); {
		d.look(f(), lookEvery)
	}
}

func (d *desk) wants(messages ...string) {
	d.Helper()
	if !slices.Equal(d.sent, messages) {
		d.Errorf("sent\n\t%s\nwant\n\t%s", strings.Join(d.sent, "\n\t"), strings.Join(messages, "\n\t"))
	}
	d.sent = nil
}

func nothing() Facts { return Facts{} }

// some are all causes that there are.
func some(causes ...wire.Cause) iter.Seq2[*wire.Cause, error] {
	return func(yield func(*wire.Cause, error) bool) {
		for i := range causes {
			if !yield(&causes[i], nil) {
				return
			}
		}
	}
}

func cause(queue, signature string, first time.Time) wire.Cause {
	return wire.Cause{Queue: queue, Signature: signature, Reason: redrive.ReasonPermanent, Count: 3, First: first, Last: first, State: wire.CauseNew, Message: "no schema", PerMinute: 2}
}

// An outage of a cause is one message when it begins, whatever joins it, and one when it is over.
func TestACauseIsTwoMessages(t *testing.T) {
	d := newDesk(t)
	c := cause("orders", "2-a", began)
	d.during(func() Facts { return Facts{Causes: some(c)} }, 3*time.Minute)
	c.Growing = true
	d.during(func() Facts { return Facts{Causes: some(c)} }, 10*time.Minute)
	d.wants("firing cause/orders/2-a/permanent cause_new")
	if a := d.board["cause/orders/2-a/permanent"]; !slices.Equal(a.Rules, []string{"cause_new", "cause_growing"}) {
		t.Errorf("%q", a.Rules)
	}
	c.Growing, c.Quiet = false, true
	d.during(func() Facts { return Facts{Causes: some(c)} }, 10*time.Minute)
	d.wants("over cause/orders/2-a/permanent cause_new+cause_growing")
	// It is not new again, but it may grow again.
	c.Quiet = false
	d.during(func() Facts { return Facts{Causes: some(c)} }, 10*time.Minute)
	d.wants()
	c.Growing = true
	d.during(func() Facts { return Facts{Causes: some(c)} }, 10*time.Minute)
	d.wants("firing cause/orders/2-a/permanent cause_growing")
}

// What a person decided of a cause silences it; what comes back after that does not.
func TestADecisionSilences(t *testing.T) {
	d := newDesk(t)
	c := cause("orders", "2-a", began)
	c.Growing = true
	d.during(func() Facts { return Facts{Causes: some(c)} }, time.Minute)
	d.wants("firing cause/orders/2-a/permanent cause_new+cause_growing")
	c.State, c.Life = wire.CauseAcknowledged, &wire.CauseLife{At: d.now}
	d.during(func() Facts { return Facts{Causes: some(c)} }, 10*time.Minute)
	d.wants("over cause/orders/2-a/permanent cause_new+cause_growing")
	c.State, c.RegressedOn = wire.CauseRegressed, "v2"
	d.during(func() Facts { return Facts{Causes: some(c)} }, 10*time.Minute)
	d.wants("firing cause/orders/2-a/permanent cause_regressed+cause_growing")
	if s := d.board["cause/orders/2-a/permanent"].Summary; !strings.Contains(s, "back on v2") {
		t.Error(s)
	}
	// It was quiet, and one more died: that was said already.
	c.Growing, c.Quiet = false, true
	d.during(func() Facts { return Facts{Causes: some(c)} }, 10*time.Minute)
	c.Quiet = false
	d.during(func() Facts { return Facts{Causes: some(c)} }, 10*time.Minute)
	d.wants("over cause/orders/2-a/permanent cause_regressed+cause_growing")
	c.Life = &wire.CauseLife{At: d.now}
	d.during(func() Facts { return Facts{Causes: some(c)} }, time.Minute)
	d.wants("firing cause/orders/2-a/permanent cause_regressed")
}

// Causes that were there long before anybody looked are no news, unless they grow.
func TestOldCausesAreNoNews(t *testing.T) {
	d := newDesk(t)
	old, growing := cause("orders", "2-a", began.Add(-48*time.Hour)), cause("orders", "2-b", began.Add(-48*time.Hour))
	growing.Growing = true
	d.during(func() Facts { return Facts{Causes: some(old, growing)} }, 10*time.Minute)
	d.wants("firing cause/orders/2-b/permanent cause_growing")
}

// A storm of causes is a message that names ten, and says how many more there are.
func TestAStormIsOneMessage(t *testing.T) {
	d := newDesk(t)
	storm := func(n int) func() Facts {
		return func() Facts {
			var causes []wire.Cause
			for i := range n {
				causes = append(causes, cause("orders", fmt.Sprintf("2-%03d", i), began))
			}
			return Facts{Causes: some(causes...)}
		}
	}
	d.during(storm(300), lookEvery)
	d.during(storm(500), time.Minute) // the rest of it, a look later
	if len(d.sent) != 1 || strings.Count(d.sent[0], "firing") != 300 {
		t.Fatalf("%d messages: %.200q", len(d.sent), d.sent)
	}
	d.during(storm(500), 5*time.Minute)
	if len(d.sent) != 2 || strings.Count(d.sent[1], "firing") != 200 {
		t.Fatalf("%d messages: %.200q", len(d.sent), d.sent)
	}
	d.sent = nil
	d.during(nothing, 10*time.Minute)
	if len(d.sent) != 1 || strings.Count(d.sent[0], "over") != 500 {
		t.Fatalf("%d messages: %.200q", len(d.sent), d.sent)
	}

	one := newDesk(t)
	f := storm(500)()
	f.Now = began
	conditions, err := one.rules.about(&f, config.DefaultOldest)
	if err != nil {
		t.Fatal(err)
	}
	one.board.look(conditions, began, func(string) bool { return true })
	n := one.board.due("r", false, began.Add(gatherFor))
	m := newMessage(&n, "https://redrive.example.com/", "production", began)
	if s := m.text(plainText); strings.Count(s, "new cause") != 10 || !strings.Contains(s, "and 490 more: redrive alerts") {
		t.Error(s)
	}
	if s := m.title(); s != "redrive production: firing: cause new, cause/orders/2-000/permanent and 499 more" {
		t.Error(s)
	}
	if got := m.firing[0].Link; got != "https://redrive.example.com/ui/causes/2-000?queue=orders" {
		t.Error(got)
	}
}

func queue(name string, change ...func(*wire.Queue)) wire.Queue {
	q := wire.Queue{Queue: name, Configured: true, Due: 7, Engine: &wire.QueueEngine{}, Waiting: wire.Waiting{All: 9}, Ledger: wire.Ledger{Entered: 20}}
	for _, c := range change {
		c(&q)
	}
	return q
}

func due(at time.Time) func(*wire.Queue) { return func(q *wire.Queue) { q.OldestDue = &at } }

// A queue whose target is down is one message; the causes that come of it are said only if they go
// on when it flows again.
func TestAQueueThatDoesNotFlow(t *testing.T) {
	d := newDesk(t)
	stuck := func() Facts {
		q := queue("pay", due(began), func(q *wire.Queue) {
			q.HeldBy = []wire.Hold{{What: wire.HoldRate, Stops: wire.StopsDelivery}, {What: wire.HoldBreaker, Stops: wire.StopsDelivery, Detail: "503"}}
			q.Ledger.Entered, q.Waiting.All = q.Ledger.Entered+int64(d.now.Sub(began)), q.Waiting.All+int64(d.now.Sub(began)) // publishes go on
		})
		return Facts{Queues: []wire.Queue{q}}
	}
	d.during(stuck, 2*time.Minute)
	d.wants()
	d.during(stuck, time.Minute)
	d.wants("firing queue/pay queue_stuck")
	if s := d.board["queue/pay"].Summary; !strings.Contains(s, "; breaker: 503") || !strings.Contains(s, "7 due") {
		t.Error(s)
	}
	both := func() Facts {
		f := stuck()
		f.Causes = some(cause("pay", "2-a", d.now), cause("orders", "2-b", d.now))
		return f
	}
	d.during(both, 20*time.Minute) // meanwhile the oldest is old, too
	d.wants("firing cause/orders/2-b/permanent cause_new")
	if a := d.board["queue/pay"]; !slices.Equal(a.Rules, []string{"queue_stuck", "queue_old"}) {
		t.Errorf("%q", a.Rules)
	}
	flows := func() Facts {
		f := both()
		f.Queues[0].OldestDue = nil
		return f
	}
	d.during(flows, 10*time.Minute)
	d.wants("firing cause/pay/2-a/permanent cause_new; over queue/pay queue_stuck+queue_old")
}

// What every delivery is refused for is news beside that it is.
func TestTheCauseOfRefusalsIsSent(t *testing.T) {
	d := newDesk(t)
	refused := func(q *wire.Queue) { q.Engine.AllRefusedSince = &began }
	d.during(func() Facts {
		return Facts{Queues: []wire.Queue{queue("pay", refused)}, Causes: some(cause("pay", "2-a", began))}
	}, time.Minute)
	d.wants("firing cause/pay/2-a/permanent cause_new; firing queue/pay queue_refused")
}

func TestWhatIsNoStuckQueue(t *testing.T) {
	for name, change := range map[string]func(d *desk, q *wire.Queue){
		"a person paused it": func(_ *desk, q *wire.Queue) {
			q.HeldBy = []wire.Hold{{What: wire.HoldPause, Stops: wire.StopsDelivery, By: "ann"}}
		},
		"something leaves it":    func(d *desk, q *wire.Queue) { q.Ledger.Entered += int64(d.now.Sub(began)) },
		"something is in flight": func(_ *desk, q *wire.Queue) { q.Leased = 1 },
		"nobody consumes it":     func(_ *desk, q *wire.Queue) { q.Engine = nil },
		"ours":                   func(_ *desk, q *wire.Queue) { q.Queue = "_results" },
	} {
		d := newDesk(t)
		d.during(func() Facts {
			return Facts{Queues: []wire.Queue{queue("pay", due(began), func(q *wire.Queue) { change(d, q) })}}
		}, config.DefaultOldest)
		if len(d.sent) > 0 {
			t.Errorf("%s: %q", name, d.sent)
		}
	}
}

func TestTheOtherRules(t *testing.T) {
	since, later := began.Add(-time.Minute), began.Add(-2*time.Hour)
	for want, f := range map[string]Facts{
		"firing queue/pay queue_refused": {Queues: []wire.Queue{queue("pay", func(q *wire.Queue) { q.Engine.AllRefusedSince = &since })}},
		"firing queue/pay queue_old":     {Queues: []wire.Queue{queue("pay", due(later), func(q *wire.Queue) { q.Engine = nil })}},
		"firing queue/pay queue_stuck": {Queues: []wire.Queue{queue("pay", func(q *wire.Queue) {
			q.HeldBy = []wire.Hold{{What: wire.HoldSource, Stops: wire.StopsDelivery, Since: &since}}
		})}},
		"firing plan/p plan_stopped": {Plans: []wire.Plan{{ID: "p", State: wire.PlanStopped}}},
		"firing plan/f plan_stopped": {Plans: []wire.Plan{{ID: "f", State: wire.PlanFailed, EndedAt: &since}, {ID: "g", State: wire.PlanFailed, EndedAt: &later}}},
		"firing ledger ledger_off":   {Ledger: &wire.Verified{Queues: []wire.Audit{{Queue: "pay", Imbalance: 1}, {Queue: "q", Balanced: true}}}},
	} {
		d := newDesk(t)
		d.during(func() Facts { return f }, time.Minute)
		d.wants(want)
		d.during(nothing, 10*time.Minute)
		d.wants(strings.Replace(want, "firing", "over", 1))
	}
	all := withoutStore(&Here{StoreAway: began.Add(-time.Minute)}, began)
	if len(all) != 1 || all[0].rule != wire.AlertStoreAway {
		t.Errorf("%+v", all)
	}
	if all := withoutStore(&Here{StoreAway: began}, began); len(all) != 0 {
		t.Errorf("a blink of the store: %+v", all)
	}
}

// An Alertmanager forgets what is not repeated.
func TestAnAlertmanagerForgets(t *testing.T) {
	d := newDesk(t)
	d.repeats = true
	d.during(func() Facts { return Facts{Plans: []wire.Plan{{ID: "p", State: wire.PlanStopped}}} }, 5*time.Minute+lookEvery)
	if len(d.sent) != 5 {
		t.Errorf("%d messages in 5 minutes: %q", len(d.sent), d.sent)
	}
	d.sent = nil
	d.during(nothing, 4*time.Minute)
	if last := d.sent[len(d.sent)-1]; last != "over plan/p plan_stopped" || strings.Count(strings.Join(d.sent, " "), "over") != 1 {
		t.Errorf("%q", d.sent)
	}
}

// Texts of others cannot break a line, turn its direction, or be markup.
func TestTextsAreHarmless(t *testing.T) {
	c := cause("orders", "2-a", began)
	c.Message = "a\r\nBcc: x\x1b[31m \u202eevil <!channel> & \xff"
	d := newDesk(t)
	d.during(func() Facts { return Facts{Causes: some(c)} }, time.Minute)
	s := d.board["cause/orders/2-a/permanent"].Summary
	if strings.ContainsAny(s, "\r\n\x1b\u202e") || !strings.Contains(s, "<!channel>") {
		t.Errorf("%q", s)
	}
	if s = slackText(s); strings.Contains(s, "<") || !strings.Contains(s, "&lt;!channel&gt; &amp;") {
		t.Errorf("%q", s)
	}
}
