package alerts

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive/internal/text"
	"github.com/redrive/redrive/internal/wire"
)

// Facts are what the rules look at, as a token with the scope read may see it.
type Facts struct {
	Now time.Time // by the store's clock, which causes, queues and plans have their times from
	// Causes are all but quiet ones, of which no rule says anything; one after the other, as there may
	// be very many. An error ends them.
	Causes iter.Seq2[*wire.Cause, error]
	Queues []wire.Queue
	Plans  []wire.Plan
	Ledger *wire.Verified // nil: not looked at this time
}

// Here is what a daemon knows without its store.
type Here struct {
	StoreAway time.Time // since when it does not answer; zero: it does
	DiskFull  error     // why the store takes no messages, or nil
	// Free and Total are the bytes of the store's disk; 0: not known.
	Free, Total int64
}

// When rules fire.
const (
	newFor     = time.Hour        // a cause is new for so long after its first death
	stuckAfter = 2 * time.Minute  // with something due and nothing delivered
	awayAfter  = 30 * time.Second // a server that does not answer
	pausedLong = 24 * time.Hour   // a message due in a queue that a person paused
	failedFor  = time.Hour        // after its end a failed plan is no news
	lowPart    = 10               // a disk is nearly full when less than a tenth is free,
	lowBytes   = 512 << 20        // or less than this, of a disk that has four times as much
)

// condition is what a rule says at one look.
type condition struct {
	subject, rule, queue string
	begins               bool   // else it only keeps up an alert that fires
	once                 string // not empty: it does not begin again for the same, after it was over
	summary, next, path  string
	numbers              map[string]int64
}

// The beginnings of subjects.
const (
	ofCause    = "cause"
	ofCauses   = "causes" // that are too many for an alert each
	ofQueue    = "queue"
	ofPlan     = "plan"
	ofReceiver = "receiver"
	ofStore    = "store"
	ofDisk     = "disk"
	ofLedger   = "ledger"
)

// family is what a subject is one of.
func family(subject string) string {
	f, _, _ := strings.Cut(subject, "/")
	return f
}

// about applies the rules to what is in the store.
func (w *Watcher) about(f *Facts, oldest time.Duration) (all []condition, err error) {
	if all, err = w.aboutCauses(f); err != nil {
		return nil, err
	}
	w.flow.only(f.Queues)
	for i := range f.Queues {
		all = append(all, w.aboutQueue(&f.Queues[i], f, oldest)...)
	}
	for i := range f.Plans {
		all = append(all, aboutPlan(&f.Plans[i], f.Now)...)
	}
	if f.Ledger != nil && !f.Ledger.Balanced {
		all = append(all, aboutLedger(f.Ledger))
	}
	return all, nil
}

// aboutCauses looks at all causes. Beyond mostCauses alerts, further ones have one together.
func (w *Watcher) aboutCauses(f *Facts) (all []condition, err error) {
	if f.Causes == nil {
		return nil, nil
	}
	room, more := mostCauses-w.shared.firingCauses(), 0
	for c, err := range f.Causes {
		if err != nil {
			return nil, err
		}
		of := aboutCause(c, f.Now)
		if len(of) == 0 {
			continue
		}
		a := w.shared[of[0].subject]
		switch fires := a != nil && a.State == wire.AlertFiring; {
		case fires:
		case !slices.ContainsFunc(of, func(c condition) bool { return c.begins && !a.was(&c) }):
			continue
		case room == 0:
			more++
			continue
		default:
			room--
		}
		all = append(all, of...)
	}
	if more > 0 {
		all = append(all, condition{subject: ofCauses, rule: wire.AlertCauseNew, begins: true, numbers: map[string]int64{"causes": int64(more)}, next: "redrive dead causes", path: "/ui/causes",
			summary: fmt.Sprintf("%d more causes are new, grow or are back, beside %d that have an alert each", more, mostCauses)})
	}
	return all, nil
}

