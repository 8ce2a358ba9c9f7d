package client_test

import (
	"errors"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/client"
)

// Another session publishes what the first one did: the same again succeeds, as over
// HTTP, another body does not, and who waits for a result hears that it goes elsewhere.
func TestPublishAgainFromAnotherSession(t *testing.T) {
	url, stop := serve()
	defer stop()
	connect := func() *client.Client {
		c, err := client.Dial(t.Context(), url, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	first, second := connect(), connect()
	m := client.Message{Queue: "later", ID: "order-1", Body: []byte(`"x"`)}
	if err := first.Publish(t.Context(), &m); err != nil {
		t.Fatal(err)
	}
	p, err := second.Send(t.Context(), &m)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(t.Context()); err != nil || !p.Duplicate() {
		t.Errorf("the same again: %v, duplicate %t", err, p.Duplicate())
	}
	if _, err := second.Call(t.Context(), &m); !errors.Is(err, redrive.ErrDuplicate) {
		t.Errorf("a call of the same: %v", err)
	}
	m.Body = []byte(`"y"`)
	var e *redrive.Error
	for _, c := range []*client.Client{first, second} {
		if err := c.Publish(t.Context(), &m); !errors.Is(err, redrive.ErrConflict) || !errors.As(err, &e) || e.Queue != "later" || e.ID != "order-1" {
			t.Errorf("another body: %v", err)
		}
	}
	m = client.Message{Queue: "No Queue", Body: []byte(`"x"`)}
	if err := first.Publish(t.Context(), &m); !errors.Is(err, redrive.ErrInvalid) {
		t.Errorf("a queue without a name: %v", err)
	}
}
