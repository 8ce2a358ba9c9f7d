// Package report writes a report on what happened as Markdown and as HTML.
package report

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive/internal/text"
	"github.com/redrive/redrive/internal/wire"
)

// Rows that are written; the JSON has all.
const (
	maxCauses  = 100
	maxActions = 200
	maxText    = 300 // bytes of a text of others
)

// document is a report before it is written. Texts of others stand in quoted values only.
type document struct {
	Title    string
	Summary  []string
	Sections []section
}

type section struct {
	Title string
	Lines []line
	Head  []string
	Rows  [][]value
	After string
}

// line is a name with a value.
type line struct {
	Name  string
	Value value
}

// value is a text of ours, or, quoted, one of others.
type value struct {
	Text   string
	Quoted bool
}

func plain(format string, args ...any) value { return value{Text: fmt.Sprintf(format, args...)} }

// quoted is a text of others, in which nothing stays invisible.
func quoted(s string) value { return value{text.Visible(text.Clean(s, maxText)), true} }

func number(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func atLeast(n int64, more bool) string {
	if more {
		return "at least " + number(n)
	}
	return number(n)
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

func messages(n int64) string {
	if n == 1 {
		return "1 message"
	}
	return number(n) + " messages"
}

func counted(n int, what string) string { return text.Plural(n, what) }

// documentOf says what a report has to say.
func documentOf(r *wire.Report) document {
	d := document{Title: fmt.Sprintf("Report %s to %s UTC", moment(r.Since), moment(r.Until)), Summary: summary(r)}
	d.Sections = append(d.Sections, causes(r))
	for i := range r.Plans {
		d.Sections = append(d.Sections, planSection(&r.Plans[i]))
	}
	d.Sections = append(d.Sections, actions(r), ledger(r))
	return d
}

func summary(r *wire.Report) (lines []string) {
	stopped := 0
	for i := range r.Plans {
		if r.Plans[i].State == wire.PlanStopped {
			stopped++
		}
	}
	first := messages(r.Died) + " died"
	if r.DiedMore {
		first = "At least " + first
	}
	first += fmt.Sprintf(", of %s. %s still dead", counted(r.CausesDied, "cause"), messages(r.Dead))
	if r.Dead > 0 {
		first += ", of " + counted(r.CausesDead, "cause")
	}
	lines = append(lines, first+".")
	second := counted(len(r.Plans), "plan")
	if stopped > 0 {
		second += fmt.Sprintf(", %d of them stopped and waiting for a person", stopped)
	}
	balance := "The ledger balances."
	if !r.Ledger.Balanced {
		balance = "THE LEDGER DOES NOT BALANCE."
	}
	return append(lines, second+". "+balance)
}

func causes(r *wire.Report) section {
	s := section{Title: "Causes", Head: []string{"died", "still dead", "queue", "what happened", "first", "last", "state", "signature"}}
	for i := range r.Causes[:min(len(r.Causes), maxCauses)] {
		c := &r.Causes[i]
		what := quoted(happened(&c.Cause))
		switch {
		case c.Reason == 0:
			what = plain("other causes of the queue together: the first 5,000 are counted one by one")
		case c.Count == 0:
			what = plain("%s; nothing is dead of it any more", c.Reason)
		}
		s.Rows = append(s.Rows, []value{plain("%s", atLeast(c.Died, c.DiedMore)), plain("%s", number(c.Count)), quoted(c.Queue), what,
			plain("%s", moment(c.First)), plain("%s", moment(c.Last)), plain("%s", state(&c.Cause)), quoted(c.Signature)})
		if l := c.Life; l != nil {
			said := plain("%s", moment(l.At))
			s.Lines = append(s.Lines, line{"cause", quoted(c.Queue + " " + c.Signature)}, line{"  " + l.Decided, said}, line{"  by", quoted(l.By)}, line{"  note", quoted(l.Note)}, line{"  incident", quoted(l.Link)}, line{"  by plan", quoted(l.Plan)}, line{"  on version", quoted(l.Version)})
		}
	}
	if more := len(r.Causes) - maxCauses; more > 0 || r.CausesMore {
		s.After = "There are more causes; the JSON has " + number(int64(len(r.Causes))) + "."
	}
	if r.CausesUnknown {
		s.After = strings.TrimSpace(s.After + " Of some messages of the plan the cause is not known any more.")
	}
	return s
}

// happened is what a target answered, or else the error.
func happened(c *wire.Cause) string {
	switch {
	case c.Answer != "":
		return fmt.Sprintf("%d %s", c.Status, c.Answer)
	case c.Type != "":
		return c.Type + ": " + c.Message
	}
	return c.Message
}

func state(c *wire.Cause) string {
	words := []string{}
	if c.State != "" {
		words = append(words, c.State)
	}
	switch {
	case c.Count > 0 && c.Growing:
		words = append(words, "growing")
	case c.Count > 0 && c.Quiet:
		words = append(words, "quiet")
	}
	return strings.Join(words, ", ")
}

func planSection(p *wire.Plan) section {
	s := section{Title: "Plan: " + p.Request.Action + ", " + p.State}
	add := func(name string, v value) {
		if v.Text != "" {
			s.Lines = append(s.Lines, line{name, v})
		}
	}
	add("id", quoted(p.ID))
	add("by", quoted(p.Actor))
	add("reason", quoted(p.Request.Reason))
	add("made", plain("%s", moment(p.CreatedAt)))
	if p.EndedAt != nil {
		add("ended", plain("%s", moment(*p.EndedAt)))
	}
	switch f := p.Request.Filter; {
	case p.Request.Restore != "":
		add("undoes", quoted(p.Request.Restore))
	case f == nil:
		add("of", plain("named messages"))
	case f.String() == "":
		add("of", plain("every dead letter of every queue"))
	default:
		add("of", quoted(f.String()))
	}
	add("to", quoted(p.Request.To))
	for i := range p.Request.Repair {
		rule, err := json.Marshal(&p.Request.Repair[i])
		if err == nil {
			add(fmt.Sprintf("rule %d", i+1), quoted(string(rule)))
		}
	}
	add("changed", plain("%s of %s", number(p.Done), atLeast(p.Total, p.TotalMore)))
	if g := p.Progress; g == nil && p.Done > 0 && (p.Request.Action == "redrive" || p.Request.Action == "retry") {
		add("became", plain("not looked at; redrive plans show tells"))
	} else if g != nil {
		is := ""
		if g.Taken > 0 {
			is = fmt.Sprintf(", %s changed by others since", number(g.Taken))
		}
		if !g.Complete {
			is += " (there is more than was looked at)"
		}
		add("became", plain("%s delivered, %s dead again, %s waiting%s", number(g.Delivered), number(g.DeadAgain), number(g.Waiting), is))
	}
	if c := p.Canary; c != nil {
		add("canary", plain("%d: %d delivered, %d dead again, %d waiting", c.Size, c.Delivered, c.DeadAgain, c.Waiting))
	}
	for _, name := range slices.Sorted(maps.Keys(p.Errors)) {
		add("refused", quoted(fmt.Sprintf("%s: %s", number(p.Errors[name]), name)))
	}
	add("problem", quoted(p.Problem))
	return s
}

func actions(r *wire.Report) section {
	s := section{Title: "Who did what"}
	switch {
	case r.ActionsHidden:
		s.After = "The audit log needs the scope admin."
		return s
	case len(r.Actions) == 0:
		s.After = "Nobody changed anything."
		return s
	}
	s.Head = []string{"at", "who", "action", "of", "count", "outcome", "note"}
	for i := range r.Actions[:min(len(r.Actions), maxActions)] {
		e := &r.Actions[i]
		of := e.Queue
		if e.Message != "" {
			of += "/" + e.Message
		}
		if e.Plan != "" {
			of = strings.TrimSpace(of + " plan " + e.Plan)
		}
		count := ""
		if e.Count != 0 {
			count = atLeast(e.Count, e.CountMore)
		}
		s.Rows = append(s.Rows, []value{plain("%s", moment(e.At)), quoted(e.Actor), quoted(e.Action), quoted(of), plain("%s", count), quoted(e.Outcome), quoted(e.Note)})
	}
	if len(r.Actions) > maxActions || r.ActionsMore {
		s.After = "There are more: redrive audit --since " + r.Since.Format(time.RFC3339)
	}
	return s
}

func ledger(r *wire.Report) section {
	s := section{Title: "Ledger", Head: []string{"queue", "entered", "waiting", "dead", "done", "dropped", "archived", "moved out", ""}}
	for i := range r.Ledger.Queues {
		a := &r.Ledger.Queues[i]
		is := plain("balances")
		if !a.Balanced {
			is = quoted(strings.TrimSpace(fmt.Sprintf("off by %s %s", number(a.Imbalance), strings.Join(a.Problems, "; "))))
		}
		row := []value{quoted(a.Queue)}
		for _, n := range []int64{a.Ledger.Entered, a.Waiting, a.Dead, a.Ledger.Done, a.Ledger.Dropped, a.Ledger.Archived, a.Ledger.MovedOut} {
			row = append(row, plain("%s", number(n)))
		}
		s.Rows = append(s.Rows, append(row, is))
	}
	return s
}

// Markdown writes a report as Markdown with tables.
func Markdown(w io.Writer, r *wire.Report) error {
	d := documentOf(r)
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n", d.Title)
	for _, line := range d.Summary {
		fmt.Fprintf(&b, "\n%s\n", line)
	}
	for i := range d.Sections {
		s := &d.Sections[i]
		fmt.Fprintf(&b, "\n## %s\n", s.Title)
		if len(s.Rows) > 0 {
			fmt.Fprintf(&b, "\n| %s |\n|%s\n", strings.Join(s.Head, " | "), strings.Repeat("---|", len(s.Head)))
			for _, row := range s.Rows {
				for _, v := range row {
					fmt.Fprintf(&b, "| %s ", strings.ReplaceAll(v.markdown(), "|", `\|`))
				}
				b.WriteString("|\n")
			}
		}
		if len(s.Lines) > 0 {
			b.WriteString("\n")
		}
		for _, l := range s.Lines {
			if l.Value.Text != "" {
				name, nested := strings.CutPrefix(l.Name, "  ")
				if nested {
					b.WriteString("  ")
				}
				fmt.Fprintf(&b, "- %s: %s\n", name, l.Value.markdown())
			}
		}
		if s.After != "" {
			fmt.Fprintf(&b, "\n%s\n", s.After)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// markdown writes what is quoted as code, in which nothing has a meaning.
func (v value) markdown() string {
	if !v.Quoted || v.Text == "" {
		return v.Text
	}
	fence := "`"
	for strings.Contains(v.Text, fence) {
		fence += "`"
	}
	if len(fence) > 1 {
		return fence + " " + v.Text + " " + fence
	}
	return fence + v.Text + fence
}

const style = `body{font-family:system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
td,th{border:1px solid #999;padding:.25rem .5rem;text-align:left;vertical-align:top}code{overflow-wrap:anywhere}`

// Policy is the content policy of [HTML]: its own style, and nothing else.
var Policy = func() string {
	sum := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; frame-ancestors 'none'"
}()

var page = template.Must(template.New("report").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{{.Title}}</title>
<style>` + style + `</style></head><body>
<h1>{{.Title}}</h1>
{{range .Summary}}<p>{{.}}</p>
{{end}}{{range .Sections}}<h2>{{.Title}}</h2>
{{if .Rows}}<table><thead><tr>{{range .Head}}<th scope="col">{{.}}</th>{{end}}</tr></thead><tbody>
{{range .Rows}}<tr>{{range .}}<td>{{template "value" .}}</td>{{end}}</tr>
{{end}}</tbody></table>
{{end}}{{if .Lines}}<ul>{{range .Lines}}{{if .Value.Text}}<li>{{.Name}}: {{template "value" .Value}}</li>
{{end}}{{end}}</ul>
{{end}}{{with .After}}<p>{{.}}</p>
{{end}}{{end}}</body></html>
{{define "value"}}{{if and .Quoted .Text}}<code>{{.Text}}</code>{{else}}{{.Text}}{{end}}{{end}}`))

// HTML writes a report as one page without scripts.
func HTML(w io.Writer, r *wire.Report) error { return page.Execute(w, documentOf(r)) }
