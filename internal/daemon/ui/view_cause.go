package ui

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive/internal/wire"
)

// causePage is one cause: what it looks like, and what can be done.
type causePage struct {
	Queue, Signature string
	QueuePath        string
	What             whatHappened
	Type             string
	Count            int64
	PerMinute        string
	Growing          bool
	First, Last      moment
	State            chip
	Life             *lifeView
	Verdict          chip
	Tone             string
	Why              string
	Evidence         []pair
	Facets           []facetView // what differs among them
	Shared           []pair      // what does not
	Sample           int
	Trend            []trendView
	Samples          []sampleView
	Actions          []action
	Ack              ackForm
	Commands         []pair
	DeadPath         string
}

// lifeView is what a person decided of a cause.
type lifeView struct {
	Decided, By, Note, Link string
	At, Until               moment
}

// trendView is a cause's deaths over a time.
type trendView struct {
	Label  string
	Values []int64
	Total  int64
}

// facetView is something that a sample of messages has in common.
type facetView struct {
	Name    string
	Present string // in how many of the sample
	Values  []facetValue
	Others  int // values that are not shown
}

type facetValue struct {
	Value, Path string
	Count       int
	Of          int
	Percent     int
}

// sampleView is one of the messages, beside others.
type sampleView struct {
	Name, ID, Path string
	Died           moment
	Hidden         bool
	Lines          []sampleLine
	Cut            bool
}

// sampleLine is a line of a body; it differs when not all samples have it.
type sampleLine struct {
	Text    string
	Differs bool
}

// ackForm is the form by which a cause is acknowledged.
type ackForm struct {
	Path, Form, Queue, Needs string
	Note, Link               string
}

// causeIn is what the page is made of.
type causeIn struct {
	verdict wire.Verdict
	facets  wire.Facets
	deaths  []wire.DeathBucket
	samples []wire.Message // oldest, one between, newest
	now     time.Time
}

func viewCause(in *causeIn) causePage {
	c := &in.verdict.Cause
	row := causeRowOf(c, in.verdict.Verdict, in.now)
	filter := wire.Filter{Queue: c.Queue, Signature: c.Signature}
	p := causePage{
		Queue: c.Queue, Signature: c.Signature, QueuePath: row.QueuePath, What: row.What, Type: c.Type, Count: c.Count, PerMinute: row.PerMinute, Growing: c.Growing,
		First: row.First, Last: row.Last, State: row.State, Verdict: row.Verdict, Tone: row.Verdict.Tone, Why: in.verdict.Why,
		Sample: in.facets.Sample, DeadPath: withQuery("/dead", filter.Parameters()),
		Commands: []pair{
			{"look", command("redrive", "dead", "triage", c.Signature, "--queue", c.Queue)},
			{"redrive", command(append([]string{"redrive", "dead", "redrive"}, append(filterFlags(&filter), "--canary", "10", "--wait")...)...)},
		},
	}
	if l := c.Life; l != nil {
		p.Life = &lifeView{Decided: l.Decided, By: l.By, Note: l.Note, Link: l.Link, At: momentAt(l.At, in.now), Until: momentOf(l.Until, in.now)}
	}
	p.Evidence = evidence(&in.verdict.Evidence, in.now)
	for _, of := range []struct {
		prefix string
		facets []wire.Facet
	}{{"", in.facets.Facets}, {"header ", in.facets.Headers}, {"", in.facets.Paths}} {
		for i := range of.facets[:min(len(of.facets), maxFacets)] {
			f := of.facets[i]
			f.Name = of.prefix + f.Name
			switch {
			case f.Present == in.facets.Sample && len(f.Values) == 1:
				p.Shared = append(p.Shared, pair{f.Name, f.Values[0].Value})
			case f.Present == in.facets.Sample && len(f.Values) == 0: // a header that all have tells nothing
			default:
				p.Facets = append(p.Facets, facetOf(&f, in.facets.Sample, &filter))
			}
		}
	}
	p.Trend = trend(in.deaths, in.now)
	p.Samples = beside(in.samples, in.now)
	return p
}

// maxFacets bounds what is shown of each kind.
const maxFacets = 12

