package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/attach"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

type attachCmd struct {
	remote `embed:""`
	From   config.Address `arg:"" name:"url" help:"kafka://host:9092/TOPIC, rabbitmq://user@host/VHOST?queue=QUEUE, nats://host:4222/STREAM, or redis://host:6379/0?stream=STREAM (?list=KEY); env:NAME and file:PATH for one with a password."`
	Queue  string         `short:"q" placeholder:"QUEUE" help:"The queue in the store (default: the name at the broker)."`
	Copy   bool           `xor:"how" help:"Leave the messages where they are (the default)."`
	Move   bool           `xor:"how" help:"Acknowledge each message at the broker when the store has it. Kafka: commit the offsets of the group; the records stay."`
	Delete bool           `help:"With --move: also delete the records of Kafka up to the committed offset."`
	Follow bool           `short:"f" help:"Go on with what comes, until interrupted."`
	Origin string         `placeholder:"NAME" help:"The topic, queue, subject or stream where messages belong whose headers name none."`
}

func (*attachCmd) Help() string {
	return examples(
		"redrive attach kafka://broker:9092/orders-dlt --queue orders", "look at a dead-letter topic: the records stay, running it again doubles nothing",
		"redrive attach 'rabbitmq://user@host/shop?queue=orders.dlq' --queue orders --move", "empty a dead-letter queue into the store",
		"redrive attach nats://host:4222/ORDERS_DLQ --queue orders --origin orders.new --move --follow", "go on taking what arrives; it belongs to the subject orders.new",
		"redrive attach 'redis://host:6379/0?stream=orders:dlq' --queue orders", "a stream; then: redrive dead causes --queue orders",
		"redrive attach 'redis://host:6379/0?list=orders:failed' --queue orders --origin orders --move", "a list, whose elements belong to the list orders",
	)
}

// Run brings messages in until the end, or until it is interrupted.
func (c *attachCmd) Run(ctx context.Context, t *terminal) (err error) {
	if c.Delete && !c.Move {
		return usagef("--delete goes with --move: what is not acknowledged is not deleted")
	}
	address, err := c.From.Resolve()
	if err != nil {
		return err
	}
	if c.Queue == "" {
		c.Queue = queueOf(address)
	}
	if err := driver.CheckQueue(c.Queue); err != nil {
		return usagef("%w; name the queue with --queue", err)
	}
	client, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.close()) }()
	a, err := attach.Open(ctx, address, attach.Options{Queue: c.Queue, Move: c.Move, Delete: c.Delete, Follow: c.Follow, Place: c.Origin})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	line := &progress{t: t}
	sum, err := a.Run(ctx, client.putDead, func(s attach.Summary) {
		line.update("%s read, %s imported", grouped(s.Read), grouped(s.Imported))
	})
	line.clear()
	if werr := c.report(t, &sum); werr != nil {
		return werr
	}
	if err == nil && sum.Failed > 0 {
		return errFailed
	}
	return err
}

// queueOf is the last part of an address's path, or its queue or stream, in lower case.
func queueOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	name := cmp.Or(u.Query().Get("queue"), u.Query().Get("stream"), u.Query().Get("list"), strings.Trim(u.Path, "/"))
	return strings.ToLower(name)
}

func (c *attachCmd) report(t *terminal, s *attach.Summary) error {
	if t.json {
		return t.writeJSON(s)
	}
	t.printf("%s: %s read, %s imported, %s known already, %s failed\n", clean(c.Queue), grouped(s.Read), grouped(s.Imported), grouped(s.Duplicates), grouped(s.Failed))
	for _, p := range s.Problems {
		t.printf("  %s\n", clean(p))
	}
	if s.Unread > 0 {
		t.note("%s positions before the end hold no record any more", grouped(s.Unread))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Dialects)) {
		t.printf("  %s in dialect %s\n", grouped(s.Dialects[name]), clean(name))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Places)) {
		if name == "" {
			t.printf("  %s name no place that they belong to\n", grouped(s.Places[name]))
			continue
		}
		t.printf("  %s belong to %s\n", grouped(s.Places[name]), clean(name))
	}
	return nil
}

// putDead puts dead letters in and returns what became of each.
func (c *client) putDead(ctx context.Context, entries []redrive.Entry) ([]error, error) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	for i := range entries {
		if err := enc.Encode(wire.Whole(&entries[i], true)); err != nil {
			return nil, err
		}
	}
	resp, err := c.send(ctx, http.MethodPost, "/v1/dead-letters", url.Values{"lines": {"true"}, "restore": {"false"}}, bytes.NewReader(body.Bytes()), http.Header{"Content-Type": {"application/x-ndjson"}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	var answer wire.Imported
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("the answer cannot be read: %w", err)
	}
	if len(answer.Lines) != len(entries) {
		return nil, fmt.Errorf("%d of %d lines were answered: is the daemon older than this program?", len(answer.Lines), len(entries))
	}
	results := make([]error, len(entries))
	for _, l := range answer.Lines {
		if l.Line < 1 || l.Line > len(results) {
			return nil, fmt.Errorf("there is no line %d", l.Line)
		}
		results[l.Line-1] = lineError(&l)
	}
	return results, nil
}

func lineError(l *wire.LineResult) error {
	switch {
	case l.Status == wire.LineAccepted:
		return nil
	case l.Status == wire.LineDuplicate:
		return redrive.ErrDuplicate
	case l.Error == nil:
		return fmt.Errorf("it was answered with %q", l.Status)
	case l.Error.Status == http.StatusConflict:
		return fmt.Errorf("%w: %w", redrive.ErrConflict, l.Error)
	}
	return l.Error
}
