package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
	"github.com/redrive/redrive/plan"
)

// The secrets of the messages of [vault], by where they stand.
const (
	inBody   = "qbodyzxcvwert"
	inHeader = "qheadzxcvwert"
	inError  = "qfailzxcvwert"
	inAnswer = "qanszxcvwerty"
	inText   = "qtextzxcvwert" // a body that is not JSON
	inOpen   = "qopenzxcvwert" // a body that nothing masks, for those without read-payload
	inTenant = "qtenazxcvwert" // a header that nothing masks
)

// vault fills a store with messages, dead and waiting, that hold secrets, between others.
func vault(t *testing.T, store driver.Store) {
	t.Helper()
	quote := func(secret string) string { return fmt.Sprintf(`{"card":{"number":%q}}`, secret) }
	var put []redrive.Entry
	add := func(queue, body string) {
		text, answer, headers := "declined, having read "+quote(inError), quote(inAnswer), redrive.Headers{{Name: "Authorization", Value: []byte(inHeader)}, {Name: "Tenant", Value: []byte(inTenant)}}
		if queue == "open" {
			text, answer, headers = "declined", "", headers[1:]
		}
		died := time.Now().Add(-time.Hour).Add(time.Duration(len(put)) * time.Second)
		f := &redrive.Failure{At: died, Attempt: 1, Types: []string{"*errors.errorString"}, Message: text, Details: map[string]string{driver.DetailAnswer: answer}}
		f.Signature = driver.Signature(f)
		e := redrive.Entry{
			Message: redrive.Message{Queue: queue, ID: fmt.Sprintf("m-%d", len(put)), Body: []byte(body), Headers: headers},
			State:   redrive.StateDead, Reason: redrive.ReasonExhausted, DiedAt: died, History: redrive.History{Count: 1, First: f},
		}
		put = append(put, e)
		e.ID, e.State, e.Reason, e.DiedAt, e.Due = "w-"+e.ID, redrive.StateWaiting, 0, time.Time{}, died.Add(48*time.Hour)
		put = append(put, e)
	}
	for i := range 20 {
		add("cards", fmt.Sprintf(`{"card":{"number":"%d"},"shop":"plain"}`, i))
	}
	add("cards", fmt.Sprintf(`{"card":{"number":%q},"shop":"plain"}`, inBody))
	add("cards", "not JSON: "+inText)
	add("cards", `{"shop":"plain"}`)
	add("open", "unmasked: "+inOpen)
	errs, err := store.Apply(t.Context(), driver.Batch{Put: put, Entered: driver.EnteredImported})
	if err != nil || driver.FirstError(errs) != nil {
		t.Fatal(err, errs)
	}
}

// vaultConfig masks what vault holds in the queue cards; the queue open has no masks.
func vaultConfig(t *testing.T) *config.Config {
	c := parse(t, "queues: {cards: {mask: [$.card.number, \"header:authorization\"]}, open: {}}\ngrace: 100ms\narchive: "+t.TempDir())
	for name, scopes := range map[string][]config.Scope{"read": {config.ScopeRead}, "payload": {config.ScopeRead, config.ScopeReadPayload}, "purge": {config.ScopePurge},
		"redrive": {config.ScopeRedrive}, "operator": {config.ScopeRedrive, config.ScopePurge}, "admin": {config.ScopeAdmin}} {
		c.Tokens = append(c.Tokens, config.Token{Name: name, Hash: hash("secret-" + name), Scopes: scopes})
	}
	return c
}

