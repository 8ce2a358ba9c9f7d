package ui

import (
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive/internal/text"
	"github.com/redrive/redrive/internal/wire"
)

func showQueues(v *visit) error {
	v.title = "Queues"
	queues, err := v.queues()
	if err != nil {
		return err
	}
	name := v.query.Get("name")
	match := func(queue string) bool { return strings.Contains(queue, name) || text.Match(name, queue) }
	p := viewQueues(queues, match, v.now)
	p.Match = name
	v.show(http.StatusOK, "queues", p)
	return nil
}

func showQueue(v *visit) error {
	queue := v.r.PathValue("queue")
	v.title = queue
	q, err := get[wire.Queue](v, at("queues", queue), nil)
	if err != nil {
		return err
	}
	p := viewQueue(&q, v.now)
	if q.Dead > 0 {
		causes, _, err := v.causes(nil, url.Values{"queue": {queue}})
		if err != nil {
			return err
		}
		sortCauses(causes, sortGrowing)
		for i := range causes[:min(len(causes), nowQueues)] {
			p.Causes = append(p.Causes, causeRowOf(&causes[i], "", v.now))
		}
	}
	series, err := v.series(queue)
	if err != nil {
		return err
	}
	p.Flow, p.P95 = flowOf(&series)
	if p.Pausable {
		p.Pause = v.press("Pause", queuePath(queue)+"/pause", "redrive")
		if p.Paused {
			p.Actions = append(p.Actions, v.press("Resume", queuePath(queue)+"/resume", "redrive").as("main"))
		} else if p.Pause.Needs != "" {
			p.Actions = append(p.Actions, p.Pause)
		}
	}
	if q.Waiting.Retry > 0 {
		p.Actions = append(p.Actions, v.press("Retry now", queuePath(queue)+"/retry", "redrive"))
	}
	p.Actions = append(p.Actions, v.link("Purge…", queuePath(queue)+"/purge", "redrive", "purge").as("danger"))
	v.show(http.StatusOK, "queue", p)
	return nil
}

// series returns what went through a queue in the last hour, which only a daemon knows.
func (v *visit) series(queue string) (wire.Series, error) {
	s, err := get[wire.Series](v, at("queues", queue, "series"), nil)
	if named(err, "no-daemon") {
		err = nil
	}
	return s, err
}

// pauseQueue stops claiming, until a time if one was given.
func pauseQueue(v *visit) error {
	queue := v.r.PathValue("queue")
	req := wire.PauseRequest{Reason: v.value("reason")}
	if s := v.value("for"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil || d <= 0 {
			return bad("for "+strconv.Quote(s), "use a duration such as 30m or 2h, or leave it empty")
		}
		req.For = wire.Duration(d)
	}
	if req.Reason == "" {
		req.Reason = "by " + v.who.Name
	}
	if _, err := send[wire.Queue](v, http.MethodPost, at("queues", queue, "pause"), req); err != nil {
		return err
	}
	return v.redirect(queuePath(queue))
}

func resumeQueue(v *visit) error {
	queue := v.r.PathValue("queue")
	if _, err := send[wire.Queue](v, http.MethodPost, at("queues", queue, "resume"), struct{}{}); err != nil {
		return err
	}
	return v.redirect(queuePath(queue))
}

// alivePage lists messages of a queue that are not dead.
type alivePage struct {
	Queue, QueuePath string
	What             string
	When             string // what the time of a row is
	Rows             []messageRow
	Next             string
	Incomplete       bool
	Command          string
}

func (v *visit) showAlive(p alivePage, list *wire.List[wire.Message]) {
	p.Queue, p.QueuePath, p.Incomplete = v.r.PathValue("queue"), queuePath(v.r.PathValue("queue")), !list.Complete
	for i := range list.Items {
		p.Rows = append(p.Rows, messageRowOf(&list.Items[i], v.now))
	}
	v.title = p.What + " in " + p.Queue
	v.show(http.StatusOK, "alive", p)
}

