package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/wire"
)

// publishCmd puts messages in.
type publishCmd struct {
	remote  `embed:""`
	Queue   string          `arg:"" help:"The queue."`
	Body    string          `arg:"" optional:"" help:"The body; - reads it from the input, @FILE from a file."`
	Kind    string          `short:"k" placeholder:"KIND" help:"The message's type."`
	Key     string          `placeholder:"KEY" help:"Groups messages, and orders them where the queue says so."`
	ID      string          `name:"id" placeholder:"ID" help:"Its id: publishing it again under this id does nothing. With --ndjson: makes the whole file repeatable."`
	Delay   config.Duration `placeholder:"TIME" help:"Deliver it no earlier than in this time."`
	Headers []string        `name:"header" short:"H" sep:"none" placeholder:"NAME=VALUE" help:"Add a header; may be repeated."`
	NDJSON  string          `name:"ndjson" placeholder:"FILE" help:"Publish each line of a file (- for the input)."`
}

func (*publishCmd) Help() string {
	return examples(
		`redrive publish hooks '{"hello": "world"}' --kind greeting`, "one message",
		"redrive publish hooks @event.json --id order-42 --delay 10m", "from a file, under an id of its own, later",
		"redrive publish hooks --ndjson events.ndjson", `one a line: {"kind": "...", "body": {...}}`,
	)
}

// Run publishes one message or a file of them.
func (c *publishCmd) Run(ctx context.Context, t *terminal) error {
	if err := redrive.CheckQueue(c.Queue); err != nil {
		return usageError{err}
	}
	if c.NDJSON != "" {
		if c.Body != "" || c.Kind != "" || c.Key != "" || c.Delay != 0 || len(c.Headers) > 0 {
			return usagef("--ndjson takes body, kind, key, delay and headers from the lines")
		}
		return c.file(ctx, t)
	}
	body, err := c.body(t)
	if err != nil {
		return err
	}
	header, err := c.header(body)
	if err != nil {
		return err
	}
	client, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer client.close() //nolint:errcheck // what was published is safe
	resp, err := client.send(ctx, http.MethodPost, "/v1/queues/"+segment(c.Queue)+"/messages", nil, bytes.NewReader(body), header)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	var a wire.Accepted
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return fmt.Errorf("the answer cannot be read: %w", err)
	}
	if t.json {
		return t.writeJSON(a)
	}
	what := "accepted"
	if a.Duplicate {
		what = "it was accepted before"
	}
	t.printf("%s/%s %s\n", clean(a.Queue), clean(a.ID), t.paint(faint, what))
	return nil
}

// body returns the body that was asked for.
func (c *publishCmd) body(t *terminal) ([]byte, error) {
	switch {
	case c.Body == "-", c.Body == "" && !t.inTTY:
		return readBody(t.in)
	case c.Body == "":
		return nil, usagef("there is no body: give it, or - for the input, or @FILE")
	case strings.HasPrefix(c.Body, "@"):
		f, err := os.Open(c.Body[1:])
		if err != nil {
			return nil, err
		}
		defer f.Close() //nolint:errcheck // it was only read
		return readBody(f)
	}
	return []byte(c.Body), nil
}

func readBody(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, redrive.MaxBodySize+1))
	if err == nil && len(b) > redrive.MaxBodySize {
		return nil, fmt.Errorf("the body is larger than %s: keep large data elsewhere and send a reference", config.Size(redrive.MaxBodySize))
	}
	return b, err
}

// header returns the request headers of one message.
func (c *publishCmd) header(body []byte) (http.Header, error) {
	h := http.Header{"Content-Type": {contentType(body)}}
	set := func(name, value string) {
		if value != "" {
			h.Set(name, value)
		}
	}
	set(headername.ID, c.ID)
	set(headername.Kind, c.Kind)
	set(headername.Key, c.Key)
	if c.Delay != 0 {
		set(headername.Delay, c.Delay.Std().String())
	}
	pairs, err := headerPairs(c.Headers)
	for _, p := range pairs {
		if strings.EqualFold(p.Name, "content-type") {
			h.Set("Content-Type", string(p.Value))
			continue
		}
		h.Add(headername.Own+p.Name, string(p.Value))
	}
	return h, err
}

// headerPairs reads NAME=VALUE arguments.
func headerPairs(args []string) (redrive.Headers, error) {
	var h redrive.Headers
	for _, a := range args {
		name, value, ok := strings.Cut(a, "=")
		if !ok || name == "" {
			return nil, usagef("--header %q: write NAME=VALUE", clean(a))
		}
		h.Add(name, value)
	}
	return h, nil
}

// contentType guesses the type of a body.
func contentType(body []byte) string {
	switch {
	case json.Valid(body):
		return "application/json"
	case utf8.Valid(body) && bytes.IndexByte(body, 0) < 0:
		return "text/plain; charset=utf-8"
	}
	return "application/octet-stream"
}
