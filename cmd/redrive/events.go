package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/wire"
)

// eventsCmd prints what changes.
type eventsCmd struct {
	remote `embed:""`
	Topics string `placeholder:"LIST" help:"Of these only: queues, causes, plans, with commas between."`
}

func (*eventsCmd) Help() string {
	return examples("redrive events", "what changes in queues, causes and plans, one JSON value a line, the whole state first; until it is interrupted",
		"redrive events --topics plans", "how plans go on")
}

// Run prints a line an event.
func (c *eventsCmd) Run(ctx context.Context, t *terminal, client *client) error {
	query := url.Values{}
	if c.Topics != "" {
		query.Set("topics", c.Topics)
	}
	resp, err := client.send(ctx, http.MethodGet, "/v1/events", query, http.NoBody, http.Header{"Accept": {"text/event-stream"}})
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	err = printEvents(t, resp.Body)
	if ctx.Err() != nil { // that is how it ends
		return nil
	}
	return err
}

// printEvents prints the data of server-sent events, a line each, until they end, and returns why.
func printEvents(t *terminal, r io.Reader) error {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		data, is := bytes.CutPrefix(bytes.TrimRight(line, "\r\n"), []byte("data: "))
		if is && err == nil {
			shown := string(data)
			if t.outTTY {
				shown = clean(shown)
			}
			if _, werr := fmt.Fprintln(t.out, shown); werr != nil {
				return werr
			}
			if p := endOf(data); p != nil {
				return p
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return &problem.Problem{Title: "The stream of events ended", Status: http.StatusServiceUnavailable, Hint: "call it again: it begins with the whole state"}
		case err != nil:
			return err
		}
	}
}

// endOf returns why the stream ends, if this is its last event.
func endOf(data []byte) *problem.Problem {
	p := new(problem.Problem)
	e := wire.Event{Item: p}
	if json.Unmarshal(data, &e) == nil && e.Topic == "end" {
		return p
	}
	return nil
}
