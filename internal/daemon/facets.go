package daemon

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/text"
	"github.com/redrive/redrive/internal/wire"
)

// Bounds of a sample and what is shown of it.
const (
	maxSample     = 1000
	sampleBytes   = 32 << 20 // of bodies
	facetBody     = 64 << 10 // bytes of a body that is looked into
	facetDepth    = 6        // objects and lists within one another
	facetPaths    = 500      // places that are counted
	facetDistinct = 20       // a place with more different values tells nothing
	facetValues   = 10       // that are shown
	facetShown    = 50       // headers or places that are shown
	facetText     = 80       // bytes of a value
)

// tally counts the values of one facet.
type tally struct {
	present int
	values  map[string]int
	many    bool // too many different values
}

func (t *tally) add(value string, distinct int) {
	t.present++
	if t.many {
		return
	}
	if t.values == nil {
		t.values = make(map[string]int)
	}
	t.values[text.Clean(value, facetText)]++
	if len(t.values) > distinct {
		t.many, t.values = true, nil
	}
}

// facets counts what the dead letters of a sample have in common.
type facets struct {
	sample  int
	bytes   int
	seen    map[redrive.Ref]bool
	common  map[string]*tally // kind, target, host, version, status
	headers map[string]*tally
	paths   map[string]*tally
}

func newFacets() *facets {
	return &facets{seen: make(map[redrive.Ref]bool), common: make(map[string]*tally), headers: make(map[string]*tally), paths: make(map[string]*tally)}
}

// note counts a value of a facet, which has at most so many different ones.
func note(in map[string]*tally, name, value string, distinct int) {
	if in[name] == nil {
		if len(in) >= facetPaths {
			return
		}
		in[name] = new(tally)
	}
	in[name].add(value, distinct)
}

// commonFacets are the facets that are no payload, in the order in which they are shown.
var commonFacets = []string{"kind", "target", "host", "version", "status"}

// add counts a dead letter as its queue's masks let it show.
func (f *facets) add(e *redrive.Entry, k *masks) {
	if f.seen[e.Ref()] {
		return
	}
	f.seen[e.Ref()] = true
	f.sample++
	f.bytes += len(e.Body)
	values := map[string]string{"kind": e.Kind}
	if l := e.History.Latest(); l != nil {
		for name, value := range map[string]string{"target": l.Config.Target, "host": l.Host, "version": l.Version, "status": l.Details[driver.DetailStatus]} {
			values[name], _ = k.text(value)
		}
	}
	for name, value := range values {
		if value != "" {
			note(f.common, name, value, maxSample)
		}
	}
	names := make(map[string]bool)
	for _, h := range e.Headers {
		if !names[h.Name] {
			names[h.Name] = true
			note(f.headers, h.Name, "", maxSample)
		}
	}
	if body, _ := k.body(e.Body); len(body) <= facetBody && len(body) > 0 && (body[0] == '{' || body[0] == '[') {
		var doc any
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		if d.Decode(&doc) == nil {
			leaves := make(map[string]string)
			flatten(leaves, "$", doc, 0)
			for path, value := range leaves {
				note(f.paths, path, value, facetDistinct)
			}
		}
	}
}

// flatten collects the values of a document by their places; of a list, those of its first element.
func flatten(into map[string]string, path string, v any, depth int) {
	switch v := v.(type) {
	case map[string]any:
		for name, child := range v {
			if depth < facetDepth {
				flatten(into, path+step(name), child, depth+1)
			}
		}
	case []any:
		if len(v) > 0 && depth < facetDepth {
			flatten(into, path+"[*]", v[0], depth+1)
		}
	case string:
		into[path] = strconv.Quote(v)
	default:
		into[path] = fmt.Sprint(v)
	}
}

// step writes a name as a step of a path.
func step(name string) string {
	if name != "" && !strings.ContainsAny(name, ".[]*\"' ") && text.Printable(name) {
		return "." + name
	}
	return "[" + strconv.Quote(name) + "]"
}

// shown returns the facets as they go over the wire.
func (f *facets) shown(payload bool) wire.Facets {
	out := wire.Facets{Sample: f.sample, Facets: []wire.Facet{}, Headers: listFacets(f.headers, false), Paths: []wire.Facet{}}
	for _, name := range commonFacets {
		if t := f.common[name]; t != nil {
			out.Facets = append(out.Facets, t.shown(name, true))
		}
	}
	few := make(map[string]*tally, len(f.paths))
	for path, t := range f.paths {
		if !t.many {
			few[path] = t
		}
	}
	out.Paths = listFacets(few, payload)
	return out
}

// listFacets returns those first that not all messages have, then those with the fewest values.
func listFacets(all map[string]*tally, values bool) []wire.Facet {
	list := make([]wire.Facet, 0, len(all))
	for name, t := range all {
		list = append(list, t.shown(name, values))
	}
	slices.SortFunc(list, func(a, b wire.Facet) int {
		return cmp.Or(cmp.Compare(b.Present, a.Present), cmp.Compare(len(all[a.Name].values), len(all[b.Name].values)), cmp.Compare(a.Name, b.Name))
	})
	return list[:min(len(list), facetShown)]
}

