package plan_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/deadtest"
	"github.com/redrive/redrive/internal/jsonmask"
	"github.com/redrive/redrive/plan"
)

func set(path, value string) plan.Operation {
	return plan.Operation{Op: "set", Path: path, Value: json.RawMessage(value)}
}

func TestRepair(t *testing.T) {
	var headers redrive.Headers
	headers.Add("A", "1")
	headers.Add("A", "2")
	for name, c := range map[string]struct {
		body, rule, want, err string
	}{
		"numbers and order stay": {`{"b":1.00,"a":[1e400, 9007199254740993]}`, `[{"op":"set","path":"$.v","value":2}]`, `{"b":1.00,"a":[1e400, 9007199254740993],"v":2}`, ""},
		"several":                {`{"a":{"b":"x-1"}}`, `[{"op":"rename","path":"$.a","to":"c"},{"op":"replace","path":"$.c.b","match":"x-(\\d)","with":"$1"},{"op":"remove","path":"$.z"}]`, `{"c":{"b":"1"}}`, ""},
		"nothing to change":      {`{"a":2}`, `[{"op":"set","path":"$.a","value":2}]`, "", "unchanged"},
		"no such place":          {`{"a":2}`, `[{"op":"remove","path":"$.b"}]`, "", "unchanged"},
		"not JSON":               {`{"a":2`, `[{"op":"remove","path":"$.b"}]`, "", "not-json"},
		"a name that is taken":   {`{"a":2,"b":3}`, `[{"op":"rename","path":"$.a","to":"b"}]`, "", "name-taken"},
		"a header":               {`x`, `[{"op":"header","name":"A","value":"3"},{"op":"header","name":"B","value":"4"}]`, "[{A 3} {B 4}]", ""},
		"a header goes":          {`x`, `[{"op":"header","name":"A"}]`, "[]", ""},
		"no header goes":         {`x`, `[{"op":"header","name":"C"}]`, "", "unchanged"},
		"a kind":                 {`x`, `[{"op":"kind","value":"new"}]`, "kind new", ""},
		"a kind that is none":    {`x`, `[{"op":"kind","value":"` + strings.Repeat("k", 200) + `"}]`, "", "invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			var rule []plan.Operation
			if err := json.Unmarshal([]byte(c.rule), &rule); err != nil {
				t.Fatal(err)
			}
			r, err := plan.NewRepair(rule)
			if err != nil {
				t.Fatal(err)
			}
			m := redrive.Message{Queue: "q", Body: []byte(c.body), Headers: headers}
			e, err := r.Edit(&m)
			got := ""
			switch {
			case err != nil:
				if got = err.Error(); errors.Is(err, redrive.ErrInvalid) {
					got = "invalid"
				}
				c.want = c.err
			case e.Body != nil:
				got = string(e.Body)
			case e.Headers != nil:
				list := []string{}
				for _, h := range *e.Headers {
					list = append(list, fmt.Sprintf("{%s %s}", h.Name, h.Value))
				}
				got = fmt.Sprint(list)
			case e.Kind != nil:
				got = "kind " + *e.Kind
			}
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if string(m.Body) != c.body || len(m.Headers) != 2 {
				t.Errorf("the message itself became %+v", m)
			}
		})
	}
}

