package backendtest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Update and Groups.
var updateCases = []testCase{
	{name: "UpdateByQueryInSteps", run: updateByQuery},
	{name: "UpdateNamedUnderACondition", run: updateConditional},
	{name: "UpdateStates", run: updateStates},
	{name: "RedriveIntoAnotherQueue", run: redriveTo},
	{name: "RedriveUnderANewID", run: redriveNewID},
	{name: "RedriveUncertainOnDemand", run: redriveUncertain},
	{name: "RedriveNeedsABody", run: redriveBodyGone},
	{name: "EditKeepsTheOriginal", run: editKeepsOriginal},
	{name: "EditsOfEachMessage", run: editsOfEach},
	{name: "WhatIsRestoredIsNotEdited", run: restores},
	{name: "DueNow", run: dueNow, needs: []need{delays}},
	{name: "KillTellsWhy", run: killTellsWhy},
	{name: "ChangesAnswerReplyTo", run: changesReply},
	{name: "CausesOfDeadLetters", run: causes},
}

func updateByQuery(c *C) {
	c.publishN(25)
	c.kill(25, redrive.ReasonPermanent)
	cutoff := c.now()
	c.pass(c.tick)
	c.publish(redrive.Message{ID: "younger"})
	c.kill(1, redrive.ReasonPermanent)
	sel := driver.Selection{Query: &redrive.Query{Queue: c.q, State: redrive.StateDead, Until: cutoff, NotPlan: "p"}}
	calls, changed := 0, map[string]bool{}
	for ; calls < 50; calls++ {
		got, err := c.store.Update(c.ctx, sel, driver.Change{Action: driver.ActRedrive, Plan: "p"}, 10)
		c.noError(err, "redrive")
		if len(got) == 0 {
			break
		}
		if len(got) > 10 {
			c.Errorf("%d changed in one call, want at most 10", len(got))
		}
		for _, u := range got {
			c.noError(u.Err, "redrive %s", u.Ref)
			if changed[u.ID] {
				c.Errorf("%s was changed twice", u.ID)
			}
			changed[u.ID] = true
		}
	}
	if len(changed) != 25 || calls < 3 {
		c.Errorf("%d changed in %d calls, want 25 in at least 3", len(changed), calls)
	}
	c.inState("younger", redrive.StateDead)
	if found := c.find(redrive.Query{Queue: c.q, Plan: "p"}); len(found) != 25 {
		c.Errorf("%d are of the plan, want 25", len(found))
	}
}

func updateConditional(c *C) {
	c.publishN(3)
	c.kill(3, redrive.ReasonPermanent)
	c.publish(redrive.Message{ID: "m0004"})
	cutoff := c.now()
	c.noError(c.update(driver.Change{Action: driver.ActRedrive, Plan: "p"}, "m0002")[0].Err, "redrive")
	c.noError(c.settle(deadly(c.one(c.lane(1, redrive.LaneRedrive)), redrive.ReasonPermanent)), "dead")
	refs := make([]redrive.Ref, 4)
	for i := range refs {
		refs[i] = redrive.Ref{Queue: c.q, ID: fmt.Sprintf("m%04d", i+1)}
	}
	sel := driver.Selection{Refs: refs, Query: &redrive.Query{State: redrive.StateDead, Until: cutoff.Add(time.Hour), NotPlan: "p"}}
	got, err := c.store.Update(c.ctx, sel, driver.Change{Action: driver.ActRedrive, Plan: "p"}, 10)
	c.noError(err, "redrive")
	if len(got) != 4 {
		c.Fatalf("%d results for 4 names", len(got))
	}
	for i, want := range []error{nil, redrive.ErrState, nil, redrive.ErrState} {
		c.is(got[i].Err, refs[i].ID, want)
	}
}

