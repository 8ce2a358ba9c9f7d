package main

import (
	"strings"
	"testing"

	"github.com/redrive/redrive/internal/natstest"
)

func TestExample(t *testing.T) {
	server := natstest.Start(t, natstest.Options{})
	var out strings.Builder
	if err := run(t.Context(), "nats://"+server.Addr(), t.TempDir(), &out); err != nil {
		t.Fatal(err)
	}
	const want = `order 2 goes to Potsdamer Platz 2
dead (permanent): an order without an address: number 1, from ORDERS/1
redriven: order 1 goes to Unter den Linden 1
`
	if out.String() != want {
		t.Errorf("it said\n%s", &out)
	}
}
