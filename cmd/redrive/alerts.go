package main

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/redrive/redrive/internal/wire"
)

// alertsCmd tells what fires.
type alertsCmd struct {
	remote `embed:""`
	Test   bool `help:"Send a test message to each receiver."`
}

func (*alertsCmd) Help() string {
	return examples("redrive alerts", "what fires now, since when, and what was sent", "redrive alerts --test", "send a test message to each receiver")
}

// Run prints what fires, or what became of the test messages.
func (c *alertsCmd) Run(ctx context.Context, t *terminal, client *client) error {
	if c.Test {
		return c.test(ctx, t, client)
	}
	var list wire.Alerts
	if err := client.do(ctx, http.MethodGet, "/v1/alerts", nil, nil, &list); err != nil {
		return err
	}
	if t.json {
		return t.writeJSON(list)
	}
	now := time.Now()
	printAlerts(t, &list, now)
	printReceivers(t, &list, now)
	return nil
}

func printAlerts(t *terminal, list *wire.Alerts, now time.Time) {
	for i := range list.Items {
		a := &list.Items[i]
		t.printf("%s  %s\n", t.paint(bad, clean(strings.Join(a.Rules, ", "))), clean(a.Subject))
		t.printf("  %s\n", clean(a.Summary))
		sent := "not sent yet"
		switch {
		case a.SentAt != nil:
			sent = "sent " + ago(*a.SentAt, now)
		case a.Within != "":
			sent = "not sent while " + clean(a.Within) + " fires"
		}
		t.printf("  since %s, %s\n", ago(a.Since, now), sent)
		for _, more := range []string{a.Next, a.Link} {
			if more != "" {
				t.printf("  %s\n", t.paint(faint, clean(more)))
			}
		}
	}
	switch {
	case !list.Complete:
		t.note("there may be more alerts: the store does not answer, or the token sees some queues only")
	case len(list.Items) == 0:
		t.note("nothing fires")
	}
}

func printReceivers(t *terminal, list *wire.Alerts, now time.Time) {
	if len(list.Receivers) == 0 {
		t.note("nobody gets alerts: add alerts: {receivers: [...]} to the configuration")
		return
	}
	if list.Sender == "" {
		t.note("no daemon sends alerts now")
	}
	b := newTable("RECEIVER", "KIND", "TO", "LAST SENT", "STATE")
	for _, r := range list.Receivers {
		state := coloured(good, "works")
		if r.FailingSince != nil {
			state = coloured(bad, "takes nothing since "+ago(*r.FailingSince, now)+": "+r.Error)
		}
		sent := "never"
		if r.SentAt != nil {
			sent = ago(*r.SentAt, now)
		}
		b.add(text(r.Name), text(r.Kind), text(r.To), text(sent), state)
	}
	b.print(t)
}

func (c *alertsCmd) test(ctx context.Context, t *terminal, client *client) error {
	var list wire.List[wire.AlertTested]
	if err := client.do(ctx, http.MethodPost, "/v1/alerts/test", nil, nil, &list); err != nil {
		return err
	}
	failed := false
	for _, r := range list.Items {
		failed = failed || r.Error != ""
	}
	switch {
	case t.json:
		if err := t.writeJSON(list); err != nil {
			return err
		}
	case len(list.Items) == 0:
		t.note("there are no receivers: add alerts: {receivers: [...]} to the configuration")
	default:
		b := newTable("RECEIVER", "KIND", "TEST")
		for _, r := range list.Items {
			state := coloured(good, "taken")
			if r.Error != "" {
				state = coloured(bad, r.Error)
			}
			b.add(text(r.Name), text(r.Kind), state)
		}
		b.print(t)
	}
	if failed || len(list.Items) == 0 {
		return errFailed
	}
	return nil
}