func TestRepairsThatAreNone(t *testing.T) {
	for _, o := range []plan.Operation{
		{}, {Op: "add"}, set("x", "1"), set("$.x", ""), set("$.x", "{"), {Op: "remove"}, {Op: "remove", Path: "$.x", Value: json.RawMessage("1")},
		{Op: "rename", Path: "$.x"}, {Op: "rename", Path: "$[0]", To: "x"}, {Op: "replace", Path: "$.x"}, {Op: "replace", Path: "$.x", Match: "("},
		{Op: "header"}, {Op: "header", Name: "Redrive-Reply-To", Value: json.RawMessage(`"q"`)}, {Op: "header", Name: "x", Value: json.RawMessage(`1`)},
		{Op: "kind"}, {Op: "kind", Value: json.RawMessage(`null`)}, {Op: "kind", Value: json.RawMessage(`"x"`), Path: "$.x"},
	} {
		if _, err := plan.NewRepair([]plan.Operation{o}); !errors.Is(err, redrive.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := plan.NewRepair(make([]plan.Operation, plan.MaxOperations+1)); !errors.Is(err, redrive.ErrInvalid) {
		t.Errorf("too many: %v", err)
	}
}

// texts gives each dead letter a body by its number.
func texts(body func(n int) string) func(e *redrive.Entry) {
	n := 0
	return func(e *redrive.Entry) { n++; e.Body = []byte(body(n)) }
}

func repair(rule ...plan.Operation) plan.Request {
	return plan.Request{Action: driver.ActEdit, Query: redrive.Query{Queue: "q"}, Repair: rule}
}

func (m *morgue) body(id string) string { return string(m.Entry("q", id).Body) }

func TestPlanRepairs(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.Kill("q", 900, texts(func(n int) string { return fmt.Sprintf(`{"n":%d.0}`, n) }))
		m.Kill("other", 3, nil)
		id := m.create(repair(set("$.v", "2")))
		p := m.ends(id, time.Minute, plan.Done, 900, 0)
		if took := p.EndedAt.Sub(p.CreatedAt); took > time.Second {
			t.Errorf("900 took %s", took)
		}
		if e := m.Entry("q", "m00777"); string(e.Body) != `{"n":777.0,"v":2}` || string(e.Original.Body) != `{"n":777.0}` || e.Plan != id || e.State != redrive.StateDead {
			t.Errorf("%+v", e)
		}
		results, _, err := m.plans.Results(context.Background(), id, "", 10)
		if err != nil || len(results) != 10 || results[0].Outcome != plan.Repaired {
			t.Errorf("%+v, %v", results, err)
		}
		m.Kill("q", 5, nil)
		exactly := m.create(plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q", Plan: id}, Rate: 1000})
		m.ends(exactly, time.Minute, plan.Done, 900, 0)
	})
}

// A repair stops at the first message that it cannot repair, until it may go on past its like.
func TestPlanRepairStops(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.Kill("q", 100, texts(func(n int) string {
			switch {
			case n%10 == 5:
				return "not JSON"
			case n == 99:
				return `{"a":1,"b":2}`
			case n%10 == 3:
				return `{}`
			}
			return `{"a":1}`
		}))
		r := repair(plan.Operation{Op: "rename", Path: "$.a", To: "b"})
		r.Rate = 40
		id := m.create(r)
		deadtest.Pass(time.Minute)
		p := m.plan(id)
		if p.State != plan.Stopped || p.Done != 8 || p.Errors["not-json"] != 1 || !strings.Contains(p.Problem, "q/m00005 was refused: not-json") {
			t.Fatalf("%+v", p)
		}
		if err := m.plans.Resume(context.Background(), id, plan.Pace{}); err != nil {
			t.Fatal(err)
		}
		p = m.ends(id, time.Minute, plan.Done, 79, 21)
		if want := map[string]int64{"not-json": 10, "unchanged": 10, "name-taken": 1}; !maps.Equal(p.Errors, want) {
			t.Errorf("%v", p.Errors)
		}
	})
}

// Each message is changed once, though the notes of a step are lost and it is done again.
func TestPlanRepairsNothingTwice(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		m.Kill("q", 100, texts(func(int) string { return `{"a":"x"}` }))
		r := repair(plan.Operation{Op: "replace", Path: "$.a", Match: "x", With: "xx"})
		r.Rate = 50
		id := m.create(r)
		defer m.run(m.plans)()
		for range 4 {
			deadtest.Pass(500 * time.Millisecond)
			m.store.passes.Store(1)
			m.store.writes.Store(2)
		}
		m.store.writes.Store(0)
		m.ends(id, 5*time.Minute, plan.Done, 100, 0)
		for i := 1; i <= 100; i++ {
			if body := m.body(fmt.Sprintf("m%05d", i)); body != `{"a":"xx"}` {
				t.Errorf("m%05d is %s", i, body)
			}
		}
		back := m.create(plan.Request{Action: driver.ActEdit, Restore: id})
		m.ends(back, time.Minute, plan.Done, 100, 0)
	})
}

