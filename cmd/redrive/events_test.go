package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/wire"
)

// Events are printed one a line, the whole state first, until the command is interrupted.
func TestEvents(t *testing.T) {
	b := newBench(t)
	b.kill("q", redrive.ReasonPermanent, "a")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, to := io.Pipe()
	code := make(chan int, 1)
	t.Setenv("REDRIVE_SERVER", b.url)
	go func() {
		code <- run(ctx, []string{"events"}, &terminal{out: to, err: io.Discard})
		_ = to.Close()
	}()
	var topics []string
	dec := json.NewDecoder(out)
	for len(topics) < 3 {
		var e wire.Event
		if err := dec.Decode(&e); err != nil {
			t.Fatal(err)
		}
		topics = append(topics, e.Topic)
	}
	if !slices.Equal(topics, []string{"reset", "causes", "queues"}) {
		t.Errorf("%q", topics)
	}
	stop()
	go func() { _, _ = io.Copy(io.Discard, out) }()
	if c := <-code; c != exitOK {
		t.Errorf("exit code %d", c)
	}
	b.expect(exitFailed, "queues,causes,plans", "events", "--topics", "none")
}

func TestTheEndOfEvents(t *testing.T) {
	for stream, want := range map[string]string{
		"data: {\"topic\":\"queues\"}\n\nevent: end\ndata: {\"topic\":\"end\",\"item\":{\"title\":\"The token was revoked\",\"status\":401}}\n\n": "The token was revoked",
		": welcome\n\ndata: {\"topic\":\"queues\"}\n\n": "The stream of events ended",
	} {
		var out bytes.Buffer
		err := printEvents(&terminal{out: &out, outTTY: true}, strings.NewReader(stream))
		if p := asProblem(err); p == nil || p.Title != want || !strings.HasPrefix(out.String(), `{"topic":"queues"}`+"\n") {
			t.Errorf("%v after %q", err, out.String())
		}
	}
	var out bytes.Buffer
	_ = printEvents(&terminal{out: &out, outTTY: true}, strings.NewReader("data: {\"key\":\"a\u202eb\"}\n"))
	if out.String() != "{\"key\":\"a\\u202eb\"}\n" {
		t.Errorf("on a terminal: %q", out.String())
	}
}