func inStores(t *testing.T, test func(t *testing.T, store driver.Store)) {
	for name, open := range map[string]func(*testing.T) driver.Store{
		"sqlite": newStore, "memory": func(*testing.T) driver.Store { return memory.New() },
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// probe is a request that takes a filter.
type probe struct {
	op, method, path, body string
}

// probes are requests by every operation that takes a filter by text or header.
func probes(filter, value string) (all []probe) {
	v := url.QueryEscape(value)
	for _, rest := range []string{"", "&limit=1", "&queue=cards", "&queue=cards&limit=1", "&queue=open", "&reason=exhausted"} {
		all = append(all, probe{"listDeadLetters", http.MethodGet, "/v1/dead-letters?" + filter + "=" + v + rest, ""},
			probe{"listCauses", http.MethodGet, "/v1/causes?" + filter + "=" + v + rest, ""})
	}
	for _, rest := range []string{"", "&limit=1", "&state=waiting", "&state=dead", "&state=dead&limit=1"} {
		for _, queue := range []string{"cards", "open"} {
			all = append(all, probe{"listMessages", http.MethodGet, "/v1/queues/" + queue + "/messages?" + filter + "=" + v + rest, ""})
		}
	}
	for _, rest := range []string{"}", `,"queue":"cards"}`, `,"queue":"open","state":"waiting"}`} {
		all = append(all, probe{"createCount", http.MethodPost, "/v1/counts", fmt.Sprintf(`{"filter":{%q:%q%s}`, filter, value, rest)})
	}
	for _, what := range []string{`"action":"redrive"`, `"action":"redrive","max_redrives":1`, `"action":"archive"`, `"action":"drop"`} {
		for _, rest := range []string{`}`, `,"queue":"cards"},"dry_run":true`, `,"queue":"open"},"dry_run":true`} {
			all = append(all, probe{"createPlan", http.MethodPost, "/v1/plans", fmt.Sprintf(`{%s,"filter":{%q:%q%s}`, what, filter, value, rest)})
		}
	}
	for _, rest := range []string{`}`, `},"dry_run":true`} {
		all = append(all, probe{"createPlan", http.MethodPost, "/v1/plans", fmt.Sprintf(`{"action":"drop","filter":{%q:%q,"state":"waiting","queue":"cards"%s}`, filter, value, rest)})
	}
	return all
}

var (
	anyTime = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)
	varying = []string{"Date", "X-Request-Id", "Content-Length"} // the guess is in some answers, and times differ in length
)

// shown is all that a probe shows, of a plan also how it ended, without the guess itself.
func (d *rig) shown(p probe, guess string) string {
	d.t.Helper()
	answer := func(method, path, body string) (string, []byte) {
		resp, b := d.send(method, path, body)
		for _, name := range varying {
			resp.Header.Del(name)
		}
		return fmt.Sprint(resp.StatusCode, resp.Header, string(b)), b
	}
	all, b := answer(p.method, p.path, p.body)
	var plan wire.Plan
	switch {
	case json.Unmarshal(b, &plan) != nil || plan.ID == "":
	case p.op == "createCount":
		all = strings.ReplaceAll(all, plan.ID, "COUNT")
	default:
		path := "/v1/plans/" + plan.ID
		for !plan.Ended() {
			plan = get[wire.Plan](d, 200, http.MethodGet, path, "")
		}
		for _, path := range []string{path + "?progress=true", path + "/results"} {
			more, _ := answer(http.MethodGet, path, "")
			all += more
		}
		all = strings.ReplaceAll(all, plan.ID, "PLAN")
	}
	return anyTime.ReplaceAllString(strings.ReplaceAll(all, guess, "GUESS"), "TIME")
}

// Whoever guesses what they may not see learns nothing from any route that takes a
// filter: the whole answer to the right guess is the one to a wrong guess.
func TestFiltersTellNothingOfWhatIsHidden(t *testing.T) {
	masked := map[string]string{inBody: "body", inText: "body", inError: "text", inAnswer: "text", inHeader: "header"}
	hidden := map[string]string{inOpen: "body", inTenant: "header"}
	maps.Copy(hidden, masked)
	for token, secrets := range map[string]map[string]string{"read": hidden, "purge": hidden, "payload": masked, "redrive": masked, "operator": masked} {
		t.Run(token, func(t *testing.T) {
			inStores(t, func(t *testing.T, store driver.Store) {
				vault(t, store)
				d := start(t, vaultConfig(t), store)
				d.token = "secret-" + token
				for secret, filter := range secrets {
					prefixes := []int{6, len(secret)}
					name := ""
					if filter == "header" { // compared as a whole
						prefixes, name = prefixes[1:], "Authorization="
						if secret == inTenant {
							name = "Tenant="
						}
					}
					for _, n := range prefixes {
						right, wrong := secret[:n], secret[:n-1]+"Z"
						wrongs := probes(filter, name+wrong)
						for i, p := range probes(filter, name+right) {
							if a, b := d.shown(p, right), d.shown(wrongs[i], wrong); a != b {
								t.Fatalf("%s %s %s tells a right guess from a wrong one:\n%s\n%s", p.method, p.path, p.body, a, b)
							}
						}
					}
				}
				d.token = "secret-admin"
				for queue, n := range map[string]int64{"cards": 23, "open": 1} {
					if q := get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/"+queue, ""); q.Dead != n || q.Waiting.All != n {
						t.Errorf("guesses changed messages: %+v", q)
					}
				}
			})
		})
	}
}

