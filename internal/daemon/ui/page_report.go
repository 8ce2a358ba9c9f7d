package ui

import (
	"maps"
	"net/http"
	"net/url"

	"github.com/redrive/redrive/internal/wire"
)

// reportPage is what happened since a time, to hand over.
type reportPage struct {
	Headline     string
	Since, Until moment
	Given        string // since when, as it was asked for
	Plan         string
	PlanPath     string
	Died         string
	Dead         int64
	Causes       []reportCause
	CausesMore   bool
	Plans        []reportPlan
	Actions      []auditRow
	More, Hidden bool // of the actions
	Line         ledgerLine
	Queues       []string // nothing of others is in it
	Markdown     string
	Command      string
}

type reportCause struct {
	Died string
	Row  causeRow
	Gone bool // nothing is dead of it any more
	Life *wire.CauseLife
}

type reportPlan struct {
	Row   planRow
	Stats []pair
	Rule  []string
	Why   string
}

// Rows that are shown; the Markdown has more.
const (
	reportCauses = 50
	reportRows   = 50
)

func viewReport(v *visit, r *wire.Report, given string) reportPage {
	atLeast := func(n int64, more bool) string {
		if more {
			return "at least " + number(n)
		}
		return number(n)
	}
	p := reportPage{
		Since: v.moment(r.Since), Until: v.moment(r.Until), Given: given, Plan: r.Plan, PlanPath: planPath(r.Plan), Died: atLeast(r.Died, r.DiedMore || r.CausesMore), Dead: r.Dead,
		CausesMore: r.CausesMore || len(r.Causes) > reportCauses, More: r.ActionsMore || len(r.Actions) > reportRows, Hidden: r.ActionsHidden, Queues: r.Queues,
		Line: viewLedgerLine(r.Ledger, r.Until, nil, v.now), Markdown: withQuery("/report.md", v.query), Command: command(reportWords(given, r.Plan)...),
	}
	p.Headline = p.Died + " died, " + number(r.Dead) + " are still dead"
	for i := range r.Causes[:min(len(r.Causes), reportCauses)] {
		c := &r.Causes[i]
		p.Causes = append(p.Causes, reportCause{Died: atLeast(c.Died, c.DiedMore), Row: causeRowOf(&c.Cause, "", v.now), Gone: c.Count == 0, Life: c.Life})
	}
	for i := range r.Plans[:min(len(r.Plans), reportRows)] {
		page := viewPlan(&r.Plans[i], v.now)
		p.Plans = append(p.Plans, reportPlan{page.Row, page.Stats, page.Rule, r.Plans[i].Request.Reason})
	}
	p.Actions = viewAudit(r.Actions[:min(len(r.Actions), reportRows)], nil, v.now).Rows
	return p
}

// reportWords is the command that writes the same report.
func reportWords(since, plan string) []string {
	words := []string{"redrive", "report"}
	if since != "" {
		words = append(words, "--since", since)
	}
	if plan != "" {
		words = append(words, "--plan", plan)
	}
	return words
}

func showReport(v *visit) error {
	v.title = "Report"
	r, err := get[wire.Report](v, at("report"), v.query)
	if err != nil {
		return err
	}
	v.show(http.StatusOK, "report", viewReport(v, &r, v.query.Get("since")))
	return nil
}

// sendReport is the report as Markdown, for a chat or a ticket.
func sendReport(v *visit) error {
	ask := url.Values{"format": {"markdown"}}
	maps.Copy(ask, v.query)
	a, err := v.answerOf(http.MethodGet, at("report")+"?"+ask.Encode(), nil)
	if err != nil {
		return err
	}
	h := v.w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Disposition", `attachment; filename="report-`+v.now.Format("2006-01-02T1504")+`.md"`)
	_, _ = v.w.Write(a.body.Bytes()) // whoever left does not need it
	return nil
}