func aboutCause(c *wire.Cause, now time.Time) (all []condition) {
	if c.Quiet || c.State != wire.CauseNew && c.State != wire.CauseRegressed {
		return nil
	}
	say := func(rule, word, once string, begins bool) {
		numbers := map[string]int64{"dead": c.Count, "per_minute": int64(c.PerMinute + 0.5)}
		if c.Status != 0 {
			numbers["status"] = int64(c.Status)
		}
		all = append(all, condition{
			subject: ofCause + "/" + c.Queue + "/" + c.Signature + "/" + c.Reason.String(), rule: rule, queue: c.Queue, begins: begins, once: once, numbers: numbers,
			summary: fmt.Sprintf("%s: %s: %s: %s, %d a minute, first %s", c.Queue, word, causeText(c), text.Plural(int(c.Count), "dead letter"), numbers["per_minute"], clock(c.First)),
			next:    "redrive dead triage " + c.Signature + " --queue " + c.Queue,
			path:    "/ui/causes/" + url.PathEscape(c.Signature) + "?queue=" + url.QueryEscape(c.Queue),
		})
	}
	if c.State == wire.CauseRegressed {
		word := "a cause is back"
		if c.RegressedOn != "" {
			word += " on " + printable(c.RegressedOn)
		}
		say(wire.AlertCauseRegressed, word, clock(c.Life.At), true)
	} else {
		say(wire.AlertCauseNew, "new cause", "yes", now.Sub(c.First) < newFor)
	}
	if c.Growing {
		say(wire.AlertCauseGrowing, "a cause grows", "", true)
	}
	return all
}

// causeText is what a cause is, in a few words.
func causeText(c *wire.Cause) string {
	what := printable(cmp.Or(c.Message, c.Type, c.Reason.String()))
	if c.Answer != "" {
		what += ": " + printable(c.Answer)
	}
	return text.Clean(what, summaryText)
}

// aboutQueue looks at a queue that people configured or used. Names that begin with _ are ours.
func (w *Watcher) aboutQueue(q *wire.Queue, f *Facts, oldest time.Duration) (all []condition) {
	if strings.HasPrefix(q.Queue, "_") {
		return nil
	}
	say := func(rule string, numbers map[string]int64, format string, args ...any) {
		all = append(all, condition{
			subject: ofQueue + "/" + q.Queue, rule: rule, queue: q.Queue, begins: true, numbers: numbers,
			summary: q.Queue + " " + fmt.Sprintf(format, args...), next: "redrive queues", path: "/ui/queues/" + url.PathEscape(q.Queue),
		})
	}
	if since := refusedSince(q); !since.IsZero() {
		say(wire.AlertQueueRefused, map[string]int64{"waiting": q.Waiting.All, "dead": q.Dead}, "has every delivery refused since %s: a wrong deploy?", clock(since))
	}
	held, by := heldBy(q)
	if by.What == wire.HoldSource && by.Since != nil && f.Now.Sub(*by.Since) >= awayAfter {
		say(wire.AlertQueueStuck, nil, "does not flow%s since %s", held, clock(*by.Since))
	}
	last := w.flow.changed(q, f.Now)
	if q.OldestDue == nil {
		return all
	}
	age := f.Now.Sub(*q.OldestDue)
	numbers := map[string]int64{"due": q.Due, "waiting": q.Waiting.All, "age_seconds": int64(age.Seconds())}
	byPerson := by.What == wire.HoldPause && by.Target == "" && by.By != ""
	consumed := q.Engine != nil || q.Pull != nil && q.Pull.Polls+q.Pull.Held > 0
	if consumed && !byPerson && q.Leased == 0 && age >= stuckAfter && f.Now.Sub(last) >= stuckAfter {
		say(wire.AlertQueueStuck, numbers, "does not flow: %s due, nothing left it since %s%s", atLeast(q.Due, q.DueMore), clock(last), held)
	}
	if byPerson {
		oldest = max(oldest, pausedLong)
	}
	if age >= oldest {
		say(wire.AlertQueueOld, numbers, "has a message that has been due for %s; %s due%s", rounded(age), atLeast(q.Due, q.DueMore), held)
	}
	return all
}

// flow remembers, by queue, when something last left it or died in it, for any daemon or worker: its
// ledger says so.
type flow map[string]flowed

type flowed struct {
	handled int64
	at      time.Time
}

// only forgets queues that are gone.
func (f flow) only(queues []wire.Queue) {
	there := make(map[string]bool, len(queues))
	for i := range queues {
		there[queues[i].Queue] = true
	}
	maps.DeleteFunc(f, func(name string, _ flowed) bool { return !there[name] })
}

// changed returns when that was, or when the queue was looked at first.
func (f flow) changed(q *wire.Queue, now time.Time) time.Time {
	handled := q.Ledger.Entered - q.Waiting.All
	last, known := f[q.Queue]
	if !known || last.handled != handled {
		last = flowed{handled, now}
		f[q.Queue] = last
	}
	return last.at
}