// The probes above find what they look for if an administrator sends them, and they are
// all that there are.
func TestAnAdministratorFindsWhatIsMasked(t *testing.T) {
	d := start(t, vaultConfig(t), func() driver.Store { s := newStore(t); vault(t, s); return s }())
	d.token = "secret-admin"
	finds := make(map[string]bool)
	for secret, filter := range map[string]string{inBody: "body", inText: "body", inError: "text", "Authorization=" + inHeader: "header"} {
		wrong := secret[:len(secret)-1] + "Z"
		wrongs := probes(filter, wrong)
		for i, p := range probes(filter, secret) {
			if p.op == "createPlan" && !strings.Contains(p.body, "dry_run") || strings.Contains(p.path+p.body, "open") {
				continue
			}
			if d.shown(p, secret) == d.shown(wrongs[i], wrong) {
				t.Errorf("%s %s %s finds nothing", p.method, p.path, p.body)
			}
			finds[p.op] = true
		}
	}
	var doc described
	_, b := d.send(http.MethodGet, "/openapi.json", "")
	decode(t, b, &doc)
	for path, methods := range doc.Paths {
		for _, op := range methods {
			takes := strings.Contains(fmt.Sprint(op.RequestBody), "PlanRequest") || strings.Contains(fmt.Sprint(op.RequestBody), "CountRequest")
			for _, p := range op.Parameters {
				takes = takes || p.In == "query" && (p.Name == "text" || p.Name == "body" || p.Name == "header")
			}
			if takes != finds[op.OperationID] {
				t.Errorf("%s takes a filter: %t, and is probed: %t", path, takes, !takes)
			}
		}
	}
}

// What may be seen is found: errors by everyone who may read, and bodies and headers by
// those who may see them.
func TestFiltersFindWhatShows(t *testing.T) {
	inStores(t, func(t *testing.T, store driver.Store) {
		vault(t, store)
		d := start(t, vaultConfig(t), store)
		for _, c := range []struct {
			token, filter string
			want          int // of cards; negative: the filter is refused
		}{
			{"read", "text=declined", 23}, {"read", "text=plain", 0}, {"read", "body=plain", -1}, {"read", "text=" + inAnswer, 0}, {"payload", "text=" + inAnswer, 0},
			{"admin", "text=" + inAnswer, 23}, {"admin", "text=declined", 23}, {"read", "text=Declined", 0}, {"read", "header=Tenant", -1}, {"purge", "header=Tenant=x", -1},
			{"payload", "text=declined", 23}, {"payload", "text=plain", 0}, {"payload", "body=plain", 22}, {"payload", "header=Tenant", 23}, {"payload", "header=Tenant=" + inTenant, 23},
			{"payload", "header=Authorization", 23}, {"payload", "header=Tenant&body=plain", 22}, {"redrive", "body=%22***%22},%22shop", 21},
			{"admin", "body=" + inBody, 1}, {"admin", "header=Authorization=" + inHeader, 23},
		} {
			d.token = "secret-" + c.token
			for _, path := range []string{"/v1/dead-letters?queue=cards&limit=1000&", "/v1/queues/cards/messages?state=waiting&limit=1000&"} {
				if c.want < 0 {
					if p := d.refused(http.StatusForbidden, "forbidden", http.MethodGet, path+c.filter, ""); !strings.Contains(p.Detail, "read-payload") {
						t.Errorf("%+v", p)
					}
				} else if got := get[wire.List[wire.Message]](d, 200, http.MethodGet, path+c.filter, ""); len(got.Items) != c.want || !got.Complete || got.Next != "" {
					t.Errorf("%s finds %d by %s, complete %t; want %d", c.token, len(got.Items), path+c.filter, got.Complete, c.want)
				}
			}
			if c.want < 0 {
				d.refused(http.StatusForbidden, "forbidden", http.MethodGet, "/v1/causes?"+c.filter, "")
				continue
			}
			sum := int64(0)
			for _, g := range get[wire.List[wire.Cause]](d, 200, http.MethodGet, "/v1/causes?queue=cards&"+c.filter, "").Items {
				sum += g.Count
			}
			if sum != int64(c.want) {
				t.Errorf("%s counts %d by %s, want %d", c.token, sum, c.filter, c.want)
			}
		}
	})
}