func updateStates(c *C) {
	c.publish(redrive.Message{ID: "waiting", Delay: time.Hour}, redrive.Message{ID: "dead"})
	c.kill(1, redrive.ReasonPermanent)
	c.publish(redrive.Message{ID: "leased"})
	leased := c.one(c.ask(1))
	body := &redrive.Edit{Body: []byte("edited")}
	for _, tc := range []struct {
		action        driver.Action
		waiting, dead error
	}{
		{driver.ActRedrive, redrive.ErrState, nil},
		{driver.ActArchive, redrive.ErrState, nil},
		{driver.ActDueNow, nil, redrive.ErrState},
		{driver.ActKill, nil, redrive.ErrState},
		{driver.ActEdit, nil, nil},
		{driver.ActDrop, nil, nil},
	} {
		ch := driver.Change{Action: tc.action}
		if tc.action == driver.ActEdit {
			ch.Edit = body
		}
		c.is(c.update(ch, "leased")[0].Err, tc.action.String()+" of what is leased", redrive.ErrState)
		c.is(c.update(ch, "never-was")[0].Err, tc.action.String()+" of what is not there", redrive.ErrNotFound)
		if tc.waiting != nil {
			c.is(c.update(ch, "waiting")[0].Err, tc.action.String()+" of what waits", tc.waiting)
		}
		if tc.dead != nil {
			c.is(c.update(ch, "dead")[0].Err, tc.action.String()+" of what is dead", tc.dead)
		}
	}
	_, err := c.store.Update(c.ctx, driver.Selection{Refs: []redrive.Ref{leased.Ref()}}, driver.Change{}, 1)
	c.is(err, "no action", redrive.ErrInvalid)
	c.done(leased)
	c.noError(c.update(driver.Change{Action: driver.ActArchive}, "dead")[0].Err, "archive")
	c.noError(c.update(driver.Change{Action: driver.ActDrop}, "waiting")[0].Err, "drop")
	if n := c.counts(); n.Ledger.Archived != 1 || n.Ledger.Dropped != 1 || n.AllWaiting() != 0 || n.AllDead() != 0 {
		c.Errorf("counts %+v", n)
	}
}

func redriveTo(c *C) {
	c.publish(redrive.Message{ID: "m", Body: []byte("b"), Key: "k"}, redrive.Message{ID: "taken"})
	c.publish(redrive.Message{Queue: "other", ID: "taken", Body: []byte("another")})
	c.kill(2, redrive.ReasonPermanent)
	got := c.update(driver.Change{Action: driver.ActRedrive, To: "other"}, "m", "taken")
	c.noError(got[0].Err, "redrive")
	if got[0].New != (redrive.Ref{Queue: "other", ID: "m"}) {
		c.Errorf("it is now %s", got[0].New)
	}
	c.is(got[1].Err, "redrive where the id is taken", redrive.ErrConflict, redrive.ErrDuplicate)
	c.inState("taken", redrive.StateDead)
	c.inState("m", 0)
	if n := c.counts(); n.Ledger.MovedOut != 1 {
		c.Errorf("ledger %+v", n.Ledger)
	}
	if n := c.countsOf("other"); n.Ledger.MovedIn != 1 || n.AllWaiting() != 2 {
		c.Errorf("the other's counts %+v", n)
	}
	home := c.q
	c.q = "other"
	d := c.one(c.lane(1, redrive.LaneRedrive))
	if string(d.Body) != "b" || d.Queue != "other" || d.Origin != home+"/m" || d.Generation != 1 || d.Redrives != 1 || d.Receipt.Queue != "other" {
		c.Errorf("it arrived as %+v", d.Message)
	}
	if e := c.entry("m"); e.History.First == nil {
		c.Errorf("its failure history stayed behind")
	}
	c.done(d)
}