// An edit between the look at a message and its change wins.
func TestPlanRepairMeetsAnEdit(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.Kill("q", 3, texts(func(int) string { return `{}` }))
		m.store.beforeUpdate(func() {
			m.store.update.Store(nil)
			edit := driver.Change{Action: driver.ActEdit, Edit: &redrive.Edit{Body: []byte(`{"by":"hand"}`)}}
			if _, err := m.Update(context.Background(), driver.Selection{Refs: []redrive.Ref{{Queue: "q", ID: "m00002"}}}, edit, 1); err != nil {
				t.Error(err)
			}
		})
		p := m.ends(m.create(repair(set("$.v", "2"))), time.Minute, plan.Done, 2, 1)
		if p.Errors["conflict"] != 1 || m.body("m00002") != `{"by":"hand"}` {
			t.Errorf("%v, %s", p.Errors, m.body("m00002"))
		}
	})
}

// Of what was repaired, what is still dead and as it was left becomes what was published.
func TestPlanRestores(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		defer m.run(m.plans)()
		m.Kill("q", 200, texts(func(int) string { return `{"a":1}` }))
		id := m.create(repair(set("$.a", `"wrong"`)))
		m.ends(id, time.Minute, plan.Done, 200, 0)
		canary := m.create(plan.Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q", Plan: id}, Canary: 10, Rate: 1000})
		deadtest.Pass(time.Second)
		ds, err := m.store.Claim(context.Background(), driver.ClaimRequest{Queue: "q", Lane: redrive.LaneRedrive, Max: 3, Lease: time.Minute, Instance: "i"})
		if err != nil || len(ds) != 3 {
			t.Fatal(len(ds), err)
		}
		for _, d := range ds {
			m.store.Settle(context.Background(), []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}})
		}
		m.settleAll("q", redrive.OutcomeDead, cause) // the other 7
		deadtest.Pass(time.Minute)
		if p := m.plan(canary); p.State != plan.Stopped {
			t.Fatalf("%+v", p)
		}
		hand := driver.Change{Action: driver.ActEdit, Edit: &redrive.Edit{Body: []byte("by hand")}}
		if _, err := m.Update(context.Background(), driver.Selection{Refs: []redrive.Ref{{Queue: "q", ID: "m00150"}}}, hand, 1); err != nil {
			t.Fatal(err)
		}
		request := plan.Request{Action: driver.ActEdit, Restore: id}
		dry, err := m.plans.DryRun(context.Background(), request)
		if want := map[string]int64{"not-found": 3, "conflict": 1}; err != nil || dry.Total != 200 || !maps.Equal(dry.Refused, want) {
			t.Errorf("%+v, %v", dry, err)
		}
		p := m.ends(m.create(request), time.Minute, plan.Done, 196, 4)
		if want := map[string]int64{"not-found": 3, "conflict": 1}; !maps.Equal(p.Errors, want) {
			t.Errorf("%v", p.Errors)
		}
		// What died again bears the id of the restore now, and counts for its canary all the same.
		stopped := m.plan(canary)
		if progress, err := m.plans.Progress(context.Background(), &stopped); err != nil || progress != (plan.Progress{Delivered: 3, DiedAgain: 7, Complete: true}) {
			t.Errorf("%+v, %v", progress, err)
		}
		if e := m.Entry("q", "m00100"); string(e.Body) != `{"a":1}` || e.Original != nil {
			t.Errorf("%+v", e)
		}
		if e := m.Entry("q", ds[2].ID); e != nil {
			t.Errorf("%+v", e)
		}
		if m.body("m00150") != "by hand" {
			t.Errorf("what was edited since is %s", m.body("m00150"))
		}
		for _, r := range []plan.Request{{Action: driver.ActEdit, Restore: canary}, {Action: driver.ActEdit, Restore: id, Query: redrive.Query{Kind: "k"}}} {
			if _, err := m.plans.Create(context.Background(), r); !errors.Is(err, redrive.ErrInvalid) {
				t.Errorf("%+v: %v", r, err)
			}
		}
	})
}

