package ui

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/redrive/redrive/internal/wire"
)

func showCause(v *visit) error {
	v.title = "Cause"
	signature, queue := v.r.PathValue("signature"), v.query.Get("queue")
	ask := url.Values{}
	if queue != "" {
		ask.Set("queue", queue)
	}
	in := causeIn{now: v.now}
	var err error
	if in.verdict, err = get[wire.Verdict](v, at("causes", signature, "verdict"), ask); err != nil {
		return err
	}
	c := &in.verdict.Cause
	ask.Set("queue", c.Queue)
	if in.facets, err = get[wire.Facets](v, at("causes", signature, "facets"), ask); err != nil {
		return err
	}
	ask.Set("reason", c.Reason.String())
	deaths, err := get[wire.List[wire.Deaths]](v, at("causes", signature, "deaths"), ask)
	if err != nil {
		return err
	}
	for i := range deaths.Items {
		in.deaths = append(in.deaths, deaths.Items[i].Buckets...)
	}
	if in.samples, err = v.samples(c); err != nil {
		return err
	}
	p := viewCause(&in)
	filter := wire.Filter{Queue: c.Queue, Signature: c.Signature}
	here := "/causes/" + url.PathEscape(signature)
	p.Actions = []action{
		v.press("Try 10", "/redrive", "redrive", append(hidden(&filter), field{"act", "try"})...),
		v.link("Redrive…", withQuery("/redrive", filter.Parameters()), "redrive").as("main"),
		v.link("Repair…", withQuery("/repairs/new", filter.Parameters()), "redrive", "read-payload"),
		v.link("Archive…", withQuery("/archive", filter.Parameters()), "redrive"),
		v.link("Drop…", withQuery("/drop", filter.Parameters()), "redrive", "purge").as("danger"),
	}
	if c.Life != nil {
		p.Actions = append(p.Actions, v.press("Take back “"+c.Life.Decided+"”", here, "redrive", field{"queue", c.Queue}, field{"state", wire.CauseNew}))
	}
	p.Ack = ackForm{Path: here, Form: v.form, Queue: c.Queue, Needs: v.lacks("redrive")}
	if c.Life != nil {
		p.Ack.Note, p.Ack.Link = c.Life.Note, c.Life.Link
	}
	v.title = strings.TrimSpace(p.Verdict.Word + " · " + c.Queue)
	v.show(http.StatusOK, "cause", p)
	return nil
}

// samples returns the oldest message of a cause, its newest, and one between.
func (v *visit) samples(c *wire.Cause) (all []wire.Message, err error) {
	var ids []string
	note := func(id string) {
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	first := func(query url.Values) (string, error) {
		list, err := get[wire.List[wire.Message]](v, at("dead-letters"), query)
		if err != nil || len(list.Items) == 0 {
			return "", err
		}
		return list.Items[0].ID, nil
	}
	oldest, err := first(oneOf(c.Queue, c.Signature, 1))
	if err != nil {
		return nil, err
	}
	note(oldest)
	if c.Count > 2 && c.Last.After(c.First) {
		query := oneOf(c.Queue, c.Signature, 1)
		query.Set("since", middle(c.First, c.Last))
		between, err := first(query)
		if err != nil {
			return nil, err
		}
		note(between)
	}
	_, newest, _ := strings.Cut(c.Example, "/")
	note(newest)
	for _, id := range ids {
		m, err := get[wire.Message](v, at("queues", c.Queue, "dead-letters", id), nil)
		if named(err, "not-found") || named(err, "state") { // it was redriven meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// hidden returns a filter as the fields of a form.
func hidden(f *wire.Filter) (all []field) {
	given := f.Parameters()
	for _, name := range wire.FieldNames() {
		if value := given.Get(name); value != "" {
			all = append(all, field{name, value})
		}
	}
	return all
}

// changeCause keeps what a person decided of a cause.
func changeCause(v *visit) error {
	signature := v.r.PathValue("signature")
	c := wire.CauseChange{Queue: v.value("queue"), State: v.value("state"), Note: v.value("note"), Link: v.value("link")}
	switch c.State { // the form has the fields of all of them
	case wire.CauseAcknowledged:
		c.Until = v.value("until")
	case wire.CauseIgnored:
		if err := ignoreUntil(&c, v.value("more"), v.value("rate")); err != nil {
			return err
		}
	}
	if _, err := send[wire.CauseLife](v, http.MethodPut, at("causes", signature), c); err != nil {
		return err
	}
	return v.redirect(causePath(c.Queue, signature))
}

// ignoreUntil reads until when a cause is ignored.
func ignoreUntil(c *wire.CauseChange, more, rate string) (err error) {
	if more != "" {
		if c.More, err = strconv.ParseInt(more, 10, 64); err != nil || c.More < 1 {
			return bad("more "+strconv.Quote(more), "use a number of messages, or leave it empty")
		}
	}
	if rate != "" {
		if c.Rate, err = strconv.ParseFloat(rate, 64); err != nil || c.Rate <= 0 {
			return bad("rate "+strconv.Quote(rate), "use a number a minute, or leave it empty")
		}
	}
	return nil
}
