package ui

import (
	"fmt"
	"slices"
	"time"

	"github.com/redrive/redrive/internal/wire"
)

// queueRow is a queue in a list.
type queueRow struct {
	Queue, Path, Deliver string
	DeadPath             string
	Waiting, Leased      int64
	Dead, Done           int64
	OldestDue            moment
	Holds                []hold
	Flow                 chip // of a queue that nothing holds
}

func queueRowOf(q *wire.Queue, now time.Time) queueRow {
	row := queueRow{
		Queue: q.Queue, Path: queuePath(q.Queue), Deliver: q.Deliver, DeadPath: withQuery("/causes", map[string][]string{"queue": {q.Queue}}),
		Waiting: q.Waiting.All, Leased: q.Leased, Dead: q.Dead, Done: q.Ledger.Done, OldestDue: momentOf(q.OldestDue, now), Holds: holdsOf(q, now),
	}
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
		held += boolInt(len(row.Holds) > 0)
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
	slices.SortStableFunc(p.Rows, func(a, b queueRow) int { return boolInt(len(b.Holds) > 0) - boolInt(len(a.Holds) > 0) })
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
	Resume   action
	Causes   []causeRow
	Command  string
}

func viewQueue(q *wire.Queue, now time.Time) queuePage {
	p := queuePage{Row: queueRowOf(q, now), Pausable: q.Engine != nil || q.Pull != nil || q.Configured, Command: command("redrive", "queues", "list", q.Queue)}
	due := number(q.Due)
	if q.DueMore {
		due = "more than " + due
	}
	p.Stats = []pair{
		{"waiting", number(q.Waiting.All)}, {"due", due}, {"in flight", number(q.Leased)}, {"dead", number(q.Dead)}, {"delivered", number(q.Ledger.Done)},
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