func TestPlanRepairPreview(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		m.Kill("q", 1000, texts(func(n int) string {
			switch {
			case n <= 100:
				return "not JSON"
			case n == 120:
				return `{"long":"` + strings.Repeat("x", 100) + `"}`
			case n%2 == 0:
				return `{"v":2}`
			}
			return fmt.Sprintf(`{"n":%d}`, n)
		}))
		dry, err := m.plans.DryRun(context.Background(), repair(set("$.v", "2")))
		if err != nil {
			t.Fatal(err)
		}
		v := dry.Repair
		if v.Looked < 190 || v.Looked > 201 || v.Changed == 0 || v.Changed+v.Refused["not-json"]+v.Refused["unchanged"] != v.Looked || v.Refused["not-json"] == 0 || v.Refused["unchanged"] < 50 {
			t.Errorf("%+v", v)
		}
		if len(v.Diffs) != 8 || v.After <= v.Before {
			t.Errorf("%d diffs, %d to %d bytes", len(v.Diffs), v.Before, v.After)
		}
		seen := map[string]bool{}
		for _, d := range v.Diffs {
			seen[d.Before.ID] = true
			if strings.Contains(string(d.Before.Body), `"v"`) || !strings.Contains(string(d.After.Body), `"v":2`) {
				t.Errorf("%s to %s", d.Before.Body, d.After.Body)
			}
		}
		if len(seen) != 8 {
			t.Errorf("shown are %v", seen)
		}
		if dead, _ := m.Left("q"); dead != 1000 || m.Entry("q", "m00200").Original != nil {
			t.Error("the dry run changed something")
		}
	})
}

// Whoever may not see what is masked does not learn it by a repair.
func TestPlanRepairTellsNothing(t *testing.T) {
	inMorgue(t, func(m *morgue) {
		var masks []jsonmask.Path
		for _, s := range []string{"$.card.number", "$.items[1].secret"} {
			p, err := jsonmask.Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			masks = append(masks, p)
		}
		m.plans = plan.New(m.store, plan.Options{Instance: "masks", Views: func(string) plan.Finder { return m.store }, Shown: func(_ string, m *redrive.Message) []byte {
			shown, _, err := jsonmask.Apply(m.Body, masks)
			if err != nil {
				return []byte(jsonmask.Hidden)
			}
			return shown
		}})
		defer m.run(m.plans)()
		m.Kill("q", 1, texts(func(int) string {
			return `{"card":{"number":"4111","name":"A"},"items":[{},{"secret":"s","open":"o"}]}`
		}))
		for _, c := range []struct {
			rule    plan.Operation
			refused string
		}{
			{plan.Operation{Op: "rename", Path: "$.card", To: "cart"}, "masked"},
			{plan.Operation{Op: "rename", Path: "$.card.number", To: "no"}, "masked"},
			{plan.Operation{Op: "remove", Path: "$.items[0]"}, "masked"},
			{plan.Operation{Op: "replace", Path: "$..number", Match: "^41", With: "x"}, "masked"},
			{plan.Operation{Op: "replace", Path: "$..number", Match: "^42", With: "x"}, "masked"}, // as what matches
			{plan.Operation{Op: "replace", Path: "$..secret", Match: ".", With: "x"}, "masked"},
			{plan.Operation{Op: "replace", Path: "$..open", Match: "o", With: "x"}, ""},
			{plan.Operation{Op: "rename", Path: "$.card.name", To: "holder"}, ""},
			{set("$.card.number", `"0000"`), ""},
			{plan.Operation{Op: "remove", Path: "$.card"}, ""},
		} {
			r := repair(c.rule)
			r.View = "some"
			id := m.create(r)
			deadtest.Pass(time.Second)
			p := m.plan(id)
			if c.refused == "" && p.Done != 1 || c.refused != "" && p.Errors[c.refused] != 1 {
				t.Errorf("%+v: %+v", c.rule, p)
			}
			if dry, err := m.plans.DryRun(context.Background(), r); err != nil || c.refused != "" && dry.Repair.Refused[c.refused] != 1 {
				t.Errorf("%+v: %+v, %v", c.rule, dry.Repair, err)
			}
		}
		other := plan.New(m.store, plan.Options{})
		r := repair(set("$.a", "1"))
		r.View = "some"
		if _, err := other.Create(context.Background(), r); err == nil {
			t.Error("a process that does not know the view repairs through it")
		}
	})
}