func redriveNewID(c *C) {
	c.publish(redrive.Message{ID: "m", Body: []byte("b")})
	c.kill(1, redrive.ReasonPermanent)
	body := []byte("edited")
	got := c.update(driver.Change{Action: driver.ActRedrive, NewID: true, Edit: &redrive.Edit{Body: body}}, "m")
	c.noError(got[0].Err, "redrive")
	if got[0].New.Queue != c.q || got[0].New.ID == "m" || driver.CheckID(got[0].New.ID) != nil {
		c.Fatalf("it is now %s", got[0].New)
	}
	c.inState("m", 0)
	d := c.one(c.lane(1, redrive.LaneRedrive))
	if d.ID != got[0].New.ID || d.EditedFrom != c.q+"/m" || !bytes.Equal(d.Body, body) {
		c.Errorf("claimed %s, edited from %q, body %q", d.ID, d.EditedFrom, d.Body)
	}
	c.done(d)
	if n := c.counts(); n.Ledger.Published != 1 || n.Ledger.Done != 1 || n.Ledger.MovedIn != n.Ledger.MovedOut {
		c.Errorf("ledger %+v", n.Ledger)
	}
}

func redriveUncertain(c *C) {
	c.publish(redrive.Message{ID: "m"})
	c.kill(1, redrive.ReasonUncertain)
	c.is(c.update(driver.Change{Action: driver.ActRedrive}, "m")[0].Err, "redrive of what is uncertain", redrive.ErrUncertain)
	c.inState("m", redrive.StateDead)
	c.noError(c.update(driver.Change{Action: driver.ActRedrive, ConfirmUncertain: true}, "m")[0].Err, "confirmed")
	c.done(c.one(c.lane(1, redrive.LaneRedrive)))
}

func redriveBodyGone(c *C) {
	var headers, others redrive.Headers
	headers.Add(redrive.HeaderBodyGone, "deleted")
	headers.Add("a", "1")
	others.Add("a", "1")
	for _, id := range []string{"m", "n"} {
		c.publish(redrive.Message{ID: id, Headers: headers})
		c.kill(1, redrive.ReasonRejected)
	}
	kind := "other"
	for _, change := range []driver.Change{{}, {NewID: true}, {To: "other"}, {ConfirmUncertain: true}, {Edit: &redrive.Edit{Kind: &kind}}} {
		change.Action = driver.ActRedrive
		c.is(c.update(change, "m")[0].Err, "redrive of what has no body", redrive.ErrBodyGone)
	}
	if e := c.entry("m"); e.State != redrive.StateDead || e.Kind != "" || e.Redrives != 0 || e.Original != nil {
		c.Errorf("after the refusals: %+v", e)
	}
	c.noError(c.update(driver.Change{Action: driver.ActEdit, Edit: &redrive.Edit{Body: []byte("mended")}}, "m")[0].Err, "edit")
	c.noError(c.update(driver.Change{Action: driver.ActRedrive}, "m")[0].Err, "redrive of what was edited")
	c.noError(c.update(driver.Change{Action: driver.ActRedrive, Edit: &redrive.Edit{Body: []byte("mended")}}, "n")[0].Err, "redrive with an edit")
	for _, d := range c.claim(c.lane(2, redrive.LaneRedrive)) {
		if string(d.Body) != "mended" {
			c.Errorf("%s has body %q", d.ID, d.Body)
		}
		sameHeaders(c, d.Headers, others)
		c.done(d)
	}
}

