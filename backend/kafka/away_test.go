package kafka

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/backendtest"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/kafkatest"
	"github.com/redrive/redrive/internal/servertest"
)

// While no broker can be reached, claims and publishes say so: nothing that is refused then was sent. When
// the broker is back, what was accepted is delivered.
func TestTheBrokerIsAway(t *testing.T) {
	t.Parallel()
	b := kafkatest.Start(t)
	c := reach(t, b.Addr())
	address := c.topic(t, 1)
	s := connect(t, address, Options{Queue: "sms"})
	publish := func(id string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		return driver.FirstError(s.Publish(ctx, []redrive.Message{{Queue: "sms", ID: id}}))
	}
	if err := publish("before"); err != nil {
		t.Fatal(err)
	}
	b.Kill()
	ask := driver.ClaimRequest{Queue: "sms", Max: 10, Lease: time.Minute, Instance: "a"}
	servertest.Until(t, "claims say that the server is away", func() bool {
		events, err := s.Wait(t.Context(), []driver.Watch{{Queue: "sms"}})
		if err != nil || len(events) != 1 || events[0].NextDueIn > 0 {
			return false // else the engine would not ask
		}
		_, err = s.Claim(t.Context(), ask) // what was fetched comes first
		return errors.Is(err, redrive.ErrUnavailable)
	})
	if err := publish("meanwhile"); !errors.Is(err, redrive.ErrUnavailable) || errors.Is(err, redrive.ErrUnknown) {
		t.Errorf("a publish while the broker is away: %v", err)
	}
	if err := b.Resume(); err != nil {
		t.Fatal(err)
	}
	servertest.Until(t, "a publish is accepted again", func() bool { return publish("after") == nil })
	var again backendtest.SourceSink = connect(t, address+"-again", Options{Queue: "sms"})
	got := make(map[string]bool)
	servertest.Until(t, "what was accepted is delivered", func() bool {
		ds, err := again.Claim(t.Context(), ask)
		for i := range ds {
			got[ds[i].ID] = true
		}
		return err == nil && got["before"] && got["after"]
	})
	if got["meanwhile"] {
		t.Error("what was refused as not sent is delivered")
	}
}
