package kafka

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/brokertest"
	"github.com/redrive/redrive/internal/kafkatest"
	"github.com/redrive/redrive/internal/servertest"
)

// TestRebalanceStorm is the long form of the cases of that name, for proofs: each round of
// each kind of balancer lets ten members and more come and go.
func TestRebalanceStorm(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("REDRIVE_PROOF_ROUNDS"))
	if err != nil {
		t.Skip("a short form is among the cases of TestOnABroker; this one is for make proof")
	}
	c := reach(t, kafkatest.Start(t).Addr())
	for range rounds {
		rebalanceStorm(t, c, kgo.CooperativeStickyBalancer(), 50_000, 4*crowd)
		rebalanceStorm(t, c, kgo.RangeBalancer(), 50_000, 4*crowd)
	}
}

// crowd is how many members a group has at most.
const crowd = 10

// rebalanceStorm lets members join and leave, so many times, while a topic of n records is
// worked off, of which half comes meanwhile.
func rebalanceStorm(t *testing.T, c *cluster, balancer kgo.GroupBalancer, n, changes int) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	address := c.topic(t, 8)
	balanced := []kgo.Opt{kgo.Balancers(balancer)}
	first := connect(t, address, Options{Queue: "sms", Client: balanced})
	publishN(t, first, n/2)
	store := memory.New()
	var mu sync.Mutex
	seen := map[string]int{}
	handler := func(_ context.Context, d *redrive.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		seen[d.ID]++
		return nil
	}
	var stops []func()
	join := func() {
		s := connect(t, address, Options{Queue: "sms", Drain: time.Second, Client: balanced})
		stop := brokertest.Consume(t, store, 0, handler, engine.QueueOptions{Sources: []driver.Source{s}, Concurrency: 8})
		stops = append(stops, func() { stop(); _ = s.Close() })
	}
	join()
	for i := range changes {
		publishRange(t, first, n/2+n/2*i/changes, n/2+n/2*(i+1)/changes)
		<-time.After(time.Duration(50+random.IntN(300)) * time.Millisecond)
		if len(stops) == crowd || len(stops) > 1 && random.IntN(3) == 0 {
			i := random.IntN(len(stops))
			stops[i]()
			stops = append(stops[:i], stops[i+1:]...)
			continue
		}
		join()
	}
	if err := first.Close(); err != nil { // it held partitions and handed nothing out
		t.Fatal(err)
	}
	servertest.Until(t, "all are handled", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == n
	})
	for _, stop := range stops {
		stop()
	}
	again := 0
	for _, times := range seen {
		again += times - 1
	}
	t.Logf("%d of %d records were handled again", again, n)
	if again > n/10 {
		t.Errorf("%d of %d records were handled again", again, n)
	}
	offsets, err := c.admin.FetchOffsets(t.Context(), first.group)
	if err != nil {
		t.Fatal(err)
	}
	ends, err := c.admin.ListEndOffsets(t.Context(), first.topic)
	if err != nil {
		t.Fatal(err)
	}
	for p := range int32(8) {
		at, _ := offsets.Lookup(first.topic, p)
		if end, _ := ends.Lookup(first.topic, p); at.At > end.Offset || at.At < 0 && end.Offset > 0 {
			t.Errorf("partition %d is committed at %d of %d", p, at.At, end.Offset)
		}
	}
}