func editKeepsOriginal(c *C) {
	var headers, edited redrive.Headers
	headers.Add("a", "1")
	edited.Add("b", "2")
	kind := "other"
	c.publish(redrive.Message{ID: "dead", Body: []byte("first"), Headers: headers, Kind: "kind"})
	c.kill(1, redrive.ReasonPermanent)
	c.publish(redrive.Message{ID: "waiting", Body: []byte("first"), Headers: headers, Kind: "kind"})
	for _, id := range []string{"dead", "waiting"} {
		c.noError(c.update(driver.Change{Action: driver.ActEdit, Edit: &redrive.Edit{Body: []byte("second")}}, id)[0].Err, "edit")
		e := c.entry(id)
		if string(e.Body) != "second" || e.Kind != "kind" || e.Original == nil || string(e.Original.Body) != "first" {
			c.Errorf("after the first edit: %q, kind %s, original %+v", e.Body, e.Kind, e.Original)
		}
		sameHeaders(c, e.Headers, headers)
		c.noError(c.update(driver.Change{Action: driver.ActEdit, Edit: &redrive.Edit{Headers: &edited, Kind: &kind, Body: []byte{}}}, id)[0].Err, "edit")
		e = c.entry(id)
		if len(e.Body) != 0 || e.Kind != "other" || e.Original == nil || string(e.Original.Body) != "first" || e.Original.Kind != "kind" {
			c.Errorf("after the second edit: %q, kind %s, original %+v", e.Body, e.Kind, e.Original)
		}
		sameHeaders(c, e.Headers, edited)
		if e.Original != nil {
			sameHeaders(c, e.Original.Headers, headers)
		}
	}
	tooLong := string(bytes.Repeat([]byte("k"), redrive.MaxKeyLength+1))
	got, err := c.store.Update(c.ctx, driver.Selection{Refs: []redrive.Ref{{Queue: c.q, ID: "dead"}}}, driver.Change{Action: driver.ActEdit, Edit: &redrive.Edit{Key: &tooLong}}, 1)
	if err == nil { // of the change as a whole, or of the message
		err = got[0].Err
	}
	c.is(err, "an edit that is not valid", redrive.ErrInvalid)
	c.redrive("dead")
	for _, d := range append(c.get(1, c.lane(1, redrive.LaneRedrive)), c.get(1, c.ask(1))...) {
		if len(d.Body) != 0 || d.Kind != "other" {
			c.Errorf("%s was delivered with %q as %s", d.ID, d.Body, d.Kind)
		}
		c.done(d)
	}
}

// editsOfEach gives each message an edit of its own, for a plan, unless it was changed since it was
// looked at.
func editsOfEach(c *C) {
	c.publishN(3)
	c.kill(3, redrive.ReasonPermanent)
	c.publish(redrive.Message{ID: "waiting", Body: []byte("first")})
	ids := []string{"m0001", "m0002", "m0003", "waiting"}
	ch := driver.Change{Action: driver.ActEdit, Plan: "repair", Edits: map[redrive.Ref]driver.EditOf{}}
	for _, id := range ids {
		e := c.entry(id)
		ch.Edits[e.Ref()] = driver.EditOf{Edit: redrive.Edit{Body: []byte("mended " + id)}, Sum: driver.Checksum(&e.Message)}
	}
	c.noError(c.update(driver.Change{Action: driver.ActEdit, Edit: &redrive.Edit{Body: []byte("by another")}}, "m0002")[0].Err, "edit")
	for i, u := range c.update(ch, ids...) {
		e, body, plan := c.entry(ids[i]), "mended "+ids[i], "repair"
		if ids[i] == "m0002" {
			c.is(u.Err, "edit of what was edited since", redrive.ErrConflict)
			body, plan = "by another", ""
		} else {
			c.noError(u.Err, "edit of %s", ids[i])
		}
		if string(e.Body) != body || e.Plan != plan {
			c.Errorf("%s is %q of plan %q, want %q of %q", ids[i], e.Body, e.Plan, body, plan)
		}
	}
	page, err := c.store.Find(c.ctx, redrive.Query{Queue: c.q, State: redrive.StateDead, Plan: "repair"})
	c.noError(err, "find")
	if len(page.Entries) != 2 {
		c.Errorf("%d dead letters of the plan, want 2", len(page.Entries))
	}
	_, err = c.store.Update(c.ctx, driver.Selection{Refs: []redrive.Ref{{Queue: c.q, ID: "m0001"}}},
		driver.Change{Action: driver.ActEdit, Edits: map[redrive.Ref]driver.EditOf{{Queue: c.q, ID: "m0001"}: {Edit: redrive.Edit{Kind: new(string(make([]byte, redrive.MaxKindLength+1)))}}}}, 1)
	c.is(err, "an edit that is not valid", redrive.ErrInvalid)
}

