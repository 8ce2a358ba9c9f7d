package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

// messageFlags select messages: a flag for each field of a filter.
type messageFlags struct {
	wire.Filter `embed:""`
}

// filterFlags select dead letters, or what a command says of its state: all fields but it.
type filterFlags struct {
	messageFlags `embed:""`
	State        struct{} `kong:"-"` // hides the flag
	Retrying     struct{} `kong:"-"` // likewise
}

// whenMapper reads a moment: a duration before now, or a time, in more forms than the
// server takes.
func whenMapper(ctx *kong.DecodeContext, target reflect.Value) error {
	var s string
	if err := ctx.Scan.PopValueInto("when", &s); err != nil {
		return err
	}
	if d, err := config.ParseDuration(s); err == nil {
		target.SetString(d.String()) // the server knows the units of Go only
		return nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, s, time.Local); err == nil {
			target.SetString(at.Format(time.RFC3339Nano))
			return nil
		}
	}
	return fmt.Errorf("%q is neither a duration before now (1h, 7d) nor a time (2026-01-02T15:04:05Z)", s)
}

// yesMapper reads a flag without a value into a field that is text.
type yesMapper struct{}

// Decode implements kong.Mapper.
func (yesMapper) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	target.SetString("true")
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		target.SetString(ctx.Scan.Pop().String())
	}
	return nil
}

// IsBool implements kong.BoolMapper.
func (yesMapper) IsBool() bool { return true }

// check reports a filter that cannot be.
func (f *messageFlags) check() error {
	if _, err := f.Filter.Query(time.Now()); err != nil {
		return usageError{err}
	}
	return nil
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
		return r, fmt.Errorf("%w: no queue has a message %s, and none remembers one", redrive.ErrNotFound, r.ID)
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
	maps.Copy(q, query)
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
