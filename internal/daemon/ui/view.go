package ui

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/text"
	"github.com/redrive/redrive/internal/wire"
)

// chip is a word with a shape and a colour: never the colour by itself.
type chip struct{ Word, Shape, Tone string }

// The tones of chips and notes.
const (
	toneBad  = "bad"
	toneWarn = "warn"
	toneOK   = "ok"
	toneInfo = "info"
)

// action is a button, or a link that looks like one.
type action struct {
	Label, Path string
	Class       string // main or danger
	Post        bool
	Needs       string // why it cannot be pressed; "": it can
	Form        string
	Fields      []field
}

// field is a hidden field of a form.
type field struct{ Name, Value string }

// link returns an action that leads to a page on which something may be changed.
func (v *visit) link(label, path string, scopes ...string) action {
	return action{Label: label, Path: path, Needs: v.lacks(scopes...)}
}

// press returns an action that changes something at once.
func (v *visit) press(label, path, scope string, fields ...field) action {
	return action{Label: label, Path: path, Post: true, Needs: v.lacks(scope), Form: v.form, Fields: fields}
}

// lacks says what keeps the caller from changing something; "": nothing.
func (v *visit) lacks(scopes ...string) string {
	for _, scope := range scopes {
		if !v.who.May(scope) {
			return "needs the scope " + scope
		}
	}
	if v.u.o.ReadOnly {
		return "the pages are read-only"
	}
	return ""
}

// as returns an action with another look.
func (a action) as(class string) action {
	a.Class = class
	return a
}

// verdictChip shows a verdict.
func verdictChip(verdict string) chip {
	switch verdict {
	case wire.VerdictDown:
		return chip{"target is down", "▼", toneBad}
	case wire.VerdictCredentials:
		return chip{"credentials", "◆", toneWarn}
	case wire.VerdictPoison:
		return chip{"poison data", "●", toneWarn}
	case wire.VerdictBug:
		return chip{"bug", "■", toneBad}
	case wire.VerdictUnclear:
		return chip{"unclear", "?", ""}
	}
	return chip{}
}

// stateChip shows how a cause stands.
func stateChip(c *wire.Cause) chip {
	switch {
	case c.State == wire.CauseRegressed:
		return chip{"regressed", "↺", toneBad}
	case c.State == wire.CauseAcknowledged && c.Life != nil:
		return chip{"acked by " + c.Life.By, "✓", toneInfo}
	case c.State == wire.CauseIgnored:
		return chip{"ignored", "–", ""}
	case c.State == wire.CauseResolved:
		return chip{"resolved", "✓", toneOK}
	case c.Growing:
		return chip{"growing", "▲", toneBad}
	case c.Quiet:
		return chip{"quiet", "–", ""}
	}
	return chip{"steady", "•", ""}
}

// planChip shows the state of a plan.
func planChip(state string) chip {
	switch state {
	case wire.PlanStopped:
		return chip{"stopped", "■", toneBad}
	case wire.PlanFailed:
		return chip{"failed", "✕", toneBad}
	case wire.PlanRunning:
		return chip{"running", "▶", toneInfo}
	case wire.PlanPaused:
		return chip{"paused", "‖", toneWarn}
	case wire.PlanDone:
		return chip{"done", "✓", toneOK}
	}
	return chip{state, "–", ""}
}

// whatHappened is a cause in one line: what the target said, else the error.
type whatHappened struct {
	Status int
	Text   string
}

func happened(c *wire.Cause) whatHappened {
	return whatHappened{c.Status, text.Clean(cmp.Or(c.Answer, c.Message, c.Type, c.Reason.String()), 160)}
}

// withQuery writes a path of a page with parameters.
func withQuery(path string, query url.Values) string {
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

func causePath(queue, signature string) string {
	return withQuery("/causes/"+url.PathEscape(signature), url.Values{"queue": {queue}})
}

func messagePath(queue, id string) string {
	return "/m/" + url.PathEscape(queue) + "/" + url.PathEscape(id)
}

func planPath(id string) string { return "/plans/" + url.PathEscape(id) }

func queuePath(queue string) string { return "/queues/" + url.PathEscape(queue) }

// hold is what keeps a queue from flowing.
type hold struct {
	chip
	Why   string
	Since moment
}

// holdsOf says what keeps a queue from flowing, here and now.
func holdsOf(q *wire.Queue, now time.Time) (all []hold) {
	add := func(word, shape, tone, why string, since *time.Time) {
		all = append(all, hold{chip{word, shape, tone}, why, momentOf(since, now)})
	}
	both := func(paused []wire.Paused, breakers []wire.Breaker, refused string) {
		for _, p := range paused {
			why := p.Reason
			if p.Target != "" {
				why = p.Target + ": " + why
			}
			if p.Until != nil {
				why += ", until " + momentAt(*p.Until, now).Short
			}
			add("paused", "‖", toneWarn, why, &p.Since)
		}
		for _, b := range breakers {
			if b.State == engine.BreakerClosed {
				continue
			}
			why := b.Reason
			if b.NextProbe != nil {
				why = strings.TrimPrefix(why+", next probe "+momentAt(*b.NextProbe, now).Short, ", ")
			}
			add("breaker "+b.State, "▼", toneBad, why, b.Since)
		}
		if refused != "" && len(paused) == 0 {
			add("nothing claimed", "■", toneWarn, refused, nil)
		}
	}
	if e := q.Engine; e != nil {
		both(e.Paused, e.Breakers, e.Refused)
		if e.AllRefusedSince != nil {
			add("all refused", "●", toneBad, "the target refuses every message for its data", e.AllRefusedSince)
		}
		for _, k := range e.Unhandled {
			add("no handler", "?", toneWarn, fmt.Sprintf("kind %q", k.Kind), &k.Last)
		}
	}
	if p := q.Pull; p != nil {
		both(p.Paused, p.Breakers, p.Refused)
	}
	switch q.Level {
	case "refused":
		add("full", "■", toneBad, "publishes are refused above the backlog limit", nil)
	case "warn":
		add("filling up", "▲", toneWarn, "above the soft backlog limit", nil)
	}
	return all
}

func momentOf(t *time.Time, now time.Time) moment {
	if t == nil {
		return momentAt(time.Time{}, now)
	}
	return momentAt(*t, now)
}

// command joins the words of a command line, quoted where a shell needs it.
func command(words ...string) string {
	for i, w := range words {
		plain := w != "" && strings.Trim(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@%+,") == ""
		if !plain {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// filterFlags are the flags of the command line that choose what a filter does.
func filterFlags(f *wire.Filter) (flags []string) {
	given := f.Parameters()
	for i := range wire.Fields {
		name := wire.Fields[i].Name
		switch value := given.Get(name); {
		case value == "":
		case name == "edited":
			flags = append(flags, "--edited")
		default:
			flags = append(flags, "--"+name, value)
		}
	}
	return flags
}

// filterChip is a part of a filter, with the page without it.
type filterChip struct{ Name, Value, Without string }

// filterChips shows a filter on a page; with path "" its parts stay.
func filterChips(f *wire.Filter, path string) (all []filterChip) {
	given := f.Parameters()
	for i := range wire.Fields {
		name := wire.Fields[i].Name
		value := given.Get(name)
		if value == "" {
			continue
		}
		c := filterChip{Name: name, Value: value}
		if path != "" {
			rest := f.Parameters()
			rest.Del(name)
			c.Without = withQuery(path, rest)
		}
		all = append(all, c)
	}
	return all
}
