package rabbitmq

import (
	"errors"
	"os"
	"strconv"
	"testing"

	"github.com/redrive/redrive/internal/brokertest"
	"github.com/redrive/redrive/internal/rabbittest"
)

// rounds is how often the faults of a node happen: REDRIVE_PROOF_ROUNDS, or once.
func rounds() int {
	if n, err := strconv.Atoi(os.Getenv("REDRIVE_PROOF_ROUNDS")); err == nil && n > 0 {
		return n
	}
	return 1
}

// TestNodeIsKilledAndRestarts stops a node in order, and kills it, under the load of a
// quorum and of a classic queue. `make proof PROOF=NodeIsKilled` also stops its broker
// without its process.
func TestNodeIsKilledAndRestarts(t *testing.T) {
	t.Parallel()
	node := rabbittest.Start(t, rabbittest.Options{})
	quorum := connect(t, at(node.Addr(), "queue=quorum", "declare=true"), Options{Queue: brokertest.Queue})
	classic := connect(t, at(node.Addr(), "queue=classic", "declare=true", "type=classic"), Options{Queue: brokertest.Queue})
	if err := node.Registered("quorum"); err != nil {
		t.Fatal(err)
	}
	ways := []func() error{
		func() error { return errors.Join(node.Stop(), node.Resume()) },
		func() error { node.Kill(); return node.Resume() },
		func() error {
			_, stopped := node.Control("stop_app")
			_, started := node.Control("start_app")
			return errors.Join(stopped, started)
		},
	}
	faults := 2
	if os.Getenv("REDRIVE_PROOF_ROUNDS") != "" {
		faults = len(ways) * rounds()
	}
	brokertest.UnderLoad(t, faults, func(i int) {
		if err := ways[i%len(ways)](); err != nil {
			t.Fatal(err)
		}
	}, quorum, classic)
}
