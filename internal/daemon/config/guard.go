package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/guard"
)

// Endpoint is one of several HTTP targets that a guard chooses from. What is left out
// is taken from the target around it.
type Endpoint struct {
	// Name shows in logs, metrics and answers.
	Name string `yaml:"name" json:"name"`
	// URL gets a POST a request.
	URL     string   `yaml:"url" json:"url"`
	Timeout Duration `yaml:"timeout" json:"timeout,omitempty"`
	// Rate is how many requests may start in a time; Burst how many at once, by
	// default a 25th of a second's. Defaults to no limit.
	Rate  Rate `yaml:"rate" json:"rate,omitzero"`
	Burst int  `yaml:"burst" json:"burst,omitempty"`
	// Concurrency is how many requests may run at once. Defaults to no limit.
	Concurrency int `yaml:"concurrency" json:"concurrency,omitempty"`
	// Weight is its part of the requests with order: weighted. Defaults to 1.
	Weight int `yaml:"weight" json:"weight,omitempty"`
	// Secret signs the requests to it, instead of the target's.
	Secret Secret `yaml:"secret" json:"secret,omitzero"`
	// Headers are added to those of the target.
	Headers map[string]Secret `yaml:"headers" json:"headers,omitempty"`
}

// Guard answers calls of the queue's target at once while it is well, and puts them
// into the queue while it is not; see package guard.
type Guard struct {
	// Preset is "sms", "webhook" or "payment": rules that suit a kind of provider.
	// What stands below replaces its own.
	Preset string `yaml:"preset" json:"preset,omitempty"`
	// Order of the endpoints: listed (the default), weighted or health.
	Order string `yaml:"order" json:"order,omitempty"`
	// Repeat says how far a call may be repeated whose effect is unknown: with the
	// "same" endpoint (the default), "anywhere" or "never". A call may say otherwise.
	Repeat string `yaml:"repeat" json:"repeat,omitempty"`
	// Retries at once with the same endpoint. Defaults to none.
	Retries int `yaml:"retries" json:"retries,omitempty"`
	// Failover bounds second tries: a share of the calls, and in any case 10/s. Defaults
	// to 20%.
	Failover Percent `yaml:"failover" json:"failover,omitempty"`
	// KeepResults is how long a later result can be fetched. Defaults to 1h.
	KeepResults Duration `yaml:"keep_results" json:"keep_results,omitempty"`
	// ResultTo sends later results to a queue, or to a URL, which gets a queue of its
	// own: QUEUE_results. A call may name another queue.
	ResultTo string `yaml:"result_to" json:"result_to,omitempty"`
	// Shared lets all daemons of one store share states, limits and probes. Defaults to
	// true for a store that several daemons can use.
	Shared *bool `yaml:"shared" json:"shared,omitempty"`

	Health Health `yaml:"health" json:"health,omitzero"`
	Exit   Exit   `yaml:"exit" json:"exit,omitzero"`
	Pace   Pace   `yaml:"pace" json:"pace,omitzero"`
}

// Health says by which signs an endpoint is taken for sick.
type Health struct {
	// Off switches rules off: error_rate, consecutive, network_errors, slow_after,
	// trend_factor.
	Off           []string `yaml:"off" json:"off,omitempty"`
	ErrorRate     Percent  `yaml:"error_rate" json:"error_rate,omitempty"`
	MinCalls      int      `yaml:"min_calls" json:"min_calls,omitempty"`
	Window        Duration `yaml:"window" json:"window,omitempty"`
	Consecutive   int      `yaml:"consecutive" json:"consecutive,omitempty"`
	NetworkErrors int      `yaml:"network_errors" json:"network_errors,omitempty"`
	SlowAfter     Duration `yaml:"slow_after" json:"slow_after,omitempty"`
	SlowRun       int      `yaml:"slow_run" json:"slow_run,omitempty"`
	TrendFactor   float64  `yaml:"trend_factor" json:"trend_factor,omitempty"`
	TrendLast     bool     `yaml:"trend_last" json:"trend_last,omitempty"`
}

// Exit says how an endpoint that is down is taken back.
type Exit struct {
	After Duration `yaml:"after" json:"after,omitempty"`
	Start Percent  `yaml:"start" json:"start,omitempty"`
}

// Pace says how fast the backlog is worked off.
type Pace struct {
	Fixed Rate `yaml:"fixed" json:"fixed,omitzero"`
}

// Rules returns the rules as the guard takes them. What is not set is the preset's.
func (g *Guard) Rules() (h guard.Health, x guard.Exit, p guard.Pace) {
	same(&h, &g.Health)
	same(&x, &g.Exit)
	for _, rule := range g.Health.Off {
		if off := healthRules[rule]; off != nil {
			off(&h)
		}
	}
	return h, x, guard.Pace{Fixed: g.Pace.Fixed.PerSecond()}
}

