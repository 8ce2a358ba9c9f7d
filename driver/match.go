package driver

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/redrive/redrive"
)

// Match reports whether a query selects an entry, which must be whole: with body, headers
// and failures.
func Match(q *redrive.Query, e *redrive.Entry) bool {
	if q.State != 0 && q.State != e.State || !MatchMessage(q, e) {
		return false
	}
	latest := e.History.Latest()
	waits := q.State == redrive.StateWaiting && q.Reason == 0
	switch {
	case q.Reason == 0 && q.Signature == "":
	case e.State != redrive.StateDead && !waits, q.Reason != 0 && q.Reason != e.Reason,
		q.Signature != "" && (latest == nil || q.Signature != latest.Signature):
		return false
	}
	return q.Text == "" || (*Masks)(nil).HasText(q, e.Queue, latest)
}

// MatchMessage is Match for what the message itself carries.
func MatchMessage(q *redrive.Query, e *redrive.Entry) bool {
	at := e.PublishedAt
	if e.State == redrive.StateDead {
		at = e.DiedAt
	}
	switch {
	case q.Queue != "" && q.Queue != e.Queue,
		q.Kind != "" && q.Kind != e.Kind,
		q.Key != "" && q.Key != e.Key,
		q.Plan != "" && q.Plan != e.Plan,
		q.NotPlan != "" && q.NotPlan == e.Plan,
		!q.Since.IsZero() && at.Before(q.Since),
		!q.Until.IsZero() && at.After(q.Until):
		return false
	}
	if q.Retrying && (e.State != redrive.StateWaiting || e.Lane != redrive.LaneRetry) {
		return false
	}
	if q.Edited && e.Original == nil || q.Body != "" && !bytes.Contains(e.Body, []byte(q.Body)) {
		return false
	}
	return q.Header == "" || hasHeader(e.Headers, q.Header)
}

// hasHeader looks for the NAME or NAME=VALUE of a query.
func hasHeader(all redrive.Headers, want string) bool {
	name, value, valued := strings.Cut(want, "=")
	return slices.ContainsFunc(all, func(h redrive.Header) bool {
		return h.Name == name && (!valued || string(h.Value) == value)
	})
}

// Show sets what a cause shows of a failure.
func (c *Cause) Show(f *redrive.Failure) {
	c.Type, c.Message, c.Version, c.Status, c.Answer = "", "", "", "", ""
	if f == nil {
		return
	}
	c.Message, c.Version, c.Status, c.Answer = f.Message, f.Version, f.Details[DetailStatus], f.Details[DetailAnswer]
	if len(f.Types) > 0 {
		c.Type = f.Types[0]
	}
}

// Grouping gathers dead letters by their causes. The zero value is ready.
type Grouping struct {
	byCause map[causeKey]*Cause
}

type causeKey struct {
	queue, signature string
	reason           redrive.Reason
}

// Add adds a dead letter, which must have its failures.
func (g *Grouping) Add(e *redrive.Entry) {
	key := causeKey{queue: e.Queue, reason: e.Reason}
	latest := e.History.Latest()
	if latest != nil {
		key.signature = latest.Signature
	}
	c := g.byCause[key]
	if c == nil {
		if g.byCause == nil {
			g.byCause = make(map[causeKey]*Cause)
		}
		c = &Cause{Queue: key.queue, Reason: key.reason, Signature: key.signature, First: e.DiedAt}
		g.byCause[key] = c
	}
	c.Count++
	if e.DiedAt.Before(c.First) {
		c.First = e.DiedAt
	}
	if !e.DiedAt.Before(c.Last) {
		c.Last, c.Example = e.DiedAt, e.Ref()
		c.Show(latest)
	}
}

// Causes returns the largest causes, and whether these are all.
func (g *Grouping) Causes(limit int) (list []Cause, all bool) {
	return g.Page(&redrive.Query{Limit: limit})
}

// Page returns the causes of a page; see [PageCauses].
func (g *Grouping) Page(q *redrive.Query) (list []Cause, all bool) {
	list = make([]Cause, 0, len(g.byCause))
	for _, c := range g.byCause {
		list = append(list, *c)
	}
	return PageCauses(list, q)
}

// SortCauses puts the largest causes first.
func SortCauses(list []Cause) {
	slices.SortFunc(list, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), compareNames(&a, &b))
	})
}

func compareNames(a, b *Cause) int {
	return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Signature, b.Signature))
}
