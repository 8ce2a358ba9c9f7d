package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// doctorCmd looks for what is wrong.
type doctorCmd struct {
	remote `embed:""`
	Bundle string `type:"path" placeholder:"FILE" help:"Also write what helps others to see what is wrong to this new file (.tar.gz), without secrets and without what messages or people say. It takes about 10 s and the scope admin."`
}

func (*doctorCmd) Help() string {
	return examples("redrive doctor", "what is wrong or weak, and what to do about it", "redrive doctor --data ./redrive-data", "of a store, also when no daemon runs",
		"redrive doctor --bundle support.tar.gz", "for a report of a fault")
}

// finding is one line of a doctor.
type finding struct {
	Level string `json:"level"` // ok, warn, bad
	About string `json:"about"`
	Text  string `json:"text"`
	Hint  string `json:"hint,omitempty"`

	quotes bool // the text may quote a person, an error or a message
}

// The levels of a finding.
const (
	levelOK   = "ok"
	levelWarn = "warn"
	levelBad  = "bad"
)

// doctor collects findings.
type doctor struct {
	client   *client
	me       wire.Me // the daemon that was asked, and as whom; empty without one
	findings []finding
}

func (d *doctor) say(level, about, hint, format string, args ...any) {
	d.findings = append(d.findings, finding{Level: level, About: about, Text: fmt.Sprintf(format, args...), Hint: hint})
}

// quote is say with a text that quotes a person, an error or a message.
func (d *doctor) quote(level, about, hint, format string, args ...any) {
	d.say(level, about, hint, format, args...)
	d.findings[len(d.findings)-1].quotes = true
}

// Run prints what it found, and fails if something is bad.
func (c *doctorCmd) Run(ctx context.Context, t *terminal, client *client) error {
	d := &doctor{client: client}
	for _, look := range []func(context.Context) error{d.ready, d.daemon, d.promises, d.tokens, d.queues, d.plans, d.alerts, d.ledger} {
		if err := look(ctx); err != nil {
			return err
		}
	}
	if c.Bundle != "" {
		if err := d.bundle(ctx, t, c.Bundle); err != nil {
			return err
		}
	}
	worst := levelOK
	for _, f := range d.findings {
		if f.Level == levelBad || f.Level == levelWarn && worst == levelOK {
			worst = f.Level
		}
	}
	if t.json {
		if err := t.writeJSON(map[string]any{"level": worst, "findings": d.findings}); err != nil {
			return err
		}
	} else {
		printFindings(t, d.findings)
	}
	if worst == levelBad {
		return errFailed
	}
	return nil
}

func printFindings(t *terminal, list []finding) {
	colours := map[string]string{levelOK: good, levelWarn: warn, levelBad: bad}
	for _, f := range list {
		t.printf("%s  %s: %s\n", t.paint(colours[f.Level], fmt.Sprintf("%-4s", f.Level)), clean(f.About), clean(f.Text))
		if f.Hint != "" {
			t.printf("      %s\n", t.paint(faint, clean(f.Hint)))
		}
	}
}

func (d *doctor) ready(ctx context.Context) error {
	if d.client.local {
		d.say(levelOK, "daemon", "", "none is asked; this is the store itself")
		return nil
	}
	err := d.client.do(ctx, http.MethodGet, "/readyz", nil, nil, nil)
	switch p := asProblem(err); {
	case err == nil:
		d.say(levelOK, "daemon", "", "%s is ready", d.client.where)
	case p != nil && p.Status == http.StatusServiceUnavailable:
		d.quote(levelBad, "daemon", p.Hint, "%s is not ready: %s", d.client.where, p.Detail)
	default:
		return err
	}
	return nil
}

// promises asks what the store's settings promise.
func (d *doctor) promises(ctx context.Context) error {
	var list wire.List[wire.Finding]
	if err := d.client.do(ctx, http.MethodGet, "/v1/probe", nil, nil, &list); err != nil {
		return err
	}
	for _, v := range list.Items {
		level := levelOK
		switch v.Level {
		case driver.LevelWarn.String():
			level = levelWarn
		case driver.LevelRefused.String():
			level = levelBad
		}
		d.say(level, aboutSetting(v.Setting), v.Hint, "%s is %s: %s", v.Setting, v.Value, v.Promise)
	}
	return nil
}

// aboutSetting says what has a setting that the daemon names.
func aboutSetting(name string) string {
	switch {
	case strings.HasPrefix(name, "tls "):
		return "listener"
	case name == "store clock":
		return "clock"
	case name == "open files":
		return "daemon"
	}
	return "store"
}

func (d *doctor) queues(ctx context.Context) error {
	list, err := d.client.queues(ctx, "")
	if err != nil {
		return err
	}
	var waiting, dead int64
	for i := range list.Items {
		q := &list.Items[i]
		waiting, dead = waiting+q.Waiting.All, dead+q.Dead
		about := "queue " + q.Queue
		if q.Dead > 0 {
			d.say(levelWarn, about, "redrive dead causes --queue "+q.Queue, "%s dead letters", grouped(q.Dead))
		}
		if q.Suspects > 0 {
			d.say(levelWarn, about, "redrive messages list --queue "+q.Queue, "%s messages were in flight when a process died, and are tried in isolation", grouped(q.Suspects))
		}
		if err := d.holds(ctx, q); err != nil {
			return err
		}
		if d.client.local {
			continue
		}
		without := *q // what holds it was said
		without.HeldBy = nil
		state, colour := queueState(&without)
		switch {
		case colour == bad:
			d.say(levelBad, about, "", "%s", state)
		case colour == warn, q.Engine == nil && q.Waiting.All > 0 && !strings.HasPrefix(q.Queue, "_"):
			d.say(levelWarn, about, unhandledHint(q), "%s; %s messages wait", state, grouped(q.Waiting.All))
		case q.Level == "warn":
			d.say(levelWarn, about, "deliver faster, or raise limits of the queue", "it is above its soft limit")
		}
	}
	d.say(levelOK, "queues", "", "%d, with %s messages that wait and %s dead letters", len(list.Items), grouped(waiting), grouped(dead))
	return nil
}

