package daemon_test

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/pgtest"
	"github.com/redrive/redrive/internal/wire"
)

// The causes of these tests: more than fit into pages. Old ones are larger than the one that is new.
const (
	manyOld = 2500
	oldEach = 2
	newest  = "zz-new"
)

// manyCauses puts their dead letters.
func manyCauses(t *testing.T, store driver.Store) {
	t.Helper()
	died := time.Now().Add(-2 * time.Hour)
	var put []redrive.Entry
	add := func(id, signature string, at time.Time) {
		e := redrive.Entry{Message: redrive.Message{Queue: "sms", ID: id}, State: redrive.StateDead, Reason: redrive.ReasonPermanent, DiedAt: at}
		e.History.Record(&redrive.Failure{At: at, Attempt: 1, Message: "m", Signature: signature}, true)
		put = append(put, e)
	}
	for i := range manyOld {
		for j := range oldEach {
			add(fmt.Sprintf("d-%d-%d", i, j), fmt.Sprintf("old-%d", i), died)
		}
	}
	add("d-new", newest, time.Now())
	for part := range slices.Chunk(put, 500) {
		errs, err := store.Apply(t.Context(), driver.Batch{Put: part, Entered: driver.EnteredImported})
		if err := cmp.Or(err, driver.FirstError(errs)); err != nil {
			t.Fatal(err)
		}
	}
}

