package ui

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/wire"
)

// routes are all pages, and all that they can do. What depends on it, such as the test that
// tries each form from another site, is derived from here.
var routes = []route{
	{method: http.MethodGet, path: "/{$}", live: true, serve: showNow},
	{method: http.MethodGet, path: "/causes", params: []string{"queue", "state", "since", "sort"}, live: true, serve: showCauses},
	{method: http.MethodGet, path: "/causes/{signature}", params: []string{"queue"}, serve: showCause},
	{method: http.MethodPost, path: "/causes/{signature}", serve: changeCause},
	{method: http.MethodGet, path: "/dead", params: append(wire.FieldNames("state"), "after"), serve: showDead},
	{method: http.MethodGet, path: "/m/{queue}/{id}", params: []string{"as", "in"}, serve: showMessage},
	{method: http.MethodGet, path: "/m/{queue}/{id}/body", serve: sendBody},
	{method: http.MethodGet, path: "/m/{queue}/{id}/edit", serve: showEdit},
	{method: http.MethodPost, path: "/m/{queue}/{id}/edit", large: true, serve: edit},
	{method: http.MethodPost, path: "/m/{queue}/{id}/drop", serve: dropOne},
	{method: http.MethodGet, path: "/redrive", params: wire.FieldNames("state"), serve: showRedrive},
	{method: http.MethodPost, path: "/redrive", serve: redriveThese},
	{method: http.MethodGet, path: "/drop", params: wire.FieldNames("state"), serve: showDrop},
	{method: http.MethodPost, path: "/drop", serve: dropThese},
	{method: http.MethodGet, path: "/queues", params: []string{"name"}, live: true, serve: showQueues},
	{method: http.MethodGet, path: "/queues/{queue}", live: true, serve: showQueue},
	{method: http.MethodGet, path: "/queues/{queue}/waiting", params: []string{"kind", "key", "after"}, serve: showWaiting},
	{method: http.MethodGet, path: "/queues/{queue}/processing", serve: showProcessing},
	{method: http.MethodPost, path: "/queues/{queue}/pause", serve: pauseQueue},
	{method: http.MethodPost, path: "/queues/{queue}/resume", serve: resumeQueue},
	{method: http.MethodGet, path: "/plans", params: []string{"state"}, live: true, serve: showPlans},
	{method: http.MethodGet, path: "/plans/{id}", live: true, serve: showPlan},
	{method: http.MethodGet, path: "/plans/{id}/results", params: []string{"outcome", "after"}, serve: showResults},
	{method: http.MethodPost, path: "/plans/{id}/{act}", serve: controlPlan},
	{method: http.MethodGet, path: "/repairs/new", params: wire.FieldNames("state"), serve: showRepair},
	{method: http.MethodPost, path: "/repairs/new", large: true, serve: repairThese},
	{method: http.MethodGet, path: "/archive", params: wire.FieldNames("state"), serve: showArchive},
	{method: http.MethodPost, path: "/archive", serve: archiveThese},
	{method: http.MethodGet, path: "/queues/{queue}/purge", serve: showPurge},
	{method: http.MethodPost, path: "/queues/{queue}/purge", serve: purgeQueue},
	{method: http.MethodPost, path: "/queues/{queue}/retry", serve: retryNow},
	{method: http.MethodGet, path: "/report", params: []string{"since", "plan"}, serve: showReport},
	{method: http.MethodGet, path: "/report.md", params: []string{"since", "plan"}, serve: sendReport},
	{method: http.MethodPost, path: "/theme", session: true, serve: setTheme},
	{method: http.MethodGet, path: "/ledger", serve: showLedger},
	{method: http.MethodGet, path: "/audit", params: []string{"actor", "action", "queue", "plan", "since", "until", "after"}, serve: showAudit},
	{method: http.MethodGet, path: "/guards", serve: showGuards},
	{method: http.MethodGet, path: "/sessions", params: []string{"after"}, serve: showSessions},
	{method: http.MethodGet, path: "/config", serve: showConfig},
	{method: http.MethodGet, path: "/login", params: []string{"next", "link"}, session: true, serve: showLogin},
	{method: http.MethodPost, path: "/login", session: true, serve: logIn},
	{method: http.MethodPost, path: "/logout", session: true, serve: logOut},
}

// queues returns the queues that the caller may use.
func (v *visit) queues() ([]wire.Queue, error) {
	list, err := get[wire.List[wire.Queue]](v, at("queues"), nil)
	return list.Items, err
}

