package ui

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redrive/redrive/internal/wire"
)

// queueRow is a queue in a list.
type queueRow struct {
	RowID                string // in lists that are kept up to date
	Queue, Path, Deliver string
	DeadPath             string
	Waiting, Leased      int64
	Dead, Done           int64
	OldestDue            moment
	Holds                []hold
	Stopped              bool // one of them stops it
	Flow                 chip // of a queue that nothing holds
}

func queueRowOf(q *wire.Queue, now time.Time) queueRow {
	row := queueRow{
		Queue: q.Queue, Path: queuePath(q.Queue), Deliver: q.Deliver, DeadPath: withQuery("/causes", map[string][]string{"queue": {q.Queue}}),
		Waiting: q.Waiting.All, Leased: q.Leased, Dead: q.Dead, Done: q.Done(), OldestDue: momentOf(q.OldestDue, now), Holds: holdsOf(q, now),
	}
	row.Stopped = slices.ContainsFunc(row.Holds, func(h hold) bool { return h.Stops })
	switch {
	case len(row.Holds) > 0:
	case q.Leased > 0:
		row.Flow = chip{"flows", "▶", toneOK}
	case q.Due > 0:
		row.Flow = chip{"due", "•", toneInfo}
	default:
		row.Flow = chip{"idle", "–", ""}
	}
	return row
}

// queuesPage lists the queues.
type queuesPage struct {
	Headline string
	Rows     []queueRow
	More     int
	Match    string
}

const maxQueueRows = 200

func viewQueues(queues []wire.Queue, match func(string) bool, now time.Time) queuesPage {
	var p queuesPage
	held, waiting := 0, int64(0)
	for i := range queues {
		q := &queues[i]
		if !match(q.Queue) {
			continue
		}
		row := queueRowOf(q, now)
		row.RowID = "q/" + q.Queue
		held += boolInt(row.Stopped)
		waiting += row.Waiting
		p.Rows = append(p.Rows, row)
	}
	p.Headline = fmt.Sprintf("%d queues, %s waiting", len(p.Rows), number(waiting))
	if len(p.Rows) == 1 {
		p.Headline = fmt.Sprintf("1 queue, %s waiting", number(waiting))
	}
	if held > 0 {
		p.Headline += fmt.Sprintf(", %d held up", held)
	}
	slices.SortStableFunc(p.Rows, func(a, b queueRow) int { return boolInt(b.Stopped) - boolInt(a.Stopped) })
	p.More = max(len(p.Rows)-maxQueueRows, 0)
	p.Rows = p.Rows[:min(len(p.Rows), maxQueueRows)]
	return p
}

// pair is a name and a value.
type pair struct{ Name, Value string }

// queuePage is one queue.
type queuePage struct {
	Row      queueRow
	Stats    []pair
	Lanes    []pair
	Ledger   []pair
	DeadBy   []pair
	Slots    string
	Pausable bool
	Paused   bool
	Pause    action
	Actions  []action
	Causes   []causeRow
	Flow     []trendView // of the last hour
	P95      string      // of the last minute in which something was delivered
	Command  string
}

func viewQueue(q *wire.Queue, now time.Time) queuePage {
	p := queuePage{Row: queueRowOf(q, now), Pausable: q.Engine != nil || q.Pull != nil || q.Configured, Command: command("redrive", "queues", "list", q.Queue)}
	due := number(q.Due)
	if q.DueMore {
		due = "more than " + due
	}
	p.Stats = []pair{
		{"waiting", number(q.Waiting.All)}, {"due", due}, {"in flight", number(q.Leased)}, {"dead", number(q.Dead)}, {"delivered", number(q.Done())},
	}
	p.Lanes = []pair{
		{"fresh", number(q.Waiting.Fresh)}, {"retry", number(q.Waiting.Retry)}, {"redrive", number(q.Waiting.Redrive)},
		{"blocked", number(q.Blocked)}, {"suspects", number(q.Suspects)}, {"bytes waiting", number(q.Bytes)},
	}
	for reason, n := range q.DeadBy {
		p.DeadBy = append(p.DeadBy, pair{reason.String(), number(n)})
	}
	slices.SortFunc(p.DeadBy, func(a, b pair) int { return len(b.Value) - len(a.Value) })
	p.Ledger = ledgerPairs(&q.Ledger)
	if e := q.Engine; e != nil {
		p.Slots = fmt.Sprintf("%d of %d slots busy", e.Busy, e.Slots)
		if e.Stuck > 0 {
			p.Slots += fmt.Sprintf(", %d stuck", e.Stuck)
		}
		for i := range e.Paused {
			p.Paused = p.Paused || e.Paused[i].Target == ""
		}
	}
	if q.Pull != nil {
		for i := range q.Pull.Paused {
			p.Paused = p.Paused || q.Pull.Paused[i].Target == ""
		}
	}
	return p
}

// flowOf draws what went through a queue by minute, as the daemon that answers saw it.
func flowOf(s *wire.Series) (all []trendView, p95 string) {
	for _, of := range []struct {
		label string
		count func(m *wire.Minute) int64
	}{
		{"published", func(m *wire.Minute) int64 { return m.Published }}, {"delivered", func(m *wire.Minute) int64 { return m.Delivered }},
		{"failed attempts", func(m *wire.Minute) int64 { return m.Failed }}, {"dead", func(m *wire.Minute) int64 { return m.Dead }},
	} {
		t := trendView{Label: of.label}
		for i := range s.Minutes {
			n := of.count(&s.Minutes[i])
			t.Values, t.Total = append(t.Values, n), t.Total+n
		}
		all = append(all, t)
	}
	for i := range s.Minutes {
		if d := s.Minutes[i].P95.Std(); d > 0 {
			p95 = duration(d)
		}
	}
	return all, p95
}

// rateOf proposes how fast to redrive: a quarter of what the queue's target takes now, at most 100/s.
func rateOf(s *wire.Series) string {
	var most int64
	for i := range s.Minutes {
		if len(s.Minutes)-i <= rateMinutes {
			most = max(most, s.Minutes[i].Delivered)
		}
	}
	if quarter := most / 60 / 4; quarter > 0 && quarter < 100 {
		return strconv.FormatInt(quarter, 10) + "/s"
	}
	return rateDefault
}

const rateMinutes = 10 // that tell what a target takes

// ledgerPairs shows what entered a queue and what left it.
func ledgerPairs(l *wire.Ledger) (all []pair) {
	for _, e := range []struct {
		name string
		n    int64
	}{
		{"entered", l.Entered}, {"published", l.Published}, {"parked", l.Parked}, {"imported", l.Imported}, {"moved in", l.MovedIn}, {"repeated", l.Repeated},
		{"left", l.Left}, {"done", l.Done}, {"dropped", l.Dropped}, {"archived", l.Archived}, {"moved out", l.MovedOut},
	} {
		if e.n != 0 || e.name == "entered" || e.name == "left" {
			all = append(all, pair{e.name, number(e.n)})
		}
	}
	return all
}