func (t *tally) shown(name string, values bool) wire.Facet {
	out := wire.Facet{Name: name, Present: t.present}
	if !values {
		return out
	}
	for value, n := range t.values {
		out.Values = append(out.Values, wire.FacetValue{Value: value, Count: n})
	}
	slices.SortFunc(out.Values, func(a, b wire.FacetValue) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Value, b.Value))
	})
	out.Distinct = len(out.Values)
	out.Values = out.Values[:min(len(out.Values), facetValues)]
	return out
}

// sample looks at some dead letters of a cause: the oldest, and as many near its end.
func (a *app) sample(ctx context.Context, c *driver.Cause, n int) (*facets, error) {
	f := newFacets()
	q := redrive.Query{Queue: c.Queue, Reason: c.Reason, Signature: c.Signature, State: redrive.StateDead}
	half := n
	if c.Count > int64(n) {
		half = n / 2
	}
	if err := a.sampleFrom(ctx, q, half, f); err != nil || half == n {
		return f, err
	}
	var err error
	if q.Since, err = a.nearEnd(ctx, c, n-half); err != nil {
		return f, err
	}
	return f, a.sampleFrom(ctx, q, n, f)
}

// sampleFrom adds dead letters until there are n, or nothing more, or too many bytes.
func (a *app) sampleFrom(ctx context.Context, q redrive.Query, n int, f *facets) error {
	k := a.masksOf(q.Queue)
	for q.Bodies = true; f.sample < n && f.bytes < sampleBytes; {
		q.Limit = min(wholePage, n-f.sample)
		page, err := a.store.Find(ctx, q)
		if err != nil {
			return err
		}
		for i := range page.Entries {
			f.add(&page.Entries[i], k)
		}
		if q.After = page.Next; q.After == "" {
			break
		}
	}
	return nil
}

// nearEnd returns a time after which about n messages died of a cause. Without a series it is
// that of the newest.
func (a *app) nearEnd(ctx context.Context, c *driver.Cause, n int) (time.Time, error) {
	deaths, err := a.deaths(ctx, redrive.Query{Queue: c.Queue, Reason: c.Reason, Signature: c.Signature})
	if err != nil || len(deaths) == 0 {
		return c.Last, err
	}
	sum := int64(0)
	for _, b := range slices.Backward(deaths[0].Buckets) {
		if sum += b.Count; sum >= int64(n) {
			return b.Start, nil
		}
	}
	return c.Last, nil
}

// oneCause returns the cause that a request names: the largest of its signature in its queue, or
// in the only queue that has it.
func (a *app) oneCause(ctx context.Context, who *caller, queue, signature string) (*driver.Cause, error) {
	if err := who.confine(queue); err != nil {
		return nil, err
	}
	if queue != "" {
		if err := driver.CheckQueue(queue); err != nil {
			return nil, err
		}
	}
	causes, _, err := a.store.Causes(ctx, redrive.Query{Queue: queue, Signature: signature, State: redrive.StateDead})
	if err != nil {
		return nil, err
	}
	if len(causes) == 0 {
		return nil, problem.New(http.StatusNotFound, "cause-not-found", "There is no such cause", "no dead letter has the signature "+strconv.Quote(text.Clean(signature, facetText)), "GET /v1/causes lists them")
	}
	for i := range causes {
		if causes[i].Queue != causes[0].Queue {
			return nil, bad("several queues have this cause", "name one of them: queue="+causes[0].Queue+", queue="+causes[i].Queue)
		}
	}
	return &causes[0], nil
}

// sampleSize reads the parameter sample.
func sampleSize(s string) (int, error) {
	if s == "" {
		return maxSample, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxSample {
		return 0, bad(fmt.Sprintf("sample %q", s), fmt.Sprintf("use 1 to %d", maxSample))
	}
	return n, nil
}

// causeFacets tells what a sample of a cause's dead letters has in common.
func (a *app) causeFacets(w http.ResponseWriter, r *http.Request, who *caller) error {
	c, f, err := a.sampled(r, who)
	if err != nil {
		return err
	}
	out := f.shown(who.may(config.ScopeReadPayload))
	out.Queue, out.Signature, out.Of = c.Queue, c.Signature, c.Count
	return writeJSON(w, http.StatusOK, out)
}

// sampled returns the cause of a request and its sample.
func (a *app) sampled(r *http.Request, who *caller) (*driver.Cause, *facets, error) {
	v, err := parameters(r, "queue", "sample")
	if err != nil {
		return nil, nil, err
	}
	n, err := sampleSize(v.Get("sample"))
	if err != nil {
		return nil, nil, err
	}
	c, err := a.oneCause(r.Context(), who, v.Get("queue"), r.PathValue("signature"))
	if err != nil {
		return nil, nil, err
	}
	f, err := a.sample(r.Context(), c, n)
	return c, f, err
}