// same sets the fields of a guard's struct to those of that name here, whose types only
// know how they are written.
func same(to, from any) {
	t, f := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()
	for i := range t.NumField() {
		t.Field(i).Set(f.FieldByName(t.Type().Field(i).Name).Convert(t.Field(i).Type()))
	}
}

// healthRules are the rules that can be switched off.
var healthRules = map[string]func(*guard.Health){
	"error_rate":     func(h *guard.Health) { h.ErrorRate = -1 },
	"consecutive":    func(h *guard.Health) { h.Consecutive = -1 },
	"network_errors": func(h *guard.Health) { h.NetworkErrors = -1 },
	"slow_after":     func(h *guard.Health) { h.SlowAfter = -1 },
	"trend_factor":   func(h *guard.Health) { h.TrendFactor = -1 },
}

var guardOrders = map[string]guard.Order{"": guard.InOrder, "listed": guard.InOrder, "weighted": guard.ByWeight, "health": guard.ByHealth}

// EndpointOrder returns the order in which endpoints are tried.
func (g *Guard) EndpointOrder() guard.Order { return guardOrders[g.Order] }

var guardRepeats = map[string]guard.Repeat{"": guard.RepeatSame, "same": guard.RepeatSame, "anywhere": guard.RepeatAnywhere, "never": guard.RepeatNever}

// Repeats returns what a name of Guard.Repeat means, and whether there is such a name.
func Repeats(name string) (guard.Repeat, bool) { r, ok := guardRepeats[name]; return r, ok }

// IsShared reports whether the guard shares its decisions through a store.
func (g *Guard) IsShared(store driver.Caps) bool {
	if g.Shared != nil {
		return *g.Shared
	}
	return !store.Exclusive
}

// ResultQueue returns the queue that later results of a queue's guard go to, or "".
func (g *Guard) ResultQueue(queue string) string {
	if isURL(g.ResultTo) {
		return queue + "_results"
	}
	return g.ResultTo
}

func isURL(text string) bool { return strings.Contains(text, "://") }

// Targets returns the endpoints as targets of their own, by name and in their order.
func (d *Deliver) Targets() (names []string, targets []Deliver) {
	if len(d.Endpoints) == 0 {
		return []string{"default"}, []Deliver{*d}
	}
	for _, e := range d.Endpoints {
		t := *d
		t.URL, t.Endpoints, t.Rate, t.Concurrency = e.URL, nil, e.Rate, e.Concurrency
		setIf(&t.Timeout, e.Timeout)
		if !e.Secret.IsZero() {
			t.Secret, t.Secrets = e.Secret, nil
		}
		if len(e.Headers) > 0 {
			t.Headers = maps.Clone(d.Headers)
			if t.Headers == nil {
				t.Headers = make(map[string]Secret, len(e.Headers))
			}
			maps.Copy(t.Headers, e.Headers)
		}
		names, targets = append(names, e.Name), append(targets, t)
	}
	return names, targets
}

// addResultQueues makes the queues of later results that go to a URL.
func (c *Config) addResultQueues() {
	for _, name := range slices.Sorted(maps.Keys(c.Queues)) {
		q := c.Queues[name]
		if q == nil || q.Guard == nil || q.Deliver == nil || !isURL(q.Guard.ResultTo) {
			continue
		}
		if what, _ := checkURL(q.Guard.ResultTo); what != "" { // which is reported where it stands
			continue
		}
		if results := q.Guard.ResultQueue(name); c.Queues[results] == nil {
			c.Queues[results] = &Queue{Deliver: &Deliver{URL: q.Guard.ResultTo, Secret: q.Deliver.Secret, Secrets: q.Deliver.Secrets,
				AllowPrivate: q.Deliver.AllowPrivate, AllowCIDRs: q.Deliver.AllowCIDRs}}
		}
	}
}

// checkGuard reports what is wrong with a queue's guard and endpoints.
func (c *Config) checkGuard(k *checker, path, name string, q *Queue) {
	if q.Deliver != nil && len(q.Deliver.Endpoints) > 0 {
		q.Deliver.checkEndpoints(k, path+".deliver", q.Guard != nil)
	}
	g := q.Guard
	if g == nil {
		return
	}
	path += ".guard"
	if q.Deliver == nil {
		k.bad(path, "a guard needs a target", "add deliver: with a url, or with endpoints")
	} else if q.Deliver.Publish != "" {
		k.bad(path, "a guard answers with what the target answers, and a broker answers nothing", "remove guard, or deliver to a url")
	}
	k.oneOf(path+".preset", g.Preset, guard.Presets()...)
	k.oneOf(path+".order", g.Order, "listed", "weighted", "health")
	k.oneOf(path+".repeat", g.Repeat, "same", "anywhere", "never")
	if g.Retries < 0 {
		k.bad(path+".retries", fmt.Sprintf("retries is %d", g.Retries), "write 0 or more")
	}
	if g.KeepResults == 0 && k.given(path+".keep_results") {
		k.bad(path+".keep_results", "results must be kept for some time", "write a duration such as 10m; the default is 1h")
	}
	c.checkResultTo(k, path+".result_to", name, g)
	g.checkRules(k, path)
}

