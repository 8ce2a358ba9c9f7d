package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive/internal/text"
	"github.com/redrive/redrive/internal/wire"
)

// nowPage is the first page: what is wrong, and what waits for a person.
type nowPage struct {
	Headline   string
	Quiet      bool      // nothing is dead
	LastDead   moment    // then
	Waits      []planRow // plans that stopped by themselves
	Growing    []causeRow
	Others     int // causes that do not grow
	Running    []planRow
	Held       []queueRow
	Queues     []queueRow
	QueueCount int
	Ledger     ledgerLine
}

// nowIn is what it is made of.
type nowIn struct {
	queues   []wire.Queue
	causes   []wire.Cause
	verdicts map[string]string
	plans    []wire.Plan
	ledger   ledgerLine
	now      time.Time
}

const (
	nowGrowing = 5
	nowQueues  = 8
)

func viewNow(in *nowIn) nowPage {
	p := nowPage{QueueCount: len(in.queues), Ledger: in.ledger}
	var dead int64
	for i := range in.queues {
		q := &in.queues[i]
		dead += q.Dead
		row := queueRowOf(q, in.now)
		if len(row.Holds) > 0 {
			p.Held = append(p.Held, row)
		}
		p.Queues = append(p.Queues, row)
	}
	slices.SortStableFunc(p.Queues, func(a, b queueRow) int {
		return cmp.Or(cmp.Compare(b.Dead, a.Dead), cmp.Compare(b.Waiting, a.Waiting), strings.Compare(a.Queue, b.Queue))
	})
	p.Queues = p.Queues[:min(len(p.Queues), nowQueues)]
	growing := 0
	sortCauses(in.causes, sortGrowing)
	for i := range in.causes {
		c := &in.causes[i]
		if growing += boolInt(c.Growing); len(p.Growing) < nowGrowing && (c.Growing || c.State == wire.CauseRegressed) {
			p.Growing = append(p.Growing, causeRowOf(c, in.verdicts[verdictKey(c)], in.now))
		}
	}
	p.Others = len(in.causes) - len(p.Growing)
	for i := range in.plans {
		switch in.plans[i].State {
		case wire.PlanStopped, wire.PlanFailed:
			if in.plans[i].State == wire.PlanStopped || in.now.Sub(in.plans[i].UpdatedAt) < 24*time.Hour {
				p.Waits = append(p.Waits, planRowOf(&in.plans[i], in.now))
			}
		case wire.PlanRunning, wire.PlanPaused:
			p.Running = append(p.Running, planRowOf(&in.plans[i], in.now))
		}
	}
	p.Quiet = dead == 0
	p.Headline = headline(dead, len(in.causes), growing, down(in.queues), in.ledger)
	return p
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// down counts the queues whose target is given a rest.
func down(queues []wire.Queue) (n int) {
	for i := range queues {
		if e := queues[i].Engine; e != nil && slices.ContainsFunc(e.Breakers, func(b wire.Breaker) bool { return b.State == "open" }) {
			n++
		}
	}
	return n
}

// headline is the state in one sentence.
func headline(dead int64, causes, growing, down int, ledger ledgerLine) string {
	parts := []string{"No dead letters"}
	if dead > 0 {
		parts = []string{number(dead) + " dead", text.Plural(causes, "cause")}
		if growing > 0 {
			parts[1] += fmt.Sprintf(", %d still growing", growing)
		} else {
			parts[1] += ", none growing"
		}
	}
	if down > 0 {
		parts = append(parts, text.Plural(down, "target")+" down")
	}
	switch {
	case ledger.Checked.ISO == "":
	case ledger.Balanced:
		parts = append(parts, "nothing is lost")
	default:
		parts = append(parts, "the ledger does not balance")
	}
	return strings.Join(parts, " · ")
}
