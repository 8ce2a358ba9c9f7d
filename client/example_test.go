package client_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/client"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/daemon/gateway/ws"
)

// serve stands for a daemon: it handles messages of the queue "sms".
func serve() (url string, stop func()) {
	store := memory.New()
	gateway := ws.New(store, ws.Options{})
	eng := engine.New(store, engine.Options{Observer: gateway})
	err := eng.Handle("sms", redrive.HandlerFunc(func(ctx context.Context, d *redrive.Delivery) error {
		redrive.Reply(ctx, []byte(`"sent"`), redrive.Headers{{Name: "content-type", Value: []byte("application/json")}})
		return nil
	}), engine.QueueOptions{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- eng.Run(ctx) }()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		gateway.Serve(w, r, ws.Caller{Name: "example"})
	}))
	return "ws" + strings.TrimPrefix(server.URL, "http"), func() {
		_ = gateway.Drain(ctx)
		server.Close()
		cancel()
		<-ended
		_ = store.Close()
	}
}

func Example() {
	url, stop := serve() // with a daemon: ws://127.0.0.1:7333/v1/ws
	defer stop()

	ctx := context.Background()
	c, err := client.Dial(ctx, url, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	// Durable when it returns, delivered whatever happens then.
	if err := c.Publish(ctx, &client.Message{Queue: "sms", Body: []byte(`{"to":"+491234"}`), NoResult: true}); err != nil {
		log.Fatal(err)
	}
	// The same, and wait for what the target answers.
	result, err := c.Call(ctx, &client.Message{Queue: "sms", Body: []byte(`{"to":"+491234"}`)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(result.Outcome, string(result.Body))
	// Output: done "sent"
}