func showWaiting(v *visit) error {
	queue := v.r.PathValue("queue")
	ask := url.Values{"state": {"waiting"}, "limit": {strconv.Itoa(deadPageSize)}}
	maps.Copy(ask, v.query)
	list, err := get[wire.List[wire.Message]](v, at("queues", queue, "messages"), ask)
	if err != nil {
		return err
	}
	p := alivePage{What: "Waiting", When: "Due", Command: command("redrive", "messages", "list", "--queue", queue, "--state", "waiting")}
	if list.Next != "" {
		next := url.Values{}
		maps.Copy(next, v.query)
		next.Set("after", list.Next)
		p.Next = withQuery(queuePath(queue)+"/waiting", next)
	}
	v.showAlive(p, &list)
	return nil
}

func showProcessing(v *visit) error {
	queue := v.r.PathValue("queue")
	list, err := get[wire.List[wire.Message]](v, at("queues", queue, "processing"), url.Values{"limit": {strconv.Itoa(deadPageSize)}})
	if err != nil {
		return err
	}
	v.showAlive(alivePage{What: "In flight", When: "Lease until", Command: command("redrive", "queues", "--processing", queue)}, &list)
	return nil
}

// auditPage is who changed what.
type auditPage struct {
	Rows    []auditRow
	Fields  []input
	Next    string
	Command string
}

type auditRow struct {
	At                  moment
	Actor, Action, What string
	Path                string
	Count               int64
	Note                string
	Outcome             chip
	Remote, Via         string
}

func showAudit(v *visit) error {
	v.title = "Audit"
	ask := url.Values{"limit": {strconv.Itoa(deadPageSize)}}
	for name, values := range v.query {
		if values[0] != "" {
			ask[name] = values
		}
	}
	list, err := get[wire.List[wire.AuditEntry]](v, at("audit"), ask)
	if err != nil {
		return err
	}
	p := viewAudit(list.Items, v.query, v.now)
	if list.Next != "" {
		next := url.Values{}
		maps.Copy(next, v.query)
		next.Set("after", list.Next)
		p.Next = withQuery("/audit", next)
	}
	v.show(http.StatusOK, "audit", p)
	return nil
}

func viewAudit(entries []wire.AuditEntry, query url.Values, now time.Time) auditPage {
	var p auditPage
	for _, in := range [][3]string{{"actor", "Who", ""}, {"action", "Action", "pause, edit, plan redrive"}, {"queue", "Queue", ""}, {"plan", "Plan", ""}, {"since", "Since", "1h or a time"}} {
		p.Fields = append(p.Fields, input{in[0], in[1], query.Get(in[0]), in[2]})
	}
	for i := range entries {
		e := &entries[i]
		row := auditRow{At: momentAt(e.At, now), Actor: e.Actor, Action: e.Action, Count: e.Count, Note: e.Note, Remote: e.Remote, Via: e.Via}
		switch {
		case e.Message != "":
			row.What, row.Path = e.Queue+"/"+e.Message, messagePath(e.Queue, e.Message)
		case e.Plan != "":
			row.What, row.Path = "plan "+e.Plan, planPath(e.Plan)
		case e.Filter != nil:
			row.What = e.Filter.String()
		case e.Queue != "":
			row.What, row.Path = e.Queue, queuePath(e.Queue)
		}
		switch e.Outcome {
		case "done":
			row.Outcome = chip{"done", "✓", toneOK}
		case "begun":
			row.Outcome = chip{"begun", "•", toneWarn}
		case wire.PlanCancelled, wire.PlanStopped:
			row.Outcome = chip{e.Outcome, "–", ""}
		default:
			row.Outcome = chip{text.Clean(e.Outcome, 80), "✕", toneBad}
		}
		p.Rows = append(p.Rows, row)
	}
	return p
}
