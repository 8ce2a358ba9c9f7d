package plan

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

func TestPlanRequestCheck(t *testing.T) {
	ok := Request{Action: driver.ActRedrive}
	with := func(change func(r *Request)) Request {
		r := ok
		change(&r)
		return r
	}
	for name, r := range map[string]Request{
		"no action":            {},
		"an edit":              {Action: driver.ActEdit},
		"redrive of waiting":   with(func(r *Request) { r.Query.State = redrive.StateWaiting }),
		"drop of leased":       {Action: driver.ActDrop, Query: redrive.Query{State: redrive.StateLeased}},
		"a filter on plans":    with(func(r *Request) { r.Query.NotPlan = "x" }),
		"names and a filter":   with(func(r *Request) { r.Refs, r.Query.Kind = []redrive.Ref{{Queue: "q", ID: "m"}}, "k" }),
		"a bad name":           with(func(r *Request) { r.Refs = []redrive.Ref{{Queue: "q", ID: "a/b"}} }),
		"drop to a queue":      {Action: driver.ActDrop, To: "other"},
		"archive uncertain":    {Action: driver.ActArchive, ConfirmUncertain: true},
		"a bad target":         with(func(r *Request) { r.To = "No Queue" }),
		"a bad queue":          with(func(r *Request) { r.Query.Queue = "No Queue" }),
		"a negative rate":      with(func(r *Request) { r.Rate = -1 }),
		"a rate without bound": with(func(r *Request) { r.Rate = math.Inf(1) }),
		"no rate at all":       with(func(r *Request) { r.Rate = math.NaN() }),
		"a negative canary":    with(func(r *Request) { r.Canary = -1 }),
		"a huge canary":        with(func(r *Request) { r.Canary = 1000 }),
		"a canary of a drop":   {Action: driver.ActDrop, Canary: 3},
		"negative redrives":    with(func(r *Request) { r.MaxRedrives = -1 }),
		"a long actor":         with(func(r *Request) { r.Actor = strings.Repeat("x", 300) }),
	} {
		if err := r.check(); !errors.Is(err, redrive.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, r := range []Request{
		ok, with(func(r *Request) { r.Query = redrive.Query{State: redrive.StateDead, After: "x", Limit: 7} }),
		with(func(r *Request) { r.All, r.Query.Queue = true, "q" }), with(func(r *Request) { r.All, r.Refs = true, []redrive.Ref{{Queue: "q", ID: "m"}} }),
	} {
		if err := r.bounded(); !errors.Is(err, redrive.ErrInvalid) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	for _, r := range []Request{
		with(func(r *Request) { r.All = true }), with(func(r *Request) { r.All, r.Query.State = true, redrive.StateWaiting }), with(func(r *Request) { r.Query.Queue = "q" }),
	} {
		if err := r.bounded(); err != nil {
			t.Errorf("%+v: %v", r, err)
		}
	}
	for name, r := range map[string]Request{
		"everything dead": ok,
		"a filter":        with(func(r *Request) { r.Query = redrive.Query{Queue: "q", After: "x", Limit: 7, Bodies: true} }),
		"names":           with(func(r *Request) { r.Refs = []redrive.Ref{{Queue: "q", ID: "m"}} }),
		"drop of waiting": {Action: driver.ActDrop, Query: redrive.Query{State: redrive.StateWaiting}},
	} {
		if err := r.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if r.Rate != DefaultRate || r.Query.State == 0 || r.Query.After != "" || r.Query.Limit != 0 || r.Query.Bodies {
			t.Errorf("%s: defaults: %+v", name, r)
		}
	}
}

func TestPlanFreezesItsCutoff(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for _, c := range []struct {
		name        string
		until, want time.Time
	}{
		{"now", time.Time{}, now},
		{"an earlier one was asked for", now.Add(-time.Hour), now.Add(-time.Hour)},
		{"not later than now", now.Add(time.Hour), now},
	} {
		r := Request{Action: driver.ActRedrive, Query: redrive.Query{Until: c.until}}
		if err := r.check(); err != nil {
			t.Fatal(err)
		}
		p := newPlan("p", &r, now)
		if q := p.query(5); !q.Until.Equal(c.want) || q.NotPlan != "p" || q.State != redrive.StateDead || q.Limit != 5 || p.change().Plan != "p" {
			t.Errorf("%s: %+v", c.name, q)
		}
	}
}

func TestPlanPace(t *testing.T) {
	for _, c := range []struct {
		rate  float64
		batch int
		pace  time.Duration
	}{
		{0.1, 1, 10 * time.Second}, {1, 1, time.Second}, {50, 13, 260 * time.Millisecond}, {100, 25, 250 * time.Millisecond}, {100_000, planBatch, 5 * time.Millisecond},
	} {
		p := Plan{Request: Request{Rate: c.rate}}
		if n := p.batch(); n != c.batch || p.pace(n, time.Time{}) != c.pace {
			t.Errorf("%v/s: batches of %d each %s, want %d each %s", c.rate, n, p.pace(n, time.Time{}), c.batch, c.pace)
		}
	}
}

// A plan changes its state only in the ways there are, and counts everything once.
func TestPlanStateMachine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(1_700_000_000, 0)
		r := Request{Action: driver.ActRedrive, Rate: 1}
		p := newPlan("p", &r, now)
		var done, failed int64
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now = now.Add(time.Second)
			before := p
			if rapid.Bool().Draw(t, "step of a runner") {
				var batch []planResult
				for range rapid.IntRange(0, 5).Draw(t, "results") {
					err := rapid.SampledFrom([]error{nil, nil, redrive.ErrLoop, redrive.ErrUncertain, redrive.ErrNotFound, errors.New("disk 7 is bad"), errors.New("disk 8 is bad")}).Draw(t, "result")
					batch = append(batch, planResult{err: err})
					if err == nil {
						done++
					} else {
						failed++
					}
				}
				p.Pending, p.Taken = 1, p.Taken || rapid.IntRange(0, 9).Draw(t, "end") == 0
				p.count(batch, now)
				if before.State.Final() && p.State != before.State || p.State != before.State && (p.State != Done || !p.Taken) || p.Pending != 0 {
					t.Fatalf("a step made %+v of %+v", p, before)
				}
			} else {
				to := rapid.SampledFrom([]State{Running, Paused, Cancelled}).Draw(t, "to")
				changed, err := p.set(to, now)
				switch {
				case before.State == to && (changed || err != nil),
					before.State != to && before.State.Final() && (!errors.Is(err, redrive.ErrState) || p.State != before.State),
					before.State != to && !before.State.Final() && (!changed || err != nil || p.State != to):
					t.Fatalf("%s to %s: %v, %v, now %s", before.State, to, changed, err, p.State)
				}
			}
			if p.State.Final() == p.EndedAt.IsZero() {
				t.Fatalf("a plan that is %s ended at %s", p.State, p.EndedAt)
			}
		}
		var counted int64
		for _, n := range p.Errors {
			counted += n
		}
		if p.Done != done || p.Failed != failed || counted != failed || p.Errors["disk <n> is bad"] > failed {
			t.Fatalf("%d done and %d failed became %+v", done, failed, p)
		}
	})
}

