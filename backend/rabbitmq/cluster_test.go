package rabbitmq

import (
	"os"
	"strings"
	"testing"

	"github.com/redrive/redrive/internal/brokertest"
	"github.com/redrive/redrive/internal/rabbittest"
	"github.com/redrive/redrive/internal/servertest"
)

// TestTheLeadersNodeIsKilled kills the node of a quorum queue's leader in a cluster of
// three under load, again and again. The source knows all three nodes.
func TestTheLeadersNodeIsKilled(t *testing.T) {
	if os.Getenv("REDRIVE_PROOF_ROUNDS") == "" {
		t.Skip("a minute, and three nodes; REDRIVE_PROOF_ROUNDS=1 runs it")
	}
	nodes := rabbittest.StartCluster(t, 3, rabbittest.Options{})
	hosts := make([]string, len(nodes))
	for i, n := range nodes {
		hosts[i] = n.Addr()
	}
	s := connect(t, at(strings.Join(hosts, ","), "queue=replicated", "declare=true"), Options{Queue: brokertest.Queue})
	for _, n := range nodes {
		if err := n.Registered("replicated"); err != nil {
			t.Fatal(err)
		}
	}
	leader := func() (*rabbittest.Node, bool) {
		for _, n := range nodes {
			said, err := n.Control("list_queues", "name", "leader", "--no-table-headers")
			if err != nil {
				continue
			}
			for _, of := range nodes {
				if strings.Contains(said, of.Name()) {
					return of, true
				}
			}
		}
		return nil, false
	}
	brokertest.UnderLoad(t, rounds(), func(int) {
		var of *rabbittest.Node
		servertest.Until(t, "the queue has a leader", func() (ok bool) {
			of, ok = leader()
			return ok
		})
		t.Log("the leader is on", of)
		of.Kill()
		servertest.Until(t, "another node has the leader", func() bool {
			now, ok := leader()
			return ok && now != of
		})
		if err := of.Resume(); err != nil {
			t.Fatal(err)
		}
	}, s)
}