// evidence is the numbers behind a verdict, which it never hides.
func evidence(e *wire.Evidence, now time.Time) (all []pair) {
	all = append(all, pair{"delivered meanwhile", number(e.Delivered)}, pair{"failed meanwhile", number(e.Failed)},
		pair{"delivered of these kinds", number(e.KindDelivered)}, pair{"kinds in the sample", number(e.Kinds)})
	if e.Shared != "" {
		all = append(all, pair{"in common", fmt.Sprintf("%s (%.0f %%)", e.Shared, e.Share*100)})
	}
	if e.Breaker != "" {
		word := e.Breaker
		if e.NextProbe != nil {
			word += ", next probe " + momentAt(*e.NextProbe, now).Short
		}
		all = append(all, pair{"breaker", word})
	}
	if e.Frame != "" {
		all = append(all, pair{"frame", e.Frame})
	}
	return append(all, pair{"looked at", fmt.Sprintf("%s, deliveries of %d min", number(e.Sample), e.Minutes)})
}

// facetOf shows a facet; with a filter its values lead to the messages that have them.
func facetOf(f *wire.Facet, sample int, filter *wire.Filter) facetView {
	v := facetView{Name: f.Name, Present: fmt.Sprintf("in %s of %s", number(f.Present), number(sample))}
	for i, value := range f.Values {
		if i == maxFacetValues {
			break
		}
		one := facetValue{Value: value.Value, Count: value.Count, Of: max(sample, 1), Percent: value.Count * 100 / max(sample, 1)}
		if filter != nil && f.Name == "kind" {
			narrow := *filter
			narrow.Kind = value.Value
			one.Path = withQuery("/dead", narrow.Parameters())
		}
		v.Values = append(v.Values, one)
	}
	v.Others = max(f.Distinct-len(v.Values), 0)
	return v
}

const maxFacetValues = 5

// trend draws the deaths of the last hour, and those of the last three days where there are any.
func trend(buckets []wire.DeathBucket, now time.Time) (all []trendView) {
	for _, t := range []struct {
		label string
		width time.Duration
		n     int
	}{{"last 60 minutes", time.Minute, 60}, {"last 72 hours", time.Hour, 72}} {
		v := trendView{Label: t.label, Values: make([]int64, t.n)}
		end := now.Truncate(t.width)
		for _, b := range buckets {
			if b.Width == "1d" || b.Width == "1h" && t.width == time.Minute {
				continue
			}
			if ago := int(end.Sub(b.Start.Truncate(t.width)) / t.width); ago >= 0 && ago < t.n {
				v.Values[t.n-1-ago] += b.Count
				v.Total += b.Count
			}
		}
		if v.Total > 0 {
			all = append(all, v)
		}
	}
	return all
}

const sampleLines = 40

// beside shows messages side by side, with the lines that not all of them have.
func beside(samples []wire.Message, now time.Time) (all []sampleView) {
	names := map[int][]string{1: {"the only one"}, 2: {"oldest", "newest"}, 3: {"oldest", "between", "newest"}}[len(samples)]
	seen := make(map[string]int)
	bodies := make([][]string, len(samples))
	for i := range samples {
		bodies[i] = slices.DeleteFunc(samples[i].Lines(), func(line string) bool { return line == "" })
		once := make(map[string]bool)
		for _, line := range bodies[i] {
			if line = strings.TrimSuffix(line, ","); !once[line] {
				once[line] = true
				seen[line]++
			}
		}
	}
	for i := range samples {
		m := &samples[i]
		v := sampleView{Name: names[i], ID: m.ID, Path: messagePath(m.Queue, m.ID), Died: momentOf(m.DiedAt, now), Hidden: m.Hidden}
		for n, line := range bodies[i] {
			if n == sampleLines {
				v.Cut = true
				break
			}
			v.Lines = append(v.Lines, sampleLine{line, seen[strings.TrimSuffix(line, ",")] < len(samples)})
		}
		all = append(all, v)
	}
	return all
}

// middle is the moment between two, from which on a message between them is looked for.
func middle(first, last time.Time) string {
	return first.Add(last.Sub(first) / 2).UTC().Format(time.RFC3339Nano)
}

func oneOf(queue, signature string, limit int) url.Values {
	return url.Values{"queue": {queue}, "signature": {signature}, "limit": {strconv.Itoa(limit)}}
}
