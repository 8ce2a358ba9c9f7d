package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
)

// cases are run on a fake cluster and on a real broker.
var cases = map[string]func(t *testing.T, c *cluster){
	"OutOfOrderIsNotRepeated": outOfOrder,
	"RevokedIsRefused":        revokedIsRefused,
	"RecordsOfOthers":         recordsOfOthers,
	"SlowRecordHoldsNobody":   slowRecord,
	"RebalanceStorm":          rebalanceStorm,
	"DeadLettersAreParked":    deadLettersAreParked,
	"CrashIsFollowedUp":       crashIsFollowedUp,
}

func TestOnAFake(t *testing.T) {
	for name, run := range cases {
		t.Run(name, func(t *testing.T) { run(t, fake(t)) })
	}
}

// until repeats a check until it holds.
func until(t testing.TB, what string, check func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !check() {
		select {
		case <-deadline:
			t.Fatalf("not within a minute: %s", what)
		case <-tick.C:
		}
	}
}

// publishN publishes messages with the ids m0, m1 and so on, with keys that spread them.
func publishN(t testing.TB, s *Source, n int) {
	t.Helper()
	msgs := make([]redrive.Message, n)
	for i := range msgs {
		msgs[i] = redrive.Message{Queue: s.o.Queue, ID: fmt.Sprintf("m%d", i), Key: fmt.Sprintf("k%d", i%97), Body: fmt.Appendf(nil, "body %d", i)}
	}
	if err := redrive.FirstError(s.Publish(t.Context(), msgs)); err != nil {
		t.Fatal(err)
	}
}

// claimN claims until it has n.
func claimN(t testing.TB, s *Source, n int) (ds []redrive.Delivery) {
	t.Helper()
	until(t, fmt.Sprintf("%d are claimed", n), func() bool {
		got, err := s.Claim(t.Context(), redrive.ClaimRequest{Queue: s.o.Queue, Max: n - len(ds), Lease: time.Minute, Instance: "test"})
		if err != nil {
			t.Fatal(err)
		}
		ds = append(ds, got...)
		return len(ds) == n
	})
	return ds
}

func done(ds ...redrive.Delivery) []redrive.Settlement {
	batch := make([]redrive.Settlement, len(ds))
	for i := range ds {
		batch[i] = redrive.Settlement{Receipt: ds[i].Receipt, Outcome: redrive.OutcomeDone}
	}
	return batch
}

func outOfOrder(t *testing.T, c *cluster) {
	address := c.topic(t, 1)
	s := connect(t, address, Options{})
	publishN(t, s, 200)
	ds := claimN(t, s, 200)
	var finished []redrive.Delivery
	open := map[string]bool{}
	for i := range ds {
		if i%7 == 3 {
			open[ds[i].ID] = true
		} else {
			finished = append(finished, ds[i])
		}
	}
	rand.Shuffle(len(finished), func(i, j int) { finished[i], finished[j] = finished[j], finished[i] })
	for i := 0; i < len(finished); i += 20 {
		if err := redrive.FirstError(s.Settle(t.Context(), done(finished[i:min(i+20, len(finished))]...))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := redrive.FirstError(s.Settle(t.Context(), done(ds[3]))); !errors.Is(err, redrive.ErrLeaseLost) {
		t.Errorf("a settlement after Close: %v", err)
	}
	s = connect(t, address, Options{})
	again := claimN(t, s, len(open))
	for i := range again {
		if !open[again[i].ID] {
			t.Errorf("%s was done and came again", again[i].ID)
		}
		if !again[i].Suspect {
			t.Errorf("%s may have been handed out before", again[i].ID)
		}
	}
	publishN(t, s, 1)
	if last := claimN(t, s, 1); last[0].ID != "m0" {
		t.Errorf("%s came, want what was published last", last[0].ID)
	}
}

func revokedIsRefused(t *testing.T, c *cluster) {
	address := c.topic(t, 4)
	s := connect(t, address, Options{Drain: time.Millisecond})
	publishN(t, s, 400)
	ds := claimN(t, s, 400)
	other := connect(t, address, Options{})
	until(t, "the other has partitions", func() bool {
		other.mu.Lock()
		defer other.mu.Unlock()
		return len(other.partitions) > 0
	})
	until(t, "the first knows", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.partitions) < 4
	})
	errs := s.Settle(t.Context(), done(ds...))
	refused := 0
	for i := range ds {
		switch {
		case errors.Is(errs[i], redrive.ErrLeaseLost):
			refused++
		case errs[i] != nil:
			t.Errorf("%s: %v", ds[i].ID, errs[i])
		}
	}
	again := claimN(t, other, refused)
	if refused == 0 || refused == 400 {
		t.Errorf("%d of 400 were refused", refused)
	}
	for i := range again {
		if !again[i].Suspect {
			t.Errorf("%s was in another member's hands", again[i].ID)
		}
	}
}

