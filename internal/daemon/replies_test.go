package daemon_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/client"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/natstest"
	"github.com/redrive/redrive/internal/wire"
)

// TestNoBrokerSendsResultsAnywhere: who writes at a broker gets a result into a queue of
// the configuration, and forges none for a client's session.
func TestNoBrokerSendsResultsAnywhere(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	js := natstest.Client(t, server.Addr())
	natstest.Stream(t, js, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}})
	target := newReceiver(t, nil)
	d := start(t, parse(t, fmt.Sprintf("queues: {orders: {source: \"nats://%s/ORDERS?consumer=shop\", deliver: {url: %q, allow_private: true}}, answers: {}, plain: {}}\ngrace: 100ms",
		server.Addr(), target.URL)), newStore(t))
	victim := d.dial(client.Options{OnResult: func(r *client.Result) { t.Errorf("the session got %+v", r) }})
	if err := victim.Publish(t.Context(), &client.Message{Queue: "plain"}); err != nil { // its number 1
		t.Fatal(err)
	}
	for i, to := range []string{"session:" + victim.Session().ID + "/1", driver.ResultQueue, "elsewhere", "answers"} {
		m := &nats.Msg{Subject: "orders", Data: []byte(`{"paid":true}`), Header: nats.Header{"redrive-reply-to": {to}, "redrive-id": {fmt.Sprint("m-", i)}}}
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	d.eventually("all are delivered", func() bool {
		return target.received() == 4 && get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/answers", "").Ledger.Entered == 1
	})
	if result := get[wire.Claims](d, 200, http.MethodPost, "/v1/queues/answers/claims", "").Items[0]; result.Kind != "redrive.result" {
		t.Errorf("%+v", result)
	}
	for _, queue := range []string{driver.ResultQueue, "elsewhere"} {
		page, err := d.store.Find(t.Context(), redrive.Query{Queue: queue})
		if err != nil || len(page.Entries) != 0 {
			t.Errorf("in %s: %+v, %v", queue, page.Entries, err)
		}
	}
	// What is published here keeps its reply_to: to a queue that is there but in no
	// configuration it goes through the store.
	if _, err := d.store.Apply(t.Context(), driver.Batch{Publish: []redrive.Message{{Queue: "held"}}}); err != nil {
		t.Fatal(err)
	}
	get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/orders/messages", "x", "redrive-reply-to", "held")
	d.eventually("the result is there", func() bool {
		return get[wire.Queue](d, 200, http.MethodGet, "/v1/queues/held", "").Ledger.Entered == 2
	})
}