// maxConfined bounds the queues that are asked one by one, for a caller who cannot ask about all.
const maxConfined = 50

// causes returns the causes that match, of all queues that the caller may use.
func (v *visit) causes(queues []wire.Queue, query url.Values) (all []wire.Cause, complete bool, err error) {
	query.Set("limit", strconv.Itoa(redrive.MaxPage))
	if query.Get("queue") != "" || !v.who.confined() {
		list, err := get[wire.List[wire.Cause]](v, at("causes"), query)
		return list.Items, list.Complete && len(list.Items) < redrive.MaxPage, err
	}
	asked := 0
	complete = true
	for i := range queues {
		if queues[i].Dead == 0 {
			continue
		}
		if asked++; asked > maxConfined {
			return all, false, nil
		}
		query.Set("queue", queues[i].Queue)
		list, err := get[wire.List[wire.Cause]](v, at("causes"), query)
		if err != nil {
			return nil, false, err
		}
		all, complete = append(all, list.Items...), complete && list.Complete
	}
	return all, complete, nil
}

// Bounds of the verdicts on a page that lists causes.
const (
	listVerdicts  = 20
	verdictSample = "20"
	verdictsAt    = 4 // once
)

// verdicts returns what the first causes of a list look like, by a small sample. A verdict
// that cannot be had is left out: the list is worth more than that.
func (v *visit) verdicts(causes []wire.Cause, most int) map[string]string {
	all := make(map[string]string)
	var mu sync.Mutex
	var asks sync.WaitGroup
	slots := make(chan struct{}, verdictsAt)
	for i := range causes[:min(len(causes), most)] {
		c := &causes[i]
		asks.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			one, err := v.verdict(c)
			if err == nil {
				mu.Lock()
				all[verdictKey(c)] = one.Verdict
				mu.Unlock()
			}
		})
	}
	asks.Wait()
	return all
}

func (v *visit) verdict(c *wire.Cause) (_ wire.Verdict, err error) {
	defer v.caught(&err)
	return get[wire.Verdict](v, at("causes", c.Signature, "verdict"), url.Values{"queue": {c.Queue}, "sample": {verdictSample}})
}

func showNow(v *visit) error {
	v.title = "Now"
	queues, err := v.queues()
	if err != nil {
		return err
	}
	causes, _, err := v.causes(queues, url.Values{})
	if err != nil {
		return err
	}
	plans, err := get[wire.List[wire.Plan]](v, at("plans"), nil)
	if err != nil {
		return err
	}
	_, line := v.ledger()
	sortCauses(causes, sortGrowing)
	var growing []wire.Cause
	for i := range causes {
		if causes[i].Growing && len(growing) < nowGrowing {
			growing = append(growing, causes[i])
		}
	}
	v.show(http.StatusOK, "now", viewNow(&nowIn{
		queues: queues, causes: causes, verdicts: v.verdicts(growing, nowGrowing), plans: plans.Items, ledger: line, now: v.now,
	}))
	return nil
}

// Orders are checked, as everything in a link is.
func order(s string) error {
	switch s {
	case "", sortGrowing, sortCount, sortNew:
		return nil
	}
	return bad("sort "+strconv.Quote(s), "use growing, count or new")
}

func showCauses(v *visit) error {
	v.title = "Causes"
	q := v.query
	if err := order(q.Get("sort")); err != nil {
		return err
	}
	queues, err := v.queues()
	if err != nil {
		return err
	}
	ask := url.Values{}
	for page, api := range map[string]string{"queue": "queue", "since": "since", "state": "life"} {
		if value := q.Get(page); value != "" {
			ask.Set(api, value)
		}
	}
	causes, complete, err := v.causes(queues, ask)
	if err != nil {
		return err
	}
	sortCauses(causes, q.Get("sort"))
	verdicts := listVerdicts
	if q.Get("since") != "" { // no counter knows these: as many were looked at as a page may
		verdicts = 0
	}
	v.show(http.StatusOK, "causes", viewCauses(&causesIn{
		causes: causes, queues: queues, verdicts: v.verdicts(causes, verdicts), complete: complete,
		queue: q.Get("queue"), state: q.Get("state"), since: q.Get("since"), order: q.Get("sort"), now: v.now,
	}))
	return nil
}

// Routes returns the method and the path of everything that the pages serve, for tests that try each.
func Routes() (all [][2]string) {
	for _, r := range routes {
		all = append(all, [2]string{r.method, "/ui" + strings.TrimSuffix(r.path, "{$}")})
	}
	return all
}