func recordsOfOthers(t *testing.T, c *cluster) {
	address := c.topic(t, 1)
	s := connect(t, address, Options{Queue: "sms"})
	header := kgo.RecordHeader{Key: "h", Value: []byte{0, 0xff}}
	records := []*kgo.Record{
		{Topic: s.topic, Key: []byte("customer"), Value: []byte(`{"a":1}`), Headers: []kgo.RecordHeader{header, header}},
		{Topic: s.topic, Key: []byte{0xff, 0xfe}, Value: nil},
		{Topic: s.topic, Value: []byte("x"), Headers: []kgo.RecordHeader{{Key: "redrive-id", Value: []byte("not an id!")}}},
	}
	if err := s.client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	ds := claimN(t, s, 3)
	if d := ds[0]; d.Key != "customer" || string(d.Body) != `{"a":1}` || len(d.Headers) != 2 || string(d.Headers[1].Value) != "\x00\xff" ||
		d.Identity != redrive.IdentityPosition || !strings.HasSuffix(d.Origin, "/0/0") {
		t.Errorf("%+v", d)
	}
	if v, ok := ds[1].Headers.Get("redrive-native-key"); !ok || v != "\xff\xfe" || ds[1].Key != "" || len(ds[1].Body) != 0 {
		t.Errorf("%+v", ds[1])
	}
	if redrive.CheckID(ds[2].ID) != nil || len(ds[2].Headers) != 1 {
		t.Errorf("%+v", ds[2])
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for i, d := range claimN(t, connect(t, address, Options{Queue: "sms"}), 3) {
		if d.ID != ds[i].ID {
			t.Errorf("the id of record %d was %s and is %s", i, ds[i].ID, d.ID)
		}
	}
}

// consume runs an engine over a store and the topic until the returned function is
// called.
func consume(t *testing.T, store redrive.Store, s *Source, h redrive.HandlerFunc, o redrive.QueueOptions) (stop func()) {
	t.Helper()
	e := redrive.NewEngine(store, redrive.EngineOptions{Grace: 5 * time.Second})
	o.Sources = []redrive.Source{s}
	if err := e.Handle(s.o.Queue, h, o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func slowRecord(t *testing.T, c *cluster) {
	s := connect(t, c.topic(t, 1), Options{})
	const n = 2000
	publishN(t, s, n)
	var mu sync.Mutex
	seen := map[string]int{}
	others := make(chan struct{})
	stop := consume(t, memory.New(), s, func(ctx context.Context, d *redrive.Delivery) error {
		if d.ID == "m0" {
			select {
			case <-others: // ends after all that stand behind it
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		mu.Lock()
		defer mu.Unlock()
		seen[d.ID]++
		if len(seen) == n-1 && seen["m0"] == 0 {
			close(others)
		}
		return nil
	}, redrive.QueueOptions{})
	defer stop()
	until(t, "all are handled", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == n
	})
	stop()
	offsets, err := c.admin.FetchOffsets(t.Context(), s.group)
	if err != nil {
		t.Fatal(err)
	}
	if at, _ := offsets.Lookup(s.topic, 0); at.At != n || at.Metadata != "" {
		t.Errorf("committed %d with metadata %q, want %d", at.At, at.Metadata, n)
	}
}

// rebalanceStorm lets members join and leave while the topic is worked off.
func rebalanceStorm(t *testing.T, c *cluster) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	address := c.topic(t, 8)
	first := connect(t, address, Options{Queue: "sms"})
	const n, members = 6000, 5
	publishN(t, first, n)
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
		s := connect(t, address, Options{Queue: "sms", Drain: time.Second})
		stop := consume(t, store, s, handler, redrive.QueueOptions{Concurrency: 8})
		stops = append(stops, func() { stop(); _ = s.Close() })
	}
	join()
	for range members {
		<-time.After(time.Duration(50+random.IntN(300)) * time.Millisecond)
		if len(stops) > 1 && random.IntN(2) == 0 {
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
	until(t, "all are handled", func() bool {
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

func deadLettersAreParked(t *testing.T, c *cluster) {
	s := connect(t, c.topic(t, 2), Options{Queue: "sms"})
	publishN(t, s, 50)
	store := memory.New()
	var mu sync.Mutex
	healed := false
	stop := consume(t, store, s, func(_ context.Context, d *redrive.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if !healed && (d.ID == "m7" || d.ID == "m30") {
			return redrive.Permanent(errors.New("no such number"))
		}
		return nil
	}, redrive.QueueOptions{})
	defer stop()
	counts := func() redrive.Counts {
		all, err := store.Counts(t.Context(), "sms")
		if err != nil || len(all) != 1 {
			return redrive.Counts{}
		}
		return all[0]
	}
	until(t, "two are dead", func() bool { return counts().Dead[redrive.ReasonPermanent] == 2 })
	entries, err := store.Get(t.Context(), []redrive.Ref{{Queue: "sms", ID: "m7"}})
	if err != nil || entries[0] == nil || entries[0].Key != "k7" || !strings.HasPrefix(entries[0].Origin, s.topic+"/") {
		t.Fatalf("%+v, %v", entries, err)
	}
	mu.Lock()
	healed = true
	mu.Unlock()
	if _, err := store.Update(t.Context(), redrive.Selection{Refs: []redrive.Ref{{Queue: "sms", ID: "m7"}, {Queue: "sms", ID: "m30"}}},
		redrive.Change{Action: redrive.ActRedrive}, 10); err != nil {
		t.Fatal(err)
	}
	until(t, "they are delivered", func() bool { return counts().Books.Done == 2 })
}

// crashIsFollowedUp drops a member with records in hand, as a crash would, and expects
// the next one to take them for suspects.
func crashIsFollowedUp(t *testing.T, c *cluster) {
	address := c.topic(t, 1)
	s := connect(t, address, Options{Queue: "sms"})
	publishN(t, s, 30)
	store := memory.New()
	hold := make(chan struct{})
	var begun sync.WaitGroup
	begun.Add(5)
	e := redrive.NewEngine(store, redrive.EngineOptions{Grace: time.Millisecond})
	if err := e.Handle("sms", redrive.HandlerFunc(func(context.Context, *redrive.Delivery) error {
		begun.Done()
		<-hold
		return nil
	}), redrive.QueueOptions{Sources: []redrive.Source{s}, Concurrency: 5}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.Run(ctx) // it cannot settle
	}()
	begun.Wait()
	if err := s.Close(); err != nil { // its marks stay, as after a crash
		t.Fatal(err)
	}
	e.Remove("sms")
	var mu sync.Mutex
	suspects, all := 0, map[string]bool{}
	stop := consume(t, store, connect(t, address, Options{Queue: "sms"}), func(_ context.Context, d *redrive.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		all[d.ID] = true
		if d.Suspect {
			suspects++
		}
		return nil
	}, redrive.QueueOptions{})
	defer stop()
	// A suspect waits until nothing else is in flight in the process: also of the engine
	// that plays the dead one.
	until(t, "the others are handled", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(all) >= 25
	})
	close(hold)
	until(t, "the suspects are handled", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(all) == 30
	})
	if suspects != 5 {
		t.Errorf("%d suspects, want the 5 that were in hand", suspects)
	}
	cancel()
	<-ended
}