// What works on all causes sees also those beyond the largest 1,000: alerts, states, reports, listeners and
// the ledger.
func TestMoreCausesThanAPage(t *testing.T) {
	for name, open := range map[string]func(*testing.T) driver.Store{
		"sqlite": newStore,
		"PostgreSQL": func(t *testing.T) driver.Store {
			s, err := backend.Open(t.Context(), pgtest.Start(t, nil).URL())
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &crooked{Store: open(t)}
			manyCauses(t, s)
			e := httptest.NewServer(http.NotFoundHandler())
			t.Cleanup(e.Close)
			d := start(t, parse(t, fmt.Sprintf("queues: {sms: {}, mail: {}}\nalerts: {receivers: [{webhook: %q, allow_private: true}]}", e.URL)), s)

			d.eventually("the newest cause is an alert", func() bool {
				all := get[wire.Alerts](d, 200, http.MethodGet, "/v1/alerts", "").Items
				return slices.ContainsFunc(all, func(a wire.Alert) bool { return a.Subject == "cause/sms/"+newest+"/permanent" }) && !strings.Contains(fmt.Sprint(all), "old-")
			})
			if list := get[wire.List[wire.Cause]](d, 200, http.MethodGet, "/v1/causes?limit=1000", ""); len(list.Items) != 1000 || list.Complete || list.Items[999].Count != oldEach {
				t.Errorf("%d causes, complete %t", len(list.Items), list.Complete)
			}
			get[wire.CauseLife](d, 200, http.MethodPut, "/v1/causes/"+newest, `{"queue":"sms","state":"acknowledged"}`)
			if list := get[wire.List[wire.Cause]](d, 200, http.MethodGet, "/v1/causes?life=acknowledged", ""); len(list.Items) != 1 || !list.Complete || list.Items[0].Signature != newest {
				t.Errorf("acknowledged: %+v", list)
			}
			if list := get[wire.List[wire.Cause]](d, 200, http.MethodGet, "/v1/causes?life=new&limit=10", ""); len(list.Items) != 10 || list.Complete {
				t.Errorf("new: %+v", list)
			}

			r := get[wire.Report](d, 200, http.MethodGet, "/v1/report?since=1h", "")
			if r.CausesDead != manyOld+1 || r.CausesDied != 1 || r.Died != 1 || r.DiedMore || len(r.Causes) != 1000 || !r.CausesMore || r.Causes[0].Signature != newest || r.Causes[0].Count != 1 {
				t.Errorf("%d causes dead, %d died, %d listed; first %+v", r.CausesDead, r.CausesDied, len(r.Causes), r.Causes[0])
			}

			l := d.listen("?topics=causes")
			if n := strings.Count(l.whole(), "\n"); n != manyOld+1 {
				t.Errorf("listeners hear of %d causes", n)
			}
			get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"drop","filter":{"queue":"sms","signature":"old-7"},"rate":"1000/s"}`)
			for e := l.next(); ; e = l.next() { // nothing else goes
				if e.Removed {
					if e.Key != "sms/permanent/old-7" {
						t.Errorf("%+v", e)
					}
					break
				}
			}

			verify := func() wire.Verified { return get[wire.Verified](d, 200, http.MethodGet, "/v1/verify", "") }
			if v := verify(); !v.Balanced {
				t.Errorf("%+v", v)
			}
			s.bend.Store(true)
			if v := verify(); v.Balanced || !strings.Contains(fmt.Sprint(v.Queues), "causes") {
				t.Errorf("%+v", v)
			}
		})
	}
}

// crooked counts one dead letter of the newest cause twice.
type crooked struct {
	driver.Store
	bend atomic.Bool
}

func (s *crooked) Unwrap() any { return s.Store }

func (s *crooked) Causes(ctx context.Context, q redrive.Query) ([]driver.Cause, bool, error) {
	list, all, err := s.Store.Causes(ctx, q)
	for i := range list {
		if s.bend.Load() && list[i].Signature == newest {
			list[i].Count++
		}
	}
	return list, all, err
}

// seriesless is a store in which no cause has a series of its own.
type seriesless struct{ driver.Store }

func (s seriesless) Unwrap() any { return s.Store }

func (seriesless) Deaths(context.Context, redrive.Query) ([]driver.Deaths, error) { return nil, nil }

// A cause that shares its series with others is noticed again when as many die of it as was said.
func TestAnIgnoredCauseWithoutASeries(t *testing.T) {
	inStores(t, func(t *testing.T, store driver.Store) {
		d := start(t, vaultConfig(t), seriesless{store})
		d.token = "secret-redrive"
		for how, answer := range map[string]string{`"more":3`: `{"error":"more"}`, `"rate":1`: `{"error":"rate"}`} {
			dies := func(id string, ago time.Duration) string {
				return deadOf(t, store, "open", how[1:5]+id, answer, func(e *redrive.Entry) { e.DiedAt = time.Now().Add(-ago) }).Signature
			}
			signature := dies("-before", time.Hour)
			get[wire.CauseLife](d, 200, http.MethodPut, "/v1/causes/"+signature, `{"queue":"open","state":"ignored",`+how+`}`)
			for n := 1; n <= 3; n++ {
				dies(fmt.Sprint(n), 0)
				want := map[bool]string{true: wire.CauseRegressed, false: wire.CauseIgnored}[n == 3]
				if c := get[wire.List[wire.Cause]](d, 200, http.MethodGet, "/v1/causes?signature="+signature, "").Items; len(c) != 1 || c[0].State != want {
					t.Errorf("%s, after %d: %+v", how, n, c)
				}
			}
		}
	})
}

// A decision is about all reasons of a signature, or about one of them; the next one about all is in
// place of it.
func TestADecisionAboutAReason(t *testing.T) {
	inStores(t, func(t *testing.T, store driver.Store) {
		before := time.Now().Add(-10 * time.Minute)
		signature := deadOf(t, store, "open", "a", "no", func(e *redrive.Entry) { e.DiedAt = before }).Signature
		deadOf(t, store, "open", "b", "no", func(e *redrive.Entry) { e.DiedAt, e.Reason = before, redrive.ReasonExhausted })
		d := start(t, vaultConfig(t), store)
		d.token = "secret-redrive"
		for _, step := range []struct{ change, permanent, exhausted string }{
			{`"state":"acknowledged"`, "acknowledged", "acknowledged"},
			{`"state":"resolved","reason":"exhausted"`, "acknowledged", "resolved"},
			{`"state":"new","reason":"permanent"`, "new", "resolved"},
			{`"state":"acknowledged"`, "acknowledged", "acknowledged"},
			{`"state":"new","reason":"exhausted"`, "acknowledged", "new"},
			{`"state":"new"`, "new", "new"},
		} {
			get[wire.CauseLife](d, 200, http.MethodPut, "/v1/causes/"+signature, `{"queue":"open",`+step.change+`}`)
			for _, c := range get[wire.List[wire.Cause]](d, 200, http.MethodGet, "/v1/causes?queue=open", "").Items {
				if want := map[redrive.Reason]string{redrive.ReasonPermanent: step.permanent, redrive.ReasonExhausted: step.exhausted}[c.Reason]; c.State != want {
					t.Errorf("after %s: %s is %s, want %s", step.change, c.Reason, c.State, want)
				}
			}
		}
		d.refused(400, "invalid-json", http.MethodPut, "/v1/causes/"+signature, `{"queue":"open","state":"acknowledged","reason":"none"}`)
	})
}

// A report on a plan over named messages has their causes only, and one on what followed from it the same.
func TestReportOfNamedMessages(t *testing.T) {
	inStores(t, func(t *testing.T, store driver.Store) {
		ours := deadOf(t, store, "sms", "a", `{"error":"ours"}`).Signature
		deadOf(t, store, "sms", "b", `{"error":"another"}`)
		deadOf(t, store, "mail", "a", `{"error":"another queue"}`)
		d := start(t, parse(t, "queues: {sms: {}, mail: {}}"), store)
		for _, body := range []string{`{"action":"repair","repair":[{"op":"set","path":"$.n","value":2}],"refs":["sms/a"]}`, `{"action":"redrive","refs":["sms/a"],"rate":"1000/s"}`} {
			p := get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", body)
			d.eventually("it has ended", func() bool {
				return get[wire.Plan](d, 200, http.MethodGet, "/v1/plans/"+p.ID, "").State == wire.PlanDone
			})
			r := get[wire.Report](d, 200, http.MethodGet, "/v1/report?plan="+p.ID, "")
			if len(r.Causes) != 1 || r.Causes[0].Signature != ours || r.Causes[0].Queue != "sms" || r.CausesUnknown || r.Died != 1 {
				t.Errorf("%s: %+v", body, r.Causes)
			}
		}
		p := get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"drop","refs":["mail/a"]}`)
		d.eventually("it is dropped", func() bool {
			return get[wire.Plan](d, 200, http.MethodGet, "/v1/plans/"+p.ID, "").State == wire.PlanDone
		})
		if r := get[wire.Report](d, 200, http.MethodGet, "/v1/report?plan="+p.ID, ""); len(r.Causes) != 0 || !r.CausesUnknown {
			t.Errorf("%+v", r)
		}
	})
}