// restores takes the original away from what is again as it was published.
func restores(c *C) {
	var headers redrive.Headers
	headers.Add("a", "1")
	c.publish(redrive.Message{ID: "dead", Body: []byte("first"), Headers: headers, Kind: "kind"})
	c.kill(1, redrive.ReasonPermanent)
	c.publish(redrive.Message{ID: "waiting", Body: []byte("first"), Headers: headers, Kind: "kind"})
	kind, none := "other", redrive.Headers{}
	for _, id := range []string{"dead", "waiting"} {
		sum := driver.Checksum(&c.entry(id).Message)
		c.noError(c.update(driver.Change{Action: driver.ActEdit, Edit: &redrive.Edit{Body: []byte{}, Headers: &none, Kind: &kind}}, id)[0].Err, "edit")
		o := c.entry(id).Original
		if o == nil {
			c.Fatalf("%s has no original", id)
		}
		back := driver.Change{Action: driver.ActEdit, Edit: &redrive.Edit{Body: o.Body, Kind: &o.Kind, Headers: &o.Headers}}
		c.noError(c.update(back, id)[0].Err, "restore")
		e := c.entry(id)
		if e.Original != nil || driver.Checksum(&e.Message) != sum {
			c.Errorf("%s is %q with the original %+v", id, e.Body, e.Original)
		}
		edited, err := c.store.Find(c.ctx, redrive.Query{Queue: c.q, Edited: true})
		c.noError(err, "find")
		if len(edited.Entries) != 0 {
			c.Errorf("%d messages count as edited", len(edited.Entries))
		}
	}
	audits, err := c.store.Verify(c.ctx, c.q)
	c.noError(err, "verify")
	for _, a := range audits {
		if len(a.Problems) > 0 {
			c.Errorf("verify: %v", a.Problems)
		}
	}
}

func dueNow(c *C) {
	c.publish(redrive.Message{ID: "m", Delay: time.Hour})
	c.none(c.ask(1))
	c.noError(c.update(driver.Change{Action: driver.ActDueNow}, "m")[0].Err, "due now")
	c.done(c.one(c.ask(1)))
}

func killTellsWhy(c *C) {
	c.publish(redrive.Message{ID: "manual"}, redrive.Message{ID: "rejected"})
	c.noError(c.update(driver.Change{Action: driver.ActKill, Note: "ann: not wanted"}, "manual")[0].Err, "kill")
	c.noError(c.update(driver.Change{Action: driver.ActKill, Reason: redrive.ReasonRejected}, "rejected")[0].Err, "kill")
	e := c.entry("manual")
	if e.State != redrive.StateDead || e.Reason != redrive.ReasonManual || e.History.Latest() == nil || e.History.Latest().Message != "ann: not wanted" {
		c.Errorf("%s as %s with the failure history %+v", e.State, e.Reason, e.History.Latest())
	}
	if e := c.entry("rejected"); e.Reason != redrive.ReasonRejected {
		c.Errorf("dead as %s", e.Reason)
	}
	c.none(c.ask(2))
}

func changesReply(c *C) {
	c.publish(
		redrive.Message{ID: "killed", ReplyTo: "answers"},
		redrive.Message{ID: "dropped", ReplyTo: driver.SessionReply + "s1"},
		redrive.Message{ID: "edited", ReplyTo: "answers"},
		redrive.Message{ID: "silent"},
	)
	c.noError(c.update(driver.Change{Action: driver.ActKill, Note: "why"}, "killed")[0].Err, "kill")
	c.noError(c.update(driver.Change{Action: driver.ActDrop}, "dropped")[0].Err, "drop")
	c.noError(c.update(driver.Change{Action: driver.ActEdit, Edit: &redrive.Edit{Body: []byte("x")}}, "edited")[0].Err, "edit")
	c.noError(c.update(driver.Change{Action: driver.ActKill}, "silent")[0].Err, "kill")
	header := func(m *redrive.Message, name string) string {
		v, _ := m.Headers.Get(name)
		return v
	}
	answers := c.find(redrive.Query{Queue: "answers", Bodies: true})
	if len(answers) != 1 || header(&answers[0].Message, redrive.HeaderReplyFor) != c.q+"/killed" || header(&answers[0].Message, redrive.HeaderOutcome) != "dead" || header(&answers[0].Message, redrive.HeaderReason) != "manual" {
		c.Errorf("answers: %+v", answers)
	}
	results := c.find(redrive.Query{Queue: driver.ResultQueue, Bodies: true})
	if len(results) != 1 || results[0].Key != "s1" || header(&results[0].Message, redrive.HeaderOutcome) != "drop" {
		c.Errorf("results of the session: %+v", results)
	}
}

