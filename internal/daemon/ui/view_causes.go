package ui

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/redrive/redrive/internal/text"
	"github.com/redrive/redrive/internal/wire"
)

// causeRow is a cause in a list.
type causeRow struct {
	RowID                  string // in lists that are kept up to date
	Queue, Path, QueuePath string
	Count                  int64
	PerMinute              string
	Growing                bool
	Minutes                []int64
	First, Last            moment
	What                   whatHappened
	State, Verdict         chip
}

// sparkColumns is how many columns a sparkline in a list has: of two minutes each.
const sparkColumns = 30

func causeRowOf(c *wire.Cause, verdict string, now time.Time) causeRow {
	row := causeRow{
		Queue: c.Queue, Path: pathOf(c), QueuePath: queuePath(c.Queue), Count: c.Count, Growing: c.Growing,
		PerMinute: "0", Minutes: columns(c.Minutes, sparkColumns), First: momentAt(c.First, now), Last: momentAt(c.Last, now),
		What: happened(c), State: stateChip(c), Verdict: verdictChip(verdict),
	}
	if c.PerMinute > 0 {
		row.PerMinute = "+" + number(max(int64(c.PerMinute+.5), 1))
	}
	return row
}

// pathOf is where a cause is looked into. Without a signature it has no page of its own, as what
// expired or was never tried: its messages are listed.
func pathOf(c *wire.Cause) string {
	if c.Signature != "" {
		return causePath(c.Queue, c.Signature)
	}
	f := wire.Filter{Queue: c.Queue, Reason: c.Reason.String()}
	return withQuery("/dead", f.Parameters())
}

// The orders of causes.
const (
	sortGrowing = "growing"
	sortCount   = "count"
	sortNew     = "new"
)

// sortCauses puts those first that matter most: that are regressed, that grow, that are many.
func sortCauses(causes []wire.Cause, order string) {
	rank := func(c *wire.Cause) int {
		switch {
		case c.State == wire.CauseRegressed:
			return 0
		case c.State == wire.CauseAcknowledged, c.State == wire.CauseIgnored, c.State == wire.CauseResolved:
			return 3
		case c.Growing:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(causes, func(a, b wire.Cause) int {
		switch order {
		case sortCount:
			return cmp.Compare(b.Count, a.Count)
		case sortNew:
			return b.First.Compare(a.First)
		}
		return cmp.Or(cmp.Compare(rank(&a), rank(&b)), cmp.Compare(b.Count, a.Count), strings.Compare(a.Queue+a.Signature, b.Queue+b.Signature))
	})
}

// option is one choice of a form.
type option struct {
	Value, Label string
	Selected     bool
}

func options(selected string, pairs ...string) (all []option) {
	for p := range slices.Chunk(pairs, 2) {
		all = append(all, option{p[0], p[1], p[0] == selected})
	}
	return all
}

// causesPage is the list of causes.
type causesPage struct {
	Headline                    string
	Queues, States, Since, Sort []option
	Filtered                    bool
	Rows                        []causeRow
	More                        int   // that are not shown
	Incomplete                  bool  // not all dead letters were looked at
	Dead                        int64 // whatever the filter
	Command                     string
}

// causesIn is what the list is made of.
type causesIn struct {
	causes                     []wire.Cause
	queues                     []wire.Queue
	verdicts                   map[string]string // by signature and queue
	complete                   bool
	queue, state, since, order string
	now                        time.Time
}

const maxCauseRows = 100

func viewCauses(in *causesIn) causesPage {
	sortCauses(in.causes, in.order)
	p := causesPage{
		States:     options(in.state, "", "any", "new", "new", "regressed", "regressed", "acknowledged", "acknowledged", "ignored", "ignored", "resolved", "resolved"),
		Since:      options(in.since, "", "any time", "1h", "last hour", "24h", "last day", "168h", "last week"),
		Sort:       options(cmp.Or(in.order, sortGrowing), sortGrowing, "growing", sortCount, "count", sortNew, "newest"),
		Queues:     []option{{Label: "all queues", Selected: in.queue == ""}},
		Filtered:   in.queue != "" || in.state != "" || in.since != "",
		Incomplete: !in.complete,
	}
	for i := range in.queues {
		q := &in.queues[i]
		p.Dead += q.Dead
		if q.Dead > 0 || q.Queue == in.queue {
			p.Queues = append(p.Queues, option{q.Queue, q.Queue, q.Queue == in.queue})
		}
	}
	var dead int64
	for i := range in.causes {
		c := &in.causes[i]
		dead += c.Count
		if len(p.Rows) < maxCauseRows {
			row := causeRowOf(c, in.verdicts[verdictKey(c)], in.now)
			row.RowID = "c/" + c.Queue + "/" + c.Reason.String() + "/" + c.Signature
			p.Rows = append(p.Rows, row)
		}
	}
	p.More = len(in.causes) - len(p.Rows)
	p.Headline = text.Plural(len(in.causes), "cause") + ", " + number(dead) + " dead"
	if len(in.causes) == 0 && p.Dead == 0 {
		p.Headline = "No dead letters"
	} else if len(in.causes) == 0 {
		p.Headline = "No cause matches"
	}
	flags := []string{"redrive", "dead", "causes"}
	for _, f := range [][2]string{{"--queue", in.queue}, {"--state", in.state}, {"--since", in.since}} {
		if f[1] != "" {
			flags = append(flags, f[0], f[1])
		}
	}
	p.Command = command(flags...)
	return p
}

func verdictKey(c *wire.Cause) string { return c.Queue + "/" + c.Signature }
