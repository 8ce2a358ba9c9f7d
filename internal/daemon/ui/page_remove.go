package ui

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

// removal is a way to remove many messages.
type removal struct {
	action, title string
	path          string // of its page
	scopes        []string
	says          string
	typed         bool     // the number must be typed: nobody brings them back
	command       []string // for what a filter selects
	rate          string
}

var (
	dropping = removal{
		action: "drop", title: "Drop", path: "/drop", scopes: []string{"redrive", "purge"}, typed: true, command: []string{"redrive", "dead", "drop"},
		says: "They are removed and counted as dropped. Nobody can bring them back.",
	}
	archiving = removal{
		action: "archive", title: "Archive", path: "/archive", scopes: []string{"redrive"}, command: []string{"redrive", "dead", "archive"},
		says: "They are written to the archive, and then removed and counted as archived. The command redrive dead import brings them back.",
	}
)

// purging is the removal of what waits in a queue.
func purging(queue string) removal {
	return removal{
		action: "drop", title: "Purge", path: queuePath(queue) + "/purge", scopes: []string{"redrive", "purge"}, typed: true, command: []string{"redrive", "queues", "purge", queue}, rate: purgeRate,
		says: "What waits in the queue is removed and counted as dropped; what is in flight goes on. Nobody can bring it back.",
	}
}

// purgeRate is fast: nobody waits for what is thrown away.
const purgeRate = "20000/s"

// removeForm is the page on which many are removed.
type removeForm struct {
	Title, Path, Says string
	Typed             bool
	Chips             []filterChip
	Hidden            []field
	Form              string
	Total             int64
	More              bool
	Cutoff            moment
	Needs             string
	Problem           *problem.Problem
	Command           string
	Request           string
}

func viewRemove(by *removal, f *wire.Filter, run *wire.DryRun, now time.Time) removeForm {
	p := removeForm{
		Title: by.title, Path: by.path, Says: by.says, Typed: by.typed, Chips: filterChips(f, ""), Total: run.Total, More: run.More, Cutoff: momentAt(run.Cutoff, now),
		Command: command(slices.Clone(by.command)...),
	}
	if by.title != "Purge" { // whose filter is its path
		p.Hidden, p.Command = hidden(f), command(slices.Concat(by.command, filterFlags(f))...)
	}
	return p
}

func (v *visit) removeForm(by *removal, f *wire.Filter) (p removeForm, err error) {
	var run wire.DryRun
	needs := v.lacks(by.scopes...)
	req := request(by.action, f)
	if req.Rate = by.rate; needs == "" {
		if run, err = v.dryRun(req); err != nil {
			return p, err
		}
	}
	p = viewRemove(by, f, &run, v.now)
	p.Form, p.Needs, p.Request = v.form, needs, v.curl(http.MethodPost, at("plans"), req)
	return p, nil
}

func (v *visit) showRemove(by removal, f wire.Filter) error {
	v.title = by.title
	p, err := v.removeForm(&by, &f)
	if err != nil {
		return err
	}
	v.show(http.StatusOK, "remove", p)
	return nil
}

// remove removes what a filter selects, if the number that was typed is the number of now.
func (v *visit) remove(by removal, f wire.Filter) error {
	v.title = by.title
	p, err := v.removeForm(&by, &f)
	if err != nil {
		return err
	}
	if p.Needs != "" {
		return problem.New(http.StatusForbidden, "forbidden", "The token does not allow this", "to "+strings.ToLower(by.title)+" many "+p.Needs, "")
	}
	typed := strings.NewReplacer(",", "", " ", "", ".", "").Replace(v.value("number"))
	switch {
	case by.typed && p.More:
		p.Problem = problem.New(http.StatusConflict, "count", "It is not known how many these are", "", "narrow the filter, or use the command line")
	case by.typed && typed != strconv.FormatInt(p.Total, 10):
		p.Problem = problem.New(http.StatusConflict, "count", "The number is another", "it is "+number(p.Total)+" now", "look again, and type the number that is there now")
	default:
		req := request(by.action, &f)
		req.Reason, req.Rate = v.value("why"), by.rate
		return v.create(req)
	}
	v.show(p.Problem.Status, "remove", p)
	return nil
}

func showDrop(v *visit) error { return v.showRemove(dropping, wire.FilterFrom(v.query)) }

func dropThese(v *visit) error { return v.remove(dropping, wire.FilterFrom(v.r.PostForm)) }

func showArchive(v *visit) error { return v.showRemove(archiving, wire.FilterFrom(v.query)) }

func archiveThese(v *visit) error { return v.remove(archiving, wire.FilterFrom(v.r.PostForm)) }

// waitingIn selects what waits in a queue.
func waitingIn(queue string) wire.Filter { return wire.Filter{Queue: queue, State: "waiting"} }

func showPurge(v *visit) error {
	queue := v.r.PathValue("queue")
	return v.showRemove(purging(queue), waitingIn(queue))
}

func purgeQueue(v *visit) error {
	queue := v.r.PathValue("queue")
	return v.remove(purging(queue), waitingIn(queue))
}

// retryNow has what waits for a retry in a queue tried at once.
func retryNow(v *visit) error {
	queue := v.r.PathValue("queue")
	f := waitingIn(queue)
	if needs := v.lacks("redrive"); needs != "" {
		return problem.New(http.StatusForbidden, "forbidden", "The token does not allow this", fmt.Sprintf("a retry of what waits in %s %s", queue, needs), "")
	}
	return v.create(wire.PlanRequest{Action: "retry", Filter: &f})
}
