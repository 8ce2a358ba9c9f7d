package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

// filterFlags select messages. The same ones are everywhere.
type filterFlags struct {
	Queue     string `short:"q" placeholder:"QUEUE" help:"Of this queue."`
	Reason    string `placeholder:"REASON" help:"Dead for this reason: ${reasons}."`
	Signature string `placeholder:"S" help:"Of this group."`
	Kind      string `placeholder:"KIND" help:"Of this kind."`
	Key       string `placeholder:"KEY" help:"Of this key."`
	Since     when   `placeholder:"TIME" help:"Not older than this: 1h, 7d, or 2026-01-02T15:04:05Z."`
	Until     when   `placeholder:"TIME" help:"Not newer than this."`
	Text      string `placeholder:"TEXT" help:"With this text in the body or the last error."`
	Header    string `placeholder:"NAME[=VALUE]" help:"With this header."`
}

// when is a moment: a duration before now, or a time.
type when string

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *when) UnmarshalText(b []byte) error {
	s := string(b)
	if d, err := config.ParseDuration(s); err == nil {
		*w = when(d.String()) // the server knows the units of Go only
		return nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			*w = when(at.Format(time.RFC3339Nano))
			return nil
		}
	}
	return fmt.Errorf("%q is neither a duration before now (1h, 7d) nor a time (2026-01-02T15:04:05Z)", s)
}

// filter returns what was selected.
func (f *filterFlags) filter() wire.Filter {
	return wire.Filter{
		Queue: f.Queue, Reason: f.Reason, Signature: f.Signature, Kind: f.Kind, Key: f.Key,
		Since: string(f.Since), Until: string(f.Until), Text: f.Text, Header: f.Header,
	}
}

// query returns the same as parameters of a list.
func (f *filterFlags) query() url.Values {
	q := url.Values{}
	for name, value := range map[string]string{
		"queue": f.Queue, "reason": f.Reason, "signature": f.Signature, "kind": f.Kind, "key": f.Key,
		"since": string(f.Since), "until": string(f.Until), "text": f.Text, "header": f.Header,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// String describes the filter for people: "queue hooks, reason exhausted", or "".
func (f *filterFlags) String() string {
	var parts []string
	for _, p := range []struct{ name, value string }{
		{"queue", f.Queue}, {"reason", f.Reason}, {"signature", f.Signature}, {"kind", f.Kind}, {"key", f.Key},
		{"since", string(f.Since)}, {"until", string(f.Until)}, {"text", f.Text}, {"header", f.Header},
	} {
		if p.value != "" {
			parts = append(parts, p.name+" "+clean(p.value))
		}
	}
	return strings.Join(parts, ", ")
}

// check reports a filter that cannot be.
func (f *filterFlags) check() error {
	if f.Reason != "" {
		var r redrive.Reason
		if err := r.UnmarshalText([]byte(f.Reason)); err != nil {
			return usageError{err}
		}
	}
	if f.Queue != "" {
		if err := driver.CheckQueue(f.Queue); err != nil {
			return usageError{err}
		}
	}
	return nil
}

// reasonNames is for the help.
func reasonNames() string {
	var names []string
	for _, r := range redrive.Reasons() {
		names = append(names, r.String())
	}
	return strings.Join(names, ", ")
}

// parseRef reads QUEUE/ID or ID.
func parseRef(arg, queue string) (redrive.Ref, error) {
	r := redrive.Ref{Queue: queue, ID: arg}
	if q, id, ok := strings.Cut(arg, "/"); ok {
		if queue != "" && queue != q {
			return r, usagef("%s is not in the queue %s", clean(arg), clean(queue))
		}
		r = redrive.Ref{Queue: q, ID: id}
	}
	if r.Queue != "" {
		if err := driver.CheckQueue(r.Queue); err != nil {
			return r, usageError{err}
		}
	}
	if err := driver.CheckID(r.ID); err != nil {
		return r, usageError{fmt.Errorf("%w: write QUEUE/ID", err)}
	}
	return r, nil
}

// resolve finds the queue of a message that was named without it.
func (c *client) resolve(ctx context.Context, r redrive.Ref) (redrive.Ref, error) {
	if r.Queue != "" {
		return r, nil
	}
	var queues wire.List[wire.Queue]
	if err := c.do(ctx, http.MethodGet, "/v1/queues", nil, nil, &queues); err != nil {
		return r, err
	}
	var in []string
	for i := range queues.Items {
		name := queues.Items[i].Queue
		err := c.do(ctx, http.MethodGet, messagePath(redrive.Ref{Queue: name, ID: r.ID}), nil, nil, nil)
		switch {
		case err == nil:
			in = append(in, name)
		case !isNotFound(err):
			return r, err
		}
	}
	switch len(in) {
	case 0:
		return r, fmt.Errorf("no queue has a message %s, and none remembers one", r.ID)
	case 1:
		r.Queue = in[0]
		return r, nil
	}
	return r, fmt.Errorf("several queues have a message %s: write %s", r.ID, strings.Join(in, "/"+r.ID+" or ")+"/"+r.ID)
}

func messagePath(r redrive.Ref) string {
	return "/v1/queues/" + segment(r.Queue) + "/messages/" + segment(r.ID)
}

func deadPath(r redrive.Ref) string {
	return "/v1/queues/" + segment(r.Queue) + "/dead-letters/" + segment(r.ID)
}

func isNotFound(err error) bool {
	p := asProblem(err)
	return p != nil && p.Status == http.StatusNotFound
}

// pages calls f with each page of a list until it reports false or there is nothing
// more.
func pages[T any](ctx context.Context, c *client, path string, query url.Values, f func(wire.List[T]) bool) error {
	q := url.Values{}
	for k, v := range query {
		q[k] = v
	}
	for {
		var page wire.List[T]
		if err := c.do(ctx, http.MethodGet, path, q, nil, &page); err != nil {
			return err
		}
		if !f(page) || page.Next == "" {
			return nil
		}
		q.Set("after", page.Next)
	}
}

func asProblem(err error) *problem.Problem {
	p, _ := err.(*problem.Problem) //nolint:errorlint // the client returns it unwrapped
	return p
}