func TestPlanCountsABoundedNumberOfErrors(t *testing.T) {
	var p Plan
	letters := "abcdefghijklmnopqrstuvwxyz"
	for i := range letters {
		p.countError(errors.New("error " + letters[i:i+1]))
	}
	if len(p.Errors) > maxPlanErrors+1 || p.Errors["other"] != int64(len(letters)-maxPlanErrors) {
		t.Errorf("%v", p.Errors)
	}
}

func TestPlanRecord(t *testing.T) {
	at := time.Unix(1_700_000_000, 123).UTC()
	p := Plan{ID: "p", State: Paused, Cutoff: at, Total: 7, TotalMore: true, Done: 3, Failed: 2, Errors: map[string]int64{"loop": 2},
		Problem: "none", CreatedAt: at, UpdatedAt: at, EndedAt: at, ReleasedBy: "you", ReleasedAt: at, Cursor: "c", Named: 2, Taken: true, Records: 3, Pending: 1,
		Canary: &Canary{Stage: StageRamp, Since: at, Size: 4, Delivered: 2, Dead: 1, Waiting: 1, Record: 1}, Causes: []string{"s"}, Measured: Speed{At: at, Done: 3, Rate: 1.5},
		Request: Request{Action: driver.ActRedrive, Query: redrive.Query{Queue: "q", State: redrive.StateDead, Reason: redrive.ReasonExhausted, Since: at, Text: "t"},
			Refs: []redrive.Ref{{Queue: "q", ID: "a"}, {Queue: "q.x", ID: "b"}}, To: "other", NewID: true, ConfirmUncertain: true, MaxRedrives: 3, Rate: 2.5, Canary: 4, Actor: "me"}}
	value, err := encodePlan(&p)
	if err != nil {
		t.Fatal(err)
	}
	back, err := decodePlan(&driver.Record{Key: "p", Value: value, Version: 9})
	if err != nil || back.version != 9 {
		t.Fatal(back.version, err)
	}
	if diff := cmp.Diff(p, back, cmpopts.IgnoreUnexported(Plan{})); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(string(value), `"action":"redrive"`) || !strings.Contains(string(value), `"q.x/b"`) {
		t.Errorf("%s", value)
	}
	if _, err := decodePlan(&driver.Record{Key: "p", Value: []byte("{")}); !errors.Is(err, redrive.ErrCorrupt) {
		t.Errorf("a broken record: %v", err)
	}
}
