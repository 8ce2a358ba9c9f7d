package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// bundleProfile is how long the processor is profiled for a bundle.
const bundleProfile = 5 * time.Second

// bundlePart is a file of a support bundle: what a daemon answers, without what people or messages say.
type bundlePart struct {
	name, path string
	query      url.Values
	keep       []string // of JSON: the names whose values stay; nil: all but texts of people and errors
	raw        bool     // as it comes
}

// bundleParts are read one after the other. Bodies, headers, failure texts, answers, notes, reasons, filters and
// rules stay out, and of URLs all but scheme and host.
var bundleParts = []bundlePart{
	{name: "me.json", path: "/v1/me"},
	{name: "probe.json", path: "/v1/probe"},
	{name: "config.json", path: "/v1/config"},
	{name: "queues.json", path: "/v1/queues"},
	{name: "causes.json", path: "/v1/causes", keep: []string{"items", "queue", "reason", "signature", "count", "first", "last", "state", "status", "next", "complete"}},
	{name: "plans.json", path: "/v1/plans", keep: []string{"items", "id", "state", "request", "action", "rate", "canary", "stage", "size", "delivered", "dead_again", "waiting", "total",
		"total_more", "examined", "done", "failed", "named", "progress", "speed", "eta", "created_at", "updated_at", "ended_at", "next", "complete"}},
	{name: "audit.json", path: "/v1/audit", query: url.Values{"limit": {"100"}}, keep: []string{"items", "id", "at", "action", "queue", "plan", "count", "count_more", "via", "next", "complete"}},
	{name: "metrics.txt", path: "/metrics", raw: true},
	{name: "goroutines.txt", path: "/debug/pprof/goroutine", query: url.Values{"debug": {"1"}}, raw: true},
	{name: "heap.pprof", path: "/debug/pprof/heap", raw: true},
	{name: "mutex.pprof", path: "/debug/pprof/mutex", raw: true},
	{name: "trace.out", path: "/debug/pprof/trace", query: url.Values{"seconds": {"1"}}, raw: true},
	{name: "cpu.pprof", path: "/debug/pprof/profile", query: url.Values{"seconds": {fmt.Sprint(int(bundleProfile.Seconds()))}}, raw: true},
}

// bundle writes a support bundle: an archive of what helps others to see what is wrong. What cannot be had is
// named in missing.txt.
func (d *doctor) bundle(ctx context.Context, t *terminal, path string) (err error) {
	if d.client.local {
		return errors.New("a bundle is of a daemon: there is none. Copy the store instead: redrive backup FILE --data DIR")
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s is there already: name a new file", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".redrive-bundle-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is gone after the rename
	zip := gzip.NewWriter(f)
	b := &bundle{tar: tar.NewWriter(zip)}
	b.add("version.json", func() ([]byte, error) { return json.MarshalIndent(describe(), "", "  ") })
	b.add("doctor.json", func() ([]byte, error) { return json.MarshalIndent(d.quoteless(), "", "  ") })
	for _, p := range bundleParts {
		t.note("reading %s", p.name)
		b.add(p.name, func() ([]byte, error) { return d.client.part(ctx, &p) })
	}
	if missing := b.missing.String(); missing != "" {
		b.add("missing.txt", func() ([]byte, error) { return []byte(missing), nil })
	}
	if err := errors.Join(b.err, b.tar.Close(), zip.Close(), f.Sync(), f.Close(), ctx.Err()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// bundle is an archive that is written.
type bundle struct {
	tar     *tar.Writer
	missing strings.Builder
	err     error
}

// add writes one file, or notes why it is missing.
func (b *bundle) add(name string, read func() ([]byte, error)) {
	if b.err != nil {
		return
	}
	content, err := read()
	if err != nil {
		fmt.Fprintf(&b.missing, "%s: %s\n", name, withoutPaths(err.Error()))
		return
	}
	b.err = b.tar.WriteHeader(&tar.Header{Name: "redrive-bundle/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: time.Now()})
	if b.err == nil {
		_, b.err = b.tar.Write(content)
	}
}

// part reads one part of a bundle.
func (c *client) part(ctx context.Context, p *bundlePart) ([]byte, error) {
	resp, err := c.send(ctx, http.MethodGet, p.path, p.query, nil, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	content, err := io.ReadAll(resp.Body)
	if err != nil || p.raw {
		return content, err
	}
	var v any
	if err := json.Unmarshal(content, &v); err != nil {
		return nil, err
	}
	keep := make(map[string]bool, len(p.keep))
	for _, name := range p.keep {
		keep[name] = true
	}
	return json.MarshalIndent(stripped(v, keep), "", "  ")
}

// bundleTexts are names of what people type, or errors quote.
var bundleTexts = map[string]bool{"detail": true, "reason": true, "note": true, "why": true, "refused": true, "error": true}

// stripped leaves of a JSON value what keep names, or, where it names nothing, all but texts of people and errors;
// and of URLs scheme and host.
func stripped(v any, keep map[string]bool) any {
	switch v := v.(type) {
	case map[string]any:
		left := make(map[string]any, len(v))
		for name, value := range v {
			if len(keep) > 0 && keep[name] || len(keep) == 0 && !bundleTexts[name] {
				left[withoutPaths(name)] = stripped(value, keep)
			}
		}
		return left
	case []any:
		for i := range v {
			v[i] = stripped(v[i], keep)
		}
	case string:
		return withoutPaths(v)
	}
	return v
}

// urls finds addresses in a text: scheme, user and password, host, and the rest.
var urls = regexp.MustCompile(`\b([a-z][a-z0-9+.-]*)://(?:[^\s/@"]*@)?([^\s/?#"]*)[^\s"]*`)

// withoutPaths leaves of addresses in a text scheme and host: a path or a query may be a secret.
func withoutPaths(s string) string { return urls.ReplaceAllString(s, "$1://$2") }

// quoteless are the findings without texts that may quote people or errors.
func (d *doctor) quoteless() []finding {
	all := make([]finding, len(d.findings))
	for i, f := range d.findings {
		if f.quotes {
			f.Text = "(left out of the bundle: it may quote a person or a message)"
		}
		f.Text, f.Hint = withoutPaths(f.Text), withoutPaths(f.Hint)
		all[i] = f
	}
	return all
}