// A search that looks at what shows has the pages and the causes of one that looks at
// everything.
func TestPagesOfWhatShows(t *testing.T) {
	inStores(t, func(t *testing.T, store driver.Store) {
		var put []redrive.Entry
		for i := range 100 {
			body := `{"word":"other"}`
			if i%7 < 3 {
				body = `{"word":"match"}`
			}
			f := &redrive.Failure{Types: []string{fmt.Sprint("*t", i%4)}, Message: "declined", Signature: fmt.Sprint("s", i%4)}
			put = append(put, redrive.Entry{Message: redrive.Message{Queue: "cards", ID: fmt.Sprintf("m-%03d", i), Body: []byte(body)}, State: redrive.StateDead,
				Reason: redrive.ReasonExhausted, DiedAt: time.Now().Add(time.Duration(i-200) * time.Second), History: redrive.History{Count: 1, First: f}})
		}
		if _, err := store.Apply(t.Context(), driver.Batch{Put: put}); err != nil {
			t.Fatal(err)
		}
		d := start(t, vaultConfig(t), store)
		for _, path := range []string{"/v1/dead-letters?body=match", "/v1/queues/cards/messages?body=match"} {
			var want []string
			for _, limit := range []int{1000, 1, 2, 5, 16, 43, 44} {
				for _, token := range []string{"admin", "payload"} {
					d.token = "secret-" + token
					var ids []string
					for after, more := "", true; more; {
						page := get[wire.List[wire.Message]](d, 200, http.MethodGet, fmt.Sprintf("%s&limit=%d&after=%s", path, limit, url.QueryEscape(after)), "")
						if len(page.Items) > limit || !page.Complete {
							t.Fatalf("a page of %d with %d, complete %t", limit, len(page.Items), page.Complete)
						}
						for i := range page.Items {
							ids = append(ids, page.Items[i].ID)
						}
						after, more = page.Next, page.Next != ""
					}
					if want == nil {
						want = ids
					}
					if len(ids) != 44 || !slices.Equal(ids, want) {
						t.Errorf("%s by %d with %s: %v", path, limit, token, ids)
					}
				}
			}
		}
		var want []byte
		for _, token := range []string{"admin", "payload"} {
			d.token = "secret-" + token
			_, got := d.send(http.MethodGet, "/v1/causes?body=match&limit=3", "")
			if want == nil {
				want = got
			}
			if string(got) != string(want) || !strings.Contains(string(got), `"complete":false`) {
				t.Errorf("causes: %s, want %s", got, want)
			}
		}
	})
}

