package ui

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive/internal/linediff"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
	"github.com/redrive/redrive/plan"
)

// repairForm is the page on which many are repaired: a rule, what it would make of some of them, and
// then a plan.
type repairForm struct {
	Chips    []filterChip
	Hidden   []field
	Form     string
	Total    int64
	More     bool
	Examined int64
	Cutoff   moment
	Lines    []ruleLine
	Full     bool // there are as many operations as a rule may have
	Rate     string
	Why      string
	Rule     string // names the rule that was looked at
	Preview  *previewView
	Needs    string
	Problem  *problem.Problem
	Command  string
	Request  string
}

// ruleLine is an operation as it is typed.
type ruleLine struct {
	N                  int
	Ops                []option
	Where, Value, With string
}

// previewView is what a repair would make of a sample.
type previewView struct {
	Headline string
	Changed  int
	Refused  []pair
	Diffs    []diffView
}

// diffView is one of the sample.
type diffView struct {
	Name, Path string
	Lines      []string
}

// repairRate is how fast a repair goes if nothing else is typed: it asks no target.
const repairRate = "2000/s"

// unrepaired says why a repair would leave messages as they are, by the kind of the refusal.
var unrepaired = map[string]string{
	"unchanged": "lack the place, or are as wanted already", "not-json": "are not JSON", "name-taken": "have a member of the new name", "masked": "would tell what is masked",
}

func viewPreview(p *wire.Preview) *previewView {
	v := &previewView{Changed: p.Changed, Headline: fmt.Sprintf("would change %s of %s looked at", number(p.Changed), number(p.Looked))}
	if p.Changed > 0 {
		v.Headline += fmt.Sprintf(", by %+.0f bytes each", float64(p.After-p.Before)/float64(p.Changed))
	}
	for _, kind := range slices.Sorted(maps.Keys(p.Refused)) {
		v.Refused = append(v.Refused, pair{cmp.Or(unrepaired[kind], "would be refused: "+kind), number(p.Refused[kind])})
	}
	for i := range p.Diffs {
		before, after := &p.Diffs[i].Before, &p.Diffs[i].After
		v.Diffs = append(v.Diffs, diffView{before.ID, messagePath(before.Queue, before.ID), linediff.Lines(before.Lines(), after.Lines())})
	}
	return v
}

// ruleOps are the operations and what they are called.
var ruleOps = []string{"set", "set", "remove", "remove", "rename", "rename", "replace", "replace in texts", "header", "header", "kind", "kind"}

// rule reads the operations of the form, and returns them as they were typed, too. Lines without
// anything are left out.
func (v *visit) rule() (rule []plan.Operation, lines []ruleLine) {
	f := v.r.PostForm
	nth := func(name string, i int) string {
		if i < len(f[name]) {
			return f[name][i]
		}
		return ""
	}
	for i := range min(len(f["op"]), plan.MaxOperations) {
		where, value, with := strings.TrimSpace(nth("where", i)), nth("value", i), nth("with", i)
		if where == "" && value == "" {
			continue
		}
		op := nth("op", i)
		lines = append(lines, ruleLine{len(lines) + 1, options(op, ruleOps...), where, value, with})
		rule = append(rule, operation(op, where, value, with))
	}
	return rule, lines
}

// operation reads what was typed in a line. The API says what is wrong with it.
func operation(op, where, value, with string) plan.Operation {
	o := plan.Operation{Op: op, Path: where}
	switch op {
	case "set":
		if o.Value = json.RawMessage(value); !json.Valid(o.Value) {
			o.Value = jsonText(value)
		}
	case "rename":
		o.To = value
	case "replace":
		o.Match, o.With = value, with
	case "header":
		if o.Path, o.Name = "", where; value != "" {
			o.Value = jsonText(value)
		}
	case "kind":
		o.Value = jsonText(value)
	}
	return o
}

// jsonText is a text as JSON, in which only what must be is escaped.
func jsonText(s string) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a text always encodes
	return bytes.TrimSpace(b.Bytes())
}

// ruleFlags are a rule as flags of the command line.
func ruleFlags(rule []plan.Operation) (flags []string) {
	for i := range rule {
		o := &rule[i]
		switch o.Op {
		case "set":
			flags = append(flags, "--set", o.Path+"="+string(o.Value))
		case "remove":
			flags = append(flags, "--remove", o.Path)
		case "rename":
			flags = append(flags, "--rename", o.Path+"="+o.To)
		case "replace":
			between := "/"
			for _, other := range []string{"|", "#", "~", "\x01"} {
				if strings.Contains(o.Match+o.With, between) {
					between = other
				}
			}
			flags = append(flags, "--replace", o.Path+"="+between+o.Match+between+o.With+between)
		case "header":
			flags = append(flags, "--set-header", o.Name+"="+unquoted(o.Value))
		case "kind":
			flags = append(flags, "--set-kind", unquoted(o.Value))
		}
	}
	return flags
}

