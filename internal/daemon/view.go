package daemon

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/jsonmask"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
	"github.com/redrive/redrive/plan"
)

// view is what a search by text or header looks at: what the caller may see, as it
// shows. Whoever finds messages by a value that they may not see can guess it, digit by
// digit.
type view string

const (
	viewAll     view = ""        // everything: an administrator
	viewPayload view = "payload" // bodies, headers and errors, with what is masked hidden
	viewErrors  view = "errors"  // errors, with what is masked hidden
)

// views are how a store with an index of texts looks for text.
var views = map[view]redrive.View{viewAll: redrive.ViewAll, viewPayload: redrive.ViewShown, viewErrors: redrive.ViewErrors}

// view returns what the caller's searches look at.
func (c *caller) view() view {
	switch {
	case c.may(config.ScopeAdmin):
		return viewAll
	case c.may(config.ScopeReadPayload):
		return viewPayload
	}
	return viewErrors
}

// search refuses a filter on what the caller may not see at all.
func (c *caller) search(q *redrive.Query) error {
	if (q.Header != "" || q.Body != "") && c.view() == viewErrors {
		return problem.New(http.StatusForbidden, "forbidden", "The token does not allow this", "a filter by body or header needs the scope "+string(config.ScopeReadPayload),
			"add the scope to the token, or filter by something else")
	}
	return nil
}

// hides reports whether a view keeps something back that a query may look at.
func (a *app) hides(v view, q *redrive.Query) bool {
	if v == viewAll || q.Text == "" && q.Body == "" && q.Header == "" {
		return false
	}
	if v == viewErrors {
		return true
	}
	return !a.masksOver(q.Queue).none()
}

// finder returns the store as a view shows it to searches, or nil for an unknown view.
func (a *app) finder(v view) plan.Finder {
	switch v {
	case viewAll:
		return a.store
	case viewPayload, viewErrors:
		return &seen{a, v}
	}
	return nil
}

// seen is a store in which text and headers are found only as they show. The store
// itself gets the rest of the query: what it examined, where a page ends and how long
// that took then tell nothing of what is hidden.
type seen struct {
	app  *app
	view view
}

// weighed is how many bytes of a body a search counts like one more entry, so that
// large bodies are not read by the gigabyte.
const weighed = 4 << 10

// passes reports whether the store itself looks for what a query selects only as it shows.
func (s *seen) passes(q *redrive.Query) bool {
	rest := *q
	if s.app.store.Caps().Texts {
		rest.Text, q.View = "", views[s.view]
	}
	return !s.app.hides(s.view, &rest)
}

// Find implements plan.Finder.
func (s *seen) Find(ctx context.Context, q redrive.Query) (driver.Page, error) {
	if s.passes(&q) {
		return s.app.store.Find(ctx, q)
	}
	bodies, limit := q.Bodies, q.PageLimit()
	l := s.look(q)
	var out driver.Page
	for more := true; more && len(out.Entries) < limit; {
		var found []redrive.Entry
		var err error
		if found, more, err = l.next(ctx, limit-len(out.Entries)); err != nil {
			return driver.Page{}, err
		}
		for _, e := range found {
			if !bodies {
				e.Body, e.Headers, e.Original, e.History = nil, nil, nil, redrive.History{Count: e.History.Count}
			}
			out.Entries = append(out.Entries, e)
		}
	}
	out.Next, out.Examined = l.query.After, l.looked
	out.Complete = out.Next == "" || len(out.Entries) == limit
	return out, nil
}

// Causes implements plan.Finder.
func (s *seen) Causes(ctx context.Context, q redrive.Query) ([]driver.Cause, bool, error) {
	if s.passes(&q) {
		return s.app.store.Causes(ctx, q)
	}
	limit := q.PageLimit()
	q.State, q.After = redrive.StateDead, ""
	l := s.look(q)
	var all driver.Grouping
	for more := true; more; {
		var found []redrive.Entry
		var err error
		if found, more, err = l.next(ctx, wholePage); err != nil {
			return nil, false, err
		}
		for i := range found {
			all.Add(&found[i])
		}
	}
	list, complete := all.Causes(limit)
	return list, complete && l.query.After == "", nil
}