func causes(c *C) {
	die := func(n int, prefix, text string, reason redrive.Reason) {
		for i := range n {
			c.publish(redrive.Message{ID: fmt.Sprintf("%s%d", prefix, i), Kind: prefix})
			s := deadly(c.one(c.ask(1)), reason)
			s.Failure = failure(1, text)
			s.Failure.Details = map[string]string{driver.DetailStatus: "422", driver.DetailAnswer: text + " " + prefix}
			c.noError(c.settle(s), "dead")
		}
	}
	die(5, "a", "timeout", redrive.ReasonExhausted)
	c.pass(c.tick)
	die(7, "b", "refused", redrive.ReasonPermanent)
	die(2, "c", "timeout", redrive.ReasonPermanent)
	q := redrive.Query{Queue: c.q}
	got, complete, err := c.store.Causes(c.ctx, q)
	c.noError(err, "causes")
	if len(got) != 3 || !complete {
		c.Fatalf("causes %+v, complete %t", got, complete)
	}
	if i := slices.IndexFunc(got, func(g driver.Cause) bool { return g.Count == 0 }); i >= 0 {
		c.Errorf("an empty cause")
	}
	for i, want := range []driver.Cause{
		{Count: 7, Reason: redrive.ReasonPermanent, Signature: "sig-refused", Message: "refused", Answer: "refused b"},
		{Count: 5, Reason: redrive.ReasonExhausted, Signature: "sig-timeout", Message: "timeout", Answer: "timeout a"},
		{Count: 2, Reason: redrive.ReasonPermanent, Signature: "sig-timeout", Message: "timeout", Answer: "timeout c"},
	} {
		g := got[i]
		if g.Queue != c.q || g.Count != want.Count || g.Reason != want.Reason || g.Signature != want.Signature || g.Message != want.Message || g.Type != "*test.Error" ||
			g.Status != "422" || g.Answer != want.Answer {
			c.Errorf("cause %d is %+v, want %+v", i, g, want)
		}
		if g.First.After(g.Last) || g.First.IsZero() || c.lookUp(c.q, g.Example.ID) == nil {
			c.Errorf("cause %d from %s to %s, example %s", i, g.First, g.Last, g.Example)
		}
	}
	if got[1].Example.ID != "a4" {
		c.Errorf("the example of a cause is %s, want the newest", got[1].Example)
	}
	for what, tc := range map[string]struct {
		q    redrive.Query
		want int
	}{
		"reason": {redrive.Query{Reason: redrive.ReasonPermanent}, 2},
		"kind":   {redrive.Query{Kind: "c"}, 1},
		"nobody": {redrive.Query{Queue: "nowhere"}, 0},
	} {
		if got, _, err := c.store.Causes(c.ctx, tc.q); err != nil || len(got) != tc.want {
			c.Errorf("causes by %s: %d, %v; want %d", what, len(got), err, tc.want)
		}
	}
	q.Limit = 2
	if got, complete, err := c.store.Causes(c.ctx, q); err != nil || len(got) != 2 || complete || got[0].Count != 7 {
		c.Errorf("the two largest causes: %+v, complete %t, %v", got, complete, err)
	}
}