func unquoted(value json.RawMessage) (s string) {
	_ = json.Unmarshal(value, &s) // "" of what is no text
	return s
}

// digest names a rule for a filter, so that what is applied is what was looked at.
func digest(f *wire.Filter, rule []plan.Operation) string {
	b, err := json.Marshal(struct {
		Filter *wire.Filter
		Rule   []plan.Operation
	}{f, rule})
	if err != nil { // a set whose value is no JSON, which cannot be
		return ""
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:12])
}

func viewRepair(f *wire.Filter, run *wire.DryRun, rule []plan.Operation, lines []ruleLine, now time.Time) repairForm {
	p := repairForm{
		Chips: filterChips(f, ""), Hidden: hidden(f), Total: run.Total, More: run.More, Examined: run.Examined, Cutoff: momentAt(run.Cutoff, now),
		Lines: lines, Rate: repairRate,
	}
	if len(rule) > 0 {
		p.Command = command(slices.Concat([]string{"redrive", "dead", "repair"}, filterFlags(f), ruleFlags(rule), []string{"--wait"})...)
	}
	if run.Preview != nil {
		p.Preview, p.Rule = viewPreview(run.Preview), digest(f, rule)
	}
	if len(p.Lines) == 0 {
		p.Lines = []ruleLine{emptyLine(1)}
	}
	p.Full = len(p.Lines) >= plan.MaxOperations
	return p
}

func emptyLine(n int) ruleLine { return ruleLine{N: n, Ops: options("set", ruleOps...)} }

// repairForm makes the form, with a preview if there is a rule.
func (v *visit) repairForm(f *wire.Filter, rule []plan.Operation, lines []ruleLine) (p repairForm, err error) {
	var run wire.DryRun
	needs := v.lacks("redrive", "read-payload")
	req := request("redrive", f)
	if len(rule) > 0 {
		req = request("repair", f)
		req.Repair = rule
	}
	if needs == "" {
		run, err = v.dryRun(req)
	}
	p = viewRepair(f, &run, rule, lines, v.now)
	p.Form, p.Needs = v.form, needs
	return p, err
}

func showRepair(v *visit) error {
	v.title = "Repair"
	f := wire.FilterFrom(v.query)
	p, err := v.repairForm(&f, nil, nil)
	if err != nil {
		return err
	}
	v.show(http.StatusOK, "repair", p)
	return nil
}

// repairThese adds a line to the rule ("add"), shows what the rule would do, tries it on the ten oldest
// ("try"), or begins it ("apply") if it is the one that was looked at.
func repairThese(v *visit) error {
	v.title = "Repair"
	f := wire.FilterFrom(v.r.PostForm)
	rule, lines := v.rule()
	act := v.value("act")
	asked := rule
	if act == "add" {
		asked = nil
	}
	p, why := v.repairForm(&f, asked, lines)
	if act == "add" && !p.Full && len(lines) > 0 {
		p.Lines = append(p.Lines, emptyLine(len(p.Lines)+1))
	}
	p.Rate, p.Why = cmp.Or(v.value("rate"), repairRate), v.value("why")
	req := request("repair", &f)
	req.Repair, req.Rate, req.Reason = rule, p.Rate, p.Why
	p.Request = v.curl(http.MethodPost, at("plans"), req)
	switch {
	case p.Needs != "":
		return problem.New(http.StatusForbidden, "forbidden", "The token does not allow this", "a repair "+p.Needs, "")
	case why != nil:
	case act == "add":
	case len(rule) == 0:
		why = bad("there is no operation", "say what to change, such as: set $.schema_version 2")
	case act != "apply" && act != "try":
	case v.value("rule") != p.Rule:
		why = problem.New(http.StatusConflict, "rule", "This rule was not looked at yet", "below is what it would do", "look, and go on")
	default:
		if act == "try" {
			req.Filter, req.All = nil, false
			req.Refs, why = v.oldest(&f)
		}
		if why == nil {
			if why = v.create(req); why == nil {
				return nil
			}
		}
	}
	status := http.StatusOK
	if why != nil {
		if p.Problem = problem.Of(why); p.Problem.Internal() {
			return why
		}
		status = p.Problem.Status
	}
	v.show(status, "repair", p)
	return nil
}

// oldest names the few oldest of what a filter selects.
func (v *visit) oldest(f *wire.Filter) (refs []string, err error) {
	ask := f.Parameters()
	ask.Set("limit", strconv.Itoa(tries))
	list, err := get[wire.List[wire.Message]](v, at("dead-letters"), ask)
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, problem.New(http.StatusNotFound, "not-found", "There is nothing to try", "no dead letter matches any more", "")
	}
	for i := range list.Items {
		refs = append(refs, list.Items[i].Queue+"/"+list.Items[i].ID)
	}
	return refs, nil
}
