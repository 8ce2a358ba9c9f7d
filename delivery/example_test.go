package delivery_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/delivery"
	"github.com/redrive/redrive/delivery/receiver"
	"github.com/redrive/redrive/driver"
)

// A handler delivers to one target; an engine calls it for each message of a queue.
func Example() {
	secret := delivery.NewSecret()
	target, err := receiver.New(receiver.Options{Secret: secret, Output: func(e receiver.Effect) {
		fmt.Println("received", e.ID, "attempt", e.Attempt, "of", e.Bytes, "bytes, answered", e.Status)
	}})
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(target)
	defer server.Close()

	h, err := delivery.New(delivery.Target{
		URL:          server.URL + "/hook",
		Secrets:      []string{secret},
		AllowPrivate: true, // the server of this example is on this machine
	}, delivery.Options{})
	if err != nil {
		panic(err)
	}
	defer h.Close()

	err = h.ServeDelivery(context.Background(), &redrive.Delivery{
		Message: redrive.Message{ID: "order-17", Queue: "hooks", Body: []byte(`{"paid":true}`)},
		Attempt: 1,
	})
	fmt.Println("error:", err)
	// Output:
	// received order-17 attempt 1 of 13 bytes, answered 200
	// error: <nil>
}

// A failure tells the status and what the target said.
func ExampleResponseError() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"error":"closed for maintenance","token":"t0p-secret"}`)
	}))
	defer server.Close()
	h, err := delivery.New(delivery.Target{URL: server.URL, AllowPrivate: true}, delivery.Options{})
	if err != nil {
		panic(err)
	}
	defer h.Close()
	err = h.ServeDelivery(context.Background(), &redrive.Delivery{Message: redrive.Message{ID: "order-17", Queue: "hooks"}, Attempt: 1})
	fmt.Println(err)
	fmt.Println("try again after", driver.Classify(nil, err).After)
	// Output:
	// the target answered 503 Service Unavailable
	// try again after 30s
}
