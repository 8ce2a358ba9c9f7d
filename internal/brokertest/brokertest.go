// Package brokertest holds what every source on a broker must stand beneath an engine:
// messages that fail are parked and retried, dead letters are found and redriven, a
// process that dies is followed up, and nothing is lost or handled twice meanwhile. The
// contract of a source by itself is backend/backendtest's.
package brokertest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/backendtest"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/servertest"
)

// Queue is what every source of the cases is called in Redrive.
const Queue = "sms"

// patience bounds how long a case waits for what must happen by itself.
const patience = 2 * time.Minute

// Opener opens a source at an address as [Queue].
type Opener func(ctx context.Context, address string) (backendtest.SourceSink, error)

// Broker is how the cases reach a broker. Everything but Foreign is needed.
type Broker struct {
	// Make makes an empty topic, queue or stream and returns the address of its source.
	Make func(t testing.TB) (address string)
	// Open opens a source there. [Victim] needs it, too.
	Open Opener
	// Foreign publishes bodies as a program would that knows nothing of Redrive.
	Foreign func(t testing.TB, address string, bodies ...string)
}

// Run runs all cases side by side, each as a subtest.
func Run(t *testing.T, b Broker) {
	for name, run := range map[string]func(*testing.T, *Broker){
		"DoneOnce":                 doneOnce,
		"RetriesAreParked":         retriesAreParked,
		"DeadLettersAreParked":     deadLettersAreParked,
		"EmitsAndRepeats":          emitsAndRepeats,
		"ShutdownGivesBack":        shutdownGivesBack,
		"MembersShare":             membersShare,
		"MessagesOfOthers":         messagesOfOthers,
		"UndecodableIsDead":        undecodableIsDead,
		"KilledProcessIsFollowed":  killedProcess,
		"SlowMessageHoldsNobodyUp": slowMessage,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, &b)
		})
	}
}

// open opens a source that closes with the test.
func (b *Broker) open(t testing.TB, address string) backendtest.SourceSink {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := b.Open(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Publish publishes messages with the ids m0, m1 and so on.
func Publish(t testing.TB, s redrive.Sink, n int) {
	t.Helper()
	msgs := make([]redrive.Message, n)
	for i := range msgs {
		msgs[i] = redrive.Message{Queue: Queue, ID: id(i), Kind: "text", Key: fmt.Sprintf("k%d", i%97), Body: []byte(body(i)), Headers: redrive.Headers{{Name: "n", Value: fmt.Append(nil, i)}}}
	}
	if err := driver.FirstError(s.Publish(context.Background(), msgs)); err != nil {
		t.Fatal(err)
	}
}

func id(i int) string   { return fmt.Sprintf("m%d", i) }
func body(i int) string { return fmt.Sprintf(`{"n":%d}`, i) }

// Consume runs an engine over a store and sources until the returned function is called,
// or the test ends. A grace of zero is 5 s.
func Consume(t testing.TB, store driver.Store, grace time.Duration, h redrive.HandlerFunc, o engine.QueueOptions) (stop func()) {
	t.Helper()
	if grace == 0 {
		grace = 5 * time.Second
	}
	e := engine.New(store, engine.Options{Grace: grace})
	if err := e.Handle(Queue, h, o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// rig is a store, a queue at the broker and a journal of what was handled.
type rig struct {
	testing.TB
	b       *Broker
	address string
	source  backendtest.SourceSink
	store   *memory.Store

	mu   sync.Mutex
	seen map[string][]redrive.Delivery // by id
}

func newRig(t testing.TB, b *Broker) *rig {
	t.Helper()
	r := &rig{TB: t, b: b, address: b.Make(t), store: memory.New(), seen: make(map[string][]redrive.Delivery)}
	r.source = b.open(t, r.address)
	return r
}

// consume handles the queue with h, which may be nil, after it was written down.
func (r *rig) consume(h redrive.HandlerFunc, o engine.QueueOptions) (stop func()) {
	r.Helper()
	if o.Sources == nil {
		o.Sources = []driver.Source{r.source}
	}
	return Consume(r.TB, r.store, 0, func(ctx context.Context, d *redrive.Delivery) error {
		r.mu.Lock()
		r.seen[d.ID] = append(r.seen[d.ID], *d)
		r.mu.Unlock()
		if h == nil {
			return nil
		}
		return h(ctx, d)
	}, o)
}

// reopen closes the source and opens it again.
func (r *rig) reopen() {
	r.Helper()
	if err := r.source.Close(); err != nil {
		r.Fatal(err)
	}
	r.source = r.b.open(r.TB, r.address)
}

// handled returns how many messages were handled, and how often more than once.
func (r *rig) handled() (messages, again int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ds := range r.seen {
		again += len(ds) - 1
	}
	return len(r.seen), again
}

func (r *rig) untilHandled(n int) {
	r.Helper()
	servertest.Until(r.TB, fmt.Sprintf("%d are handled", n), func() bool { got, _ := r.handled(); return got >= n })
}

func (r *rig) of(id string) []redrive.Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]redrive.Delivery(nil), r.seen[id]...)
}

func (r *rig) counts() driver.Counts {
	r.Helper()
	all, err := r.store.Counts(context.Background(), Queue)
	if err != nil || len(all) != 1 {
		r.Fatalf("counts: %v, %v", all, err)
	}
	return all[0]
}

// entry returns what the store has of a message.
func (r *rig) entry(id string) *redrive.Entry {
	r.Helper()
	entries, err := r.store.Get(context.Background(), []redrive.Ref{{Queue: Queue, ID: id}})
	if err != nil || entries[0] == nil {
		r.Fatalf("entry %s: %v, %v", id, entries, err)
	}
	return entries[0]
}

// balanced checks the ledger of the store.
func (r *rig) balanced() {
	r.Helper()
	audits, err := r.store.Verify(context.Background(), Queue)
	if err != nil {
		r.Fatal(err)
	}
	for i := range audits {
		if a := &audits[i]; a.Imbalance() != 0 || len(a.Problems) > 0 {
			r.Errorf("the ledger does not balance: %+v", a)
		}
	}
}
