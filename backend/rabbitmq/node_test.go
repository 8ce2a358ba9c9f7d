package rabbitmq

import (
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
	for _, kind := range []string{"quorum", "classic"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			node := rabbittest.Start(t, rabbittest.Options{})
			name := rabbittest.Name()
			s := connect(t, at(node.Addr(), "queue="+name, "declare=true", "type="+kind), Options{Queue: brokertest.Queue})
			if kind == "quorum" {
				if err := node.Registered(name); err != nil {
					t.Fatal(err)
				}
			}
			faults := 2
			if os.Getenv("REDRIVE_PROOF_ROUNDS") != "" {
				faults = 3 * rounds()
			}
			brokertest.UnderLoad(t, s, faults, func(i int) {
				switch i % 3 {
				case 0:
					if err := node.Stop(); err != nil {
						t.Error(err)
					}
				case 1:
					node.Kill()
				case 2:
					for _, what := range []string{"stop_app", "start_app"} {
						if _, err := node.Control(what); err != nil {
							t.Error(err)
						}
					}
					return
				}
				if err := node.Restart(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}