// A page ends when much was looked at, and the next goes on there.
func TestASearchOfWhatShowsIsBounded(t *testing.T) {
	store := memory.New()
	large := []byte(strings.Repeat("x", 1<<20)) // hidden whole, as it is not JSON
	for i := range 100 {
		e := redrive.Entry{Message: redrive.Message{Queue: "cards", ID: fmt.Sprintf("m-%03d", i), Body: large}, State: redrive.StateDead,
			Reason: redrive.ReasonManual, DiedAt: time.Now().Add(time.Duration(i-200) * time.Second)}
		if i == 99 {
			e.Body = []byte(`{"word":"match"}`)
		}
		if _, err := store.Apply(t.Context(), driver.Batch{Put: []redrive.Entry{e}}); err != nil {
			t.Fatal(err)
		}
	}
	d := start(t, vaultConfig(t), store)
	d.token = "secret-operator"
	page := get[wire.List[wire.Message]](d, 200, http.MethodGet, "/v1/dead-letters?body=match", "")
	if len(page.Items) != 0 || page.Complete || page.Next == "" {
		t.Fatalf("%+v", page)
	}
	page = get[wire.List[wire.Message]](d, 200, http.MethodGet, "/v1/dead-letters?body=match&after="+url.QueryEscape(page.Next), "")
	if len(page.Items) != 1 || !page.Complete || page.Next != "" {
		t.Errorf("%+v", page)
	}
	if causes := get[wire.List[wire.Cause]](d, 200, http.MethodGet, "/v1/causes?body=match", ""); causes.Complete {
		t.Errorf("%+v", causes)
	}
	plan := get[wire.Plan](d, 201, http.MethodPost, "/v1/plans", `{"action":"drop","filter":{"body":"match"}}`)
	for !plan.Ended() {
		plan = get[wire.Plan](d, 200, http.MethodGet, "/v1/plans/"+plan.ID, "")
	}
	if plan.State != wire.PlanDone || plan.Done != 1 || !plan.TotalMore {
		t.Errorf("%+v", plan)
	}
}

// A plan keeps what its maker's filter may look at, also when another daemon carries it
// and what an administrator's plan looks for does not reach others.
func TestAPlanKeepsWhatItMayLookAt(t *testing.T) {
	store := memory.New()
	vault(t, store)
	plans := plan.New(store, plan.Options{Views: func(string) plan.Finder { return store }}) // nobody carries them out yet
	made := func(view, text string) string {
		p, err := plans.Create(context.Background(), plan.Request{Action: driver.ActDrop, Query: redrive.Query{Body: text}, View: view, Actor: "test"})
		if err != nil {
			t.Fatal(err)
		}
		return p.ID
	}
	restricted, errors, all := made("payload", inBody), made("errors", inOpen), made("", inText)
	d := start(t, vaultConfig(t), store)
	d.token = "secret-admin"
	for id, done := range map[string]int64{restricted: 0, errors: 0, all: 1} {
		d.eventually("the plan to end", func() bool { p := get[wire.Plan](d, 200, http.MethodGet, "/v1/plans/"+id, ""); return p.Ended() })
		if p := get[wire.Plan](d, 200, http.MethodGet, "/v1/plans/"+id, ""); p.Done != done || p.State != wire.PlanDone {
			t.Errorf("%+v", p)
		}
	}
	for token, shown := range map[string]bool{"admin": true, "payload": false, "read": false} {
		d.token = "secret-" + token
		for _, path := range []string{"/v1/plans", "/v1/plans/" + all} {
			if _, b := d.send(http.MethodGet, path, ""); strings.Contains(string(b), inText) != shown {
				t.Errorf("%s of %s: %s", path, token, b)
			}
		}
	}
}

// The errors that a plan tells of are masked.
func TestThePlansProblemIsMasked(t *testing.T) {
	store := memory.New()
	plan := plan.Plan{ID: "p-1", State: plan.Stopped, Problem: `1 of the canary's 1 died again of the same cause: cannot charge {"card":{"number":"` + inError + `"}}`}
	plan.Request.Action, plan.Request.Query.State = driver.ActRedrive, redrive.StateDead
	value, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Apply(t.Context(), driver.Batch{Records: []driver.RecordWrite{{Space: "plans", Key: plan.ID, Value: value}}}); err != nil {
		t.Fatal(err)
	}
	d := start(t, vaultConfig(t), store)
	d.token = "secret-read"
	for _, path := range []string{"/v1/plans", "/v1/plans/p-1"} {
		if _, b := d.send(http.MethodGet, path, ""); strings.Contains(string(b), inError) || !strings.Contains(string(b), "cannot charge") {
			t.Errorf("%s: %s", path, b)
		}
	}
}
