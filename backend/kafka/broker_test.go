package kafka

import (
	"testing"

	"github.com/redrive/redrive/internal/kafkatest"
)

// TestOnABroker runs what needs a real broker, on one.
func TestOnABroker(t *testing.T) {
	b := kafkatest.Start(t)
	c := reach(t, b.Addr())
	t.Run("Conformance", func(t *testing.T) { conformance(t, c) })
	for name, run := range cases {
		t.Run(name, func(t *testing.T) { run(t, c) })
	}
}