// Of plans of retries a report says what became of what they let go.
func TestReportOfARetry(t *testing.T) {
	d := start(t, parse(t, "queues: {sms: {}}"), newStore(t))
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/sms/messages", "x", "redrive-id", "m")
	d.work("sms", `"outcome":"retry","after":"1h","failure":{"message":"later"}`)
	p := get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"retry","filter":{"queue":"sms","state":"waiting"},"rate":"1000/s"}`)
	d.eventually("it is done", func() bool { return get[wire.Plan](d, 200, http.MethodGet, "/v1/plans/"+p.ID, "").Done == 1 })
	d.work("sms", `"outcome":"done"`)
	_, md := d.send(http.MethodGet, "/v1/report?format=markdown", "")
	if !strings.Contains(string(md), "- became: 1 delivered, 0 dead again, 0 waiting") {
		t.Errorf("%s", md)
	}
}

// Queues come in pages where a limit is given.
func TestQueuesInPages(t *testing.T) {
	d := start(t, parse(t, "queues: {a: {}, b: {}, c: {}, d: {}, e: {}}"), newStore(t))
	var names []string
	pages := 0
	for after := ""; pages == 0 || after != ""; pages++ {
		page := get[wire.List[wire.Queue]](d, 200, http.MethodGet, "/v1/queues?limit=2&after="+after, "")
		for _, q := range page.Items {
			names = append(names, q.Queue)
		}
		after = page.Next
	}
	if pages != 3 || strings.Join(names, "") != "abcde" {
		t.Errorf("%q in %d pages", names, pages)
	}
	if all := get[wire.List[wire.Queue]](d, 200, http.MethodGet, "/v1/queues", ""); len(all.Items) != 5 || all.Next != "" {
		t.Errorf("%+v", all)
	}
	d.refused(400, "invalid", http.MethodGet, "/v1/queues?after=No+Queue", "")
	d.refused(400, "invalid", http.MethodGet, "/v1/queues?limit=0", "")
}

// The audit log says when it knows only at least how many messages a plan is about.
func TestTheAuditLogSaysAtLeast(t *testing.T) {
	store := newStore(t)
	many(t, store, "open", redrive.Examined+1000)
	d := start(t, vaultConfig(t), store).as("secret-admin")
	p := get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"redrive","filter":{"queue":"open","body":"needle"},"rate":"1/s"}`)
	log := get[wire.List[wire.AuditEntry]](d, 200, http.MethodGet, "/v1/audit?action=plan+redrive", "").Items
	if len(log) != 1 || !p.TotalMore || !log[0].CountMore || log[0].Count != p.Total {
		t.Errorf("%+v of %+v", log, p)
	}
	get[wire.Plan](d, 200, http.MethodPost, "/v1/plans/"+p.ID+"/cancel", "")
}

// A count is cancelled by the token that began it, or an admin.
func TestWhoCancelsACount(t *testing.T) {
	s := &gatedStore{Store: newStore(t), gate: make(chan struct{})}
	many(t, s, "open", redrive.Examined+1000)
	d := start(t, vaultConfig(t), s)
	for _, by := range []string{"secret-read", "secret-admin"} {
		c := get[wire.Count](d.as("secret-read"), 202, http.MethodPost, "/v1/counts", `{"filter":{"queue":"open","kind":"k"}}`)
		d.as("secret-purge").refused(403, "forbidden", http.MethodDelete, "/v1/counts/"+c.ID, "")
		if c = get[wire.Count](d.as(by), 200, http.MethodDelete, "/v1/counts/"+c.ID, ""); c.State != wire.CountCancelled {
			t.Errorf("by %s: %+v", by, c)
		}
	}
}