func refusedSince(q *wire.Queue) time.Time {
	switch {
	case q.Engine != nil && q.Engine.AllRefusedSince != nil:
		return *q.Engine.AllRefusedSince
	case q.Pull != nil && q.Pull.AllRefusedSince != nil:
		return *q.Pull.AllRefusedSince
	}
	return time.Time{}
}

// heldBy says what most of all keeps messages of a queue from being delivered.
func heldBy(q *wire.Queue) (text string, by wire.Hold) {
	for _, what := range []string{wire.HoldSource, wire.HoldPause, wire.HoldBreaker, wire.HoldGuard, ""} {
		for _, h := range q.HeldBy {
			if h.Stops != wire.StopsDelivery || what != "" && h.What != what {
				continue
			}
			text = "; " + h.What
			if h.By != "" {
				text += " by " + printable(h.By)
			}
			return text + ": " + printable(h.Detail), h
		}
	}
	return "", by
}

func aboutPlan(p *wire.Plan, now time.Time) []condition {
	failed := p.State == wire.PlanFailed && p.EndedAt != nil && now.Sub(*p.EndedAt) < failedFor
	if p.State != wire.PlanStopped && !failed {
		return nil
	}
	queue := ""
	if p.Request.Filter != nil {
		queue = p.Request.Filter.Queue
	}
	return []condition{{
		subject: ofPlan + "/" + p.ID, rule: wire.AlertPlanStopped, queue: queue, begins: true,
		numbers: map[string]int64{"total": p.Total, "done": p.Done, "failed": p.Failed},
		summary: text.Clean(fmt.Sprintf("plan %s (%s) %s after %d of %d: %s", p.ID, p.Request.Action, p.State, p.Done, p.Total, printable(p.Problem)), summaryText),
		next:    "redrive plans show " + p.ID, path: "/ui/plans/" + url.PathEscape(p.ID),
	}}
}

func aboutLedger(v *wire.Verified) condition {
	var off []string
	var total int64
	for i := range v.Queues {
		if q := &v.Queues[i]; !q.Balanced {
			off, total = append(off, fmt.Sprintf("%s by %d", q.Queue, q.Imbalance)), total+q.Imbalance
		}
	}
	return condition{
		subject: ofLedger, rule: wire.AlertLedgerOff, begins: true, numbers: map[string]int64{"imbalance": total},
		summary: text.Clean("the ledger does not balance: "+strings.Join(off, ", "), summaryText), next: "redrive verify --scan", path: "/ui/ledger",
	}
}

// withoutStore applies the rules to what is known without the store.
func withoutStore(h *Here, now time.Time) (all []condition) {
	if !h.StoreAway.IsZero() && now.Sub(h.StoreAway) >= awayAfter {
		all = append(all, condition{subject: ofStore, rule: wire.AlertStoreAway, begins: true, path: "/ui/", next: "redrive doctor",
			summary: "the store has not answered since " + clock(h.StoreAway) + ": nothing is accepted or delivered"})
	}
	if h.DiskFull != nil {
		all = append(all, condition{subject: ofDisk, rule: wire.AlertDiskFull, begins: true, path: "/ui/", next: "redrive doctor",
			summary: "the store takes no messages: " + printable(h.DiskFull.Error())})
	}
	if low, nearly := h.Low(); low || nearly {
		all = append(all, condition{subject: ofDisk, rule: wire.AlertDiskLow, begins: low, path: "/ui/", next: "redrive doctor",
			numbers: map[string]int64{"free_bytes": h.Free, "total_bytes": h.Total},
			summary: fmt.Sprintf("the store's disk is nearly full: %d of %d MiB are free; when it is full the store takes no messages", h.Free>>20, h.Total>>20)})
	}
	return all
}

// Low reports that the disk is nearly full, and nearly that an alert about that goes on.
func (h *Here) Low() (low, nearly bool) {
	bound := max(h.Total/lowPart, min(lowBytes, h.Total/4))
	return h.Free < bound, h.Free < bound+bound/4
}

// summaryText bounds a summary, in bytes.
const summaryText = 400

// printable makes a text safe to show on one line.
func printable(s string) string {
	return strings.Join(strings.Fields(strings.Map(func(r rune) rune {
		if text.Hidden(r) {
			return ' '
		}
		return r
	}, text.Clean(s, summaryText))), " ")
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func rounded(d time.Duration) string {
	if d < time.Minute {
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

func atLeast(n int64, more bool) string {
	if more {
		return fmt.Sprintf("at least %d", n)
	}
	return fmt.Sprint(n)
}
