package history

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// operator looks at dead letters and at what waits until ctx ends, and edits, redrives and
// drops some, one by one and by plans, some of which it pauses and cancels.
func (c *crowd) operator(ctx context.Context, name string) {
	for pause(ctx, 100*time.Millisecond+c.dice.upTo(200*time.Millisecond)) {
		queue := []string{hooks, work, keyed}[c.dice.roll(3)]
		path, dice := "/v1/dead-letters?limit=100&queue="+queue, c.dice.roll(11)
		if dice == 10 {
			path = "/v1/queues/" + queue + "/messages?limit=100"
		}
		var list struct{ Items []letter }
		if a, _ := c.rec.call(context.WithoutCancel(ctx), http.MethodGet, c.any()+path, nil, nil, &list); a != OK || len(list.Items) == 0 {
			continue
		}
		some := list.Items[c.dice.roll(len(list.Items))]
		switch dice {
		case 0, 1:
			c.edit(ctx, name, &some)
		case 2:
			c.drop(ctx, name, &some)
		case 3:
			c.plan(ctx, name, map[string]any{"action": "drop", "refs": []string{queue + "/" + some.ID}})
		case 4:
			c.plan(ctx, name, map[string]any{"action": "redrive", "rate": "200/s", "filter": map[string]any{"queue": queue}})
		case 5:
			c.plan(ctx, name, map[string]any{"action": "redrive", "rate": "5/s", "filter": map[string]any{"queue": queue}})
		case 6:
			c.plan(ctx, name, map[string]any{"action": "drop", "rate": "20/s", "filter": map[string]any{"queue": queue}})
		case 7:
			c.plan(ctx, name, map[string]any{"action": "drop", "rate": "5/s", "filter": map[string]any{"queue": queue, "state": "waiting"}})
		case 8:
			id := c.plan(ctx, name, map[string]any{"action": "redrive", "rate": "5/s", "filter": map[string]any{"queue": queue}})
			c.steer(ctx, name, id, "pause", "resume")
		case 9:
			id := c.plan(ctx, name, map[string]any{"action": []string{"redrive", "drop"}[c.dice.roll(2)], "rate": "5/s", "filter": map[string]any{"queue": queue}})
			c.steer(ctx, name, id, "pause", "cancel")
		case 10:
			c.drop(ctx, name, &some)
		}
	}
}

// at is where a message stands.
func (l *letter) at() string {
	list := "messages/"
	if l.State == Dead {
		list = "dead-letters/"
	}
	return "/v1/queues/" + l.Queue + "/" + list + url.PathEscape(l.ID)
}

// whole reads one message with its body.
func (c *crowd) whole(ctx context.Context, name string, l *letter) (label string, ok bool) {
	e := Event{Begin: c.rec.now(), Op: OpLook, By: name, Queue: l.Queue, ID: l.ID}
	if e.Answer, e.Note = c.rec.call(context.WithoutCancel(ctx), http.MethodGet, c.any()+l.at(), nil, nil, l); e.Answer != OK || l.Body == "" {
		return "", false
	}
	e.Label, e.Rev, e.Garbled = read(l.Body)
	e.Outcome, e.Generation, e.Redrives = l.State, l.Generation, l.Redrives
	c.rec.add(e)
	return e.Label, true
}

func (c *crowd) edit(ctx context.Context, name string, l *letter) {
	label, ok := c.whole(ctx, name, l)
	if !ok {
		return
	}
	e := Event{Begin: c.rec.now(), Op: OpEdit, By: name, Queue: l.Queue, Label: label, ID: l.ID, Rev: c.rec.rev(label)}
	e.Answer, e.Note = c.rec.call(context.WithoutCancel(ctx), http.MethodPatch, c.any()+l.at(), nil,
		map[string]any{"body": body(label, e.Rev)}, nil)
	c.rec.add(e)
}

func (c *crowd) drop(ctx context.Context, name string, l *letter) {
	label, ok := c.whole(ctx, name, l)
	if !ok {
		return
	}
	e := Event{Begin: c.rec.now(), Op: OpDrop, By: name, Queue: l.Queue, Label: label, ID: l.ID}
	e.Answer, e.Note = c.rec.call(context.WithoutCancel(ctx), http.MethodDelete, c.any()+l.at(), nil, nil, nil)
	c.rec.add(e)
}

// plan makes a plan, and returns its id, or nothing.
func (c *crowd) plan(ctx context.Context, name string, in map[string]any) (id string) {
	action, _ := in["action"].(string)
	e := Event{Begin: c.rec.now(), Op: OpPlan, By: name, Action: action}
	if filter, ok := in["filter"].(map[string]any); ok {
		e.Queue, _ = filter["queue"].(string)
		if filter["state"] == "waiting" {
			e.Action = dropWaiting
		}
	}
	var out struct{ ID string }
	e.Answer, e.Note = c.rec.call(context.WithoutCancel(ctx), http.MethodPost, c.any()+"/v1/plans", nil, in, &out)
	e.Plan = out.ID
	c.rec.add(e)
	return e.Plan
}

// steer does to a plan what an operator may, one after the other.
func (c *crowd) steer(ctx context.Context, name, id string, verbs ...string) {
	for _, verb := range verbs {
		if id == "" || !pause(ctx, c.dice.upTo(300*time.Millisecond)) {
			return
		}
		e := Event{Begin: c.rec.now(), Op: OpSteer, By: name, Plan: id, Action: verb}
		var out struct{ State string }
		e.Answer, e.Note = c.rec.call(context.WithoutCancel(ctx), http.MethodPost, c.any()+"/v1/plans/"+id+"/"+verb, nil, nil, &out)
		e.Outcome = out.State
		c.rec.add(e)
	}
}