// holds says what holds a queue, and which keys wait behind a message that failed.
func (d *doctor) holds(ctx context.Context, q *wire.Queue) error {
	for i := range q.HeldBy {
		h := &q.HeldBy[i]
		switch h.What {
		case wire.HoldKeys, wire.HoldNobody, wire.HoldStore, wire.HoldDisk: // said elsewhere
			continue
		}
		level := map[string]string{good: levelOK, warn: levelWarn, bad: levelBad}[holdColour(h)]
		if level == "" {
			continue
		}
		hint := ""
		if h.What == wire.HoldPause && h.By != "" {
			hint = "redrive queues resume " + q.Queue
		}
		d.quote(level, "queue "+q.Queue, hint, "%s", holdText(h, time.Now()))
	}
	if q.Blocked == 0 {
		return nil
	}
	return d.keys(ctx, q.Queue)
}

// The keys that a doctor looks at.
const (
	blockedLooked = 200 // messages
	blockedNamed  = 5   // keys
)

// keys names keys of a queue that wait behind a message that failed.
func (d *doctor) keys(ctx context.Context, queue string) error {
	var blocked wire.List[wire.Message]
	if err := d.client.do(ctx, http.MethodGet, "/v1/queues/"+segment(queue)+"/messages", url.Values{"state": {"blocked"}, "limit": {strconv.Itoa(blockedLooked)}}, nil, &blocked); err != nil {
		return err
	}
	behind := make(map[string]int)
	var keys []string
	for i := range blocked.Items {
		m := &blocked.Items[i]
		if behind[m.Key]++; behind[m.Key] == 1 {
			keys = append(keys, m.Key)
		}
	}
	named := 0
	for _, key := range keys {
		head, err := d.head(ctx, queue, key)
		if err != nil {
			return err
		}
		if head == nil {
			continue
		}
		if named++; named > blockedNamed {
			d.say(levelWarn, "queue "+queue, "redrive messages list --queue "+queue+" --state blocked", "more keys are blocked")
			return nil
		}
		more := ""
		if behind[key] == len(blocked.Items) && blocked.Next != "" {
			more = "at least "
		}
		state, hint := fmt.Sprintf("failed %d times and is tried again %s", head.Attempts, ago(*cmp.Or(head.DueAt, new(time.Time)), time.Now())), "redrive show "+queue+"/"+head.ID
		if head.State == redrive.StateDead.String() {
			state, hint = "is dead", "redrive or drop it: "+hint
		}
		d.quote(levelWarn, "queue "+queue, hint, "key %q is blocked: %s%d messages wait behind %s, which %s: %s", key, more, behind[key], head.ID, state, head.Error)
	}
	return nil
}

// head returns the message that blocks a key, if it failed.
func (d *doctor) head(ctx context.Context, queue, key string) (*wire.Message, error) {
	for _, state := range []redrive.State{redrive.StateLeased, redrive.StateWaiting, redrive.StateDead} {
		var list wire.List[wire.Message]
		if err := d.client.do(ctx, http.MethodGet, "/v1/queues/"+segment(queue)+"/messages", url.Values{"state": {state.String()}, "key": {key}, "limit": {"1"}}, nil, &list); err != nil {
			return nil, err
		}
		if len(list.Items) == 0 {
			continue
		}
		if m := &list.Items[0]; m.Attempts > 0 && m.State != redrive.StateLeased.String() {
			return m, nil
		}
		return nil, nil
	}
	return nil, nil
}

// unhandledHint says what to do about kinds without a handler.
func unhandledHint(q *wire.Queue) string {
	if (q.Engine == nil || len(q.Engine.Unhandled) == 0) && (q.Pull == nil || len(q.Pull.Unhandled) == 0) {
		return ""
	}
	return "deploy a handler, or a worker that asks for them: until then they are retried, and dead as unroutable at the end of their policy"
}

func (d *doctor) plans(ctx context.Context) error {
	var list wire.List[wire.Plan]
	if err := d.client.do(ctx, http.MethodGet, "/v1/plans", nil, nil, &list); err != nil {
		return err
	}
	for i := range list.Items {
		switch p := &list.Items[i]; {
		case p.State == wire.PlanStopped:
			d.quote(levelWarn, "plan "+p.ID, "redrive plans show "+p.ID, "it stopped: %s", p.Problem)
		case p.State == wire.PlanRunning && p.Problem != "":
			d.quote(levelWarn, "plan "+p.ID, "redrive plans show "+p.ID, "it is held up: %s", p.Problem)
		}
	}
	return nil
}

func (d *doctor) ledger(ctx context.Context) error {
	var v wire.Verified
	if err := d.client.do(ctx, http.MethodGet, "/v1/verify", nil, nil, &v); err != nil {
		return err
	}
	if v.Balanced {
		d.say(levelOK, "ledger", "", "it balances: no message is missing")
		return nil
	}
	d.say(levelBad, "ledger", v.Hint, "it does not balance")
	return nil
}