// Count implements plan.Finder.
func (s *seen) Count(ctx context.Context, q redrive.Query) (driver.Count, error) {
	if s.passes(&q) {
		return s.app.store.Count(ctx, q)
	}
	return driver.CountFound(ctx, s.Find, q)
}

// lookout goes through what a query selects but for its text, body and header, and picks what
// has these as it shows.
type lookout struct {
	*seen
	query  redrive.Query // of the store; After is how far it got
	hidden redrive.Query // what of it may look at something hidden
	left   int           // how much may still be looked at
	looked int
	masks  map[string]*masks
}

func (s *seen) look(q redrive.Query) *lookout {
	l := &lookout{seen: s, query: q, hidden: q, left: redrive.Examined, masks: make(map[string]*masks)}
	l.query.Text, l.query.Body, l.query.Header, l.query.View, l.query.Bodies = "", "", "", redrive.ViewAll, true
	l.hidden.View = views[s.view]
	return l
}

// next reads a few entries and returns those that match, at most limit, and whether to
// go on. A page of the store can only be left at its end: if more match, a shorter one is
// read again.
func (l *lookout) next(ctx context.Context, limit int) (found []redrive.Entry, more bool, err error) {
	for l.query.Limit = wholePage; ; {
		page, err := l.app.store.Find(ctx, l.query)
		if err != nil {
			return nil, false, err
		}
		found = found[:0]
		end := slices.IndexFunc(page.Entries, func(e redrive.Entry) bool {
			match := l.matches(&e)
			if match && len(found) < limit {
				found = append(found, e)
				return false
			}
			return match
		})
		if end >= 0 {
			l.query.Limit = end
			continue
		}
		for i := range page.Entries {
			l.left -= 1 + len(page.Entries[i].Body)/weighed
		}
		l.looked += len(page.Entries)
		l.query.After = page.Next
		return found, page.Next != "" && page.Complete && l.left > 0, nil
	}
}

// matches reports whether an entry has the text and the header, as it shows.
func (l *lookout) matches(e *redrive.Entry) bool {
	m, ok := l.masks[e.Queue]
	if !ok {
		m = l.app.masksOf(e.Queue)
		l.masks[e.Queue] = m
	}
	payload := l.view == viewPayload
	if l.hidden.Header != "" && !(payload && m.hasHeader(e.Headers, l.hidden.Header)) {
		return false
	}
	if l.hidden.Body != "" {
		if body, _ := m.body(e.Body); !payload || !bytes.Contains(body, []byte(l.hidden.Body)) {
			return false
		}
	}
	masking := l.app.masking()
	return l.hidden.Text == "" || masking.HasText(&l.hidden, e.Queue, e.History.Latest())
}

// hasHeader looks for NAME or NAME=VALUE.
func (k *masks) hasHeader(all redrive.Headers, want string) bool {
	name, value, valued := strings.Cut(want, "=")
	return slices.ContainsFunc(all, func(h redrive.Header) bool {
		return h.Name == name && (!valued || !k.header(name) && string(h.Value) == value)
	})
}

// planView returns the view that a plan keeps, for a query that the caller asks for.
func planView(who *caller, q *redrive.Query) string {
	if q.Text == "" && q.Body == "" && q.Header == "" {
		return ""
	}
	return string(who.view())
}

// planOf returns a plan as the caller may see it: without what it searches for, if it
// looks at more than the caller may, and with what is masked of errors that it tells of.
func (a *app) planOf(p *plan.Plan, who *caller) wire.Plan {
	out := wire.PlanOf(p)
	if own := who.view(); out.Request.Filter != nil && own != view(p.Request.View) && a.hides(own, &p.Request.Query) {
		f := out.Request.Filter
		for _, text := range []*string{&f.Text, &f.Body} {
			if *text != "" {
				*text = jsonmask.Hidden
			}
		}
		switch name, _, valued := strings.Cut(f.Header, "="); {
		case own == viewErrors && f.Header != "":
			f.Header = jsonmask.Hidden
		case valued:
			f.Header = fmt.Sprintf("%s=%s", name, jsonmask.Hidden)
		}
	}
	if len(out.Request.Repair) > 0 && !who.may(config.ScopeReadPayload) {
		out.Request.Repair = hiddenRule(out.Request.Repair)
	}
	out.Problem, _ = a.masksOver("").text(out.Problem)
	return out
}