func (c *Config) checkResultTo(k *checker, path, name string, g *Guard) {
	switch to := g.ResultQueue(name); {
	case to == "":
	case isURL(g.ResultTo):
		if what, hint := checkURL(g.ResultTo); what != "" {
			k.bad(path, what, hint)
		} else if q := c.Queues[to]; q != nil && (q.Deliver == nil || q.Deliver.URL != g.ResultTo) {
			k.bad(path, fmt.Sprintf("the queue %s of these results is configured otherwise", to), "write result_to: "+to+", or rename that queue")
		}
	case to == name:
		k.bad(path, "the results would go into the queue that they come from", "name another queue, or a URL")
	default:
		if _, ok := c.Queues[to]; !ok {
			hint := "add it under queues:, or write a URL"
			if near := nearest(to, slices.Sorted(maps.Keys(c.Queues))); near != "" && near != name {
				hint = "did you mean " + near + "?"
			}
			k.bad(path, fmt.Sprintf("there is no queue %q", to), hint)
		}
	}
}

// checkRules reports numbers that make no sense. Zero would silently mean the default.
func (g *Guard) checkRules(k *checker, path string) {
	for i, rule := range g.Health.Off {
		k.oneOf(fmt.Sprintf("%s.health.off[%d]", path, i), rule, slices.Sorted(maps.Keys(healthRules))...)
	}
	whole := map[string]int{
		"health.min_calls": g.Health.MinCalls, "health.consecutive": g.Health.Consecutive, "health.network_errors": g.Health.NetworkErrors,
		"health.slow_run": g.Health.SlowRun,
	}
	for key, n := range whole {
		if n < 0 || n == 0 && k.given(path+"."+key) {
			k.bad(path+"."+key, fmt.Sprintf("%s is %d", key, n), "write 1 or more; rules are switched off by health: {off: [...]}")
		}
	}
	if f := g.Health.TrendFactor; f < 0 || f > 0 && f <= 1 || f == 0 && k.given(path+".health.trend_factor") {
		k.bad(path+".health.trend_factor", fmt.Sprintf("trend_factor is %g", f), "a factor is above 1")
	}
	durations := map[string]Duration{"health.window": g.Health.Window, "health.slow_after": g.Health.SlowAfter}
	for key, d := range durations {
		if d == 0 && k.given(path+"."+key) {
			k.bad(path+"."+key, key+" needs some time", "write a duration such as 500ms")
		}
	}
	shares := map[string]Percent{"failover": g.Failover, "health.error_rate": g.Health.ErrorRate, "exit.start": g.Exit.Start}
	for key, p := range shares {
		if p == 0 && k.given(path+"."+key) {
			k.bad(path+"."+key, key+" is a share above 0%", "leave it out for the default")
		}
	}
}

const maxEndpoints = 16

func (d *Deliver) checkEndpoints(k *checker, path string, guarded bool) {
	if !guarded {
		k.bad(path+".endpoints", "several endpoints need a guard that chooses between them", "add guard: {} beside deliver")
	}
	if d.URL != "" {
		k.bad(path+".url", "there is a url, and there are endpoints", "make the url one of the endpoints")
	}
	if d.Rate != (Rate{}) {
		k.bad(path+".rate", "each endpoint has a rate of its own", "put rate: into the endpoints")
	}
	if len(d.Endpoints) > maxEndpoints {
		k.bad(path+".endpoints", fmt.Sprintf("there are %d endpoints", len(d.Endpoints)), fmt.Sprintf("a guard has at most %d", maxEndpoints))
	}
	seen := make(map[string]bool)
	for i, e := range d.Endpoints {
		at := fmt.Sprintf("%s.endpoints[%d]", path, i)
		switch {
		case driver.CheckID(e.Name) != nil:
			k.bad(at+".name", fmt.Sprintf("%q is not a name", e.Name), "write 1 to 128 letters, digits, _ or -: it shows in metrics and answers")
		case seen[e.Name]:
			k.bad(at+".name", fmt.Sprintf("there is another endpoint %q", e.Name), "give each its own name")
		}
		seen[e.Name] = true
		if e.Burst < 0 || e.Burst == 0 && k.given(at+".burst") {
			k.bad(at+".burst", fmt.Sprintf("burst is %d", e.Burst), "write 1 or more")
		}
		if e.Weight < 0 || e.Weight == 0 && k.given(at+".weight") {
			k.bad(at+".weight", fmt.Sprintf("weight is %d", e.Weight), "write 1 or more; leave the endpoint out if nothing shall go to it")
		}
		one := Deliver{URL: e.URL, Timeout: e.Timeout, Concurrency: e.Concurrency, Secret: e.Secret, Headers: e.Headers}
		one.check(k, at)
	}
}
