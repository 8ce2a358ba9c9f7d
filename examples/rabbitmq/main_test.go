package main

import (
	"strings"
	"testing"

	"github.com/redrive/redrive/internal/rabbittest"
)

func TestRepair(t *testing.T) {
	node := rabbittest.Start(t, rabbittest.Options{})
	var out strings.Builder
	if err := run(t.Context(), "rabbitmq://guest:guest@"+node.Addr()+"/?queue=sms&declare=true", t.TempDir(), &out); err != nil {
		t.Fatal(err)
	}
	const want = "sent to +4930123456\ndead (permanent): this is not a telephone number: \"0049 30 123456\"\nredriven, sent to 0049 30 123456\n"
	if out.String() != want {
		t.Errorf("got:\n%swant:\n%s", &out, want)
	}
}
