package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/brokertest"
	"github.com/redrive/redrive/internal/servertest"
)

// sequence checks that the messages of each key come in their order.
type sequence struct {
	t    *testing.T
	mu   sync.Mutex
	next map[string]int
	done int
}

// begin takes a message and returns its place among those of its key.
func (s *sequence) begin(d *redrive.Delivery) (at int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := fmt.Sscanf(string(d.Body), d.Key+" %d", &at); err != nil || at != s.next[d.Key] {
		s.t.Errorf("%q came when %d of %s was to come, %v", d.Body, s.next[d.Key], d.Key, err)
	}
	return at
}

func (s *sequence) end(d *redrive.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next[d.Key]++
	s.done++
}

func (s *sequence) ended() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done
}

// orderByKey has a message fail until those of all other keys are done, also those that come
// later, and while another member takes over: its followers wait for it.
func orderByKey(t *testing.T, c *cluster) {
	address := c.topic(t, 2)
	const keyed, each, bad = 4, 40, 7
	publish := func(s *Source, from, to int) {
		var msgs []redrive.Message
		for i := from; i < to; i++ {
			for k := range keyed {
				msgs = append(msgs, redrive.Message{Queue: s.o.Queue, Key: fmt.Sprintf("k%d", k), Body: fmt.Appendf(nil, "k%d %d", k, i)})
			}
		}
		if err := driver.FirstError(s.Publish(t.Context(), msgs)); err != nil {
			t.Fatal(err)
		}
	}
	store := memory.New()
	if err := store.Configure(t.Context(), brokertest.Queue, driver.QueueSettings{OrderByKey: true}); err != nil {
		t.Fatal(err)
	}
	seq := &sequence{t: t, next: make(map[string]int)}
	mended := make(chan struct{})
	consume := func(s *Source) (stop func()) {
		return brokertest.Consume(t, store, 0, func(_ context.Context, d *redrive.Delivery) error {
			if seq.begin(d) == bad && d.Key == "k0" {
				select {
				case <-mended:
				default:
					return errors.New("not yet")
				}
			}
			seq.end(d)
			return nil
		}, engine.QueueOptions{Sources: []driver.Source{s}, Breaker: engine.BreakerOptions{Off: true}, Policies: engine.Policies{Default: redrive.Policy{MaxAttempts: 1 << 20, Backoff: redrive.Fixed{Interval: 10 * time.Millisecond}}}})
	}
	s := connect(t, address, Options{Queue: brokertest.Queue, Ordered: true})
	publish(s, 0, each/2)
	stop := consume(s)
	servertest.Until(t, "the other keys are done", func() bool { return seq.ended() == (keyed-1)*each/2+bad })
	stop()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = connect(t, address, Options{Queue: brokertest.Queue, Ordered: true})
	publish(s, each/2, each)
	stop = consume(s)
	servertest.Until(t, "what came later of the other keys is done", func() bool { return seq.ended() == (keyed-1)*each+bad })
	servertest.Until(t, "the followers are behind it in the store", func() bool {
		counts, err := store.Counts(t.Context(), brokertest.Queue)
		return err == nil && counts[0].AllWaiting() == each-bad && c.sum(t, s) == keyed*each
	})
	close(mended)
	servertest.Until(t, "all are done", func() bool { return seq.ended() == keyed*each })
	stop()
}

func TestKeysStandBehindEachOther(t *testing.T) {
	s := &Source{epochs: make(map[uint64]*partition), changed: make(chan struct{}), target: &target{reach: new(reachable)}}
	m := &member{s: s, partitions: make(map[place]*partition)}
	p := &partition{m: m, inflight: make(map[int64]flight), keys: newKeys()}
	for i, key := range []string{"a", "a", "b", "", "", "a", "b"} {
		p.bufferLocked(&kgo.Record{Offset: int64(i), Key: []byte(key)})
	}
	take := func(want ...int64) {
		t.Helper()
		var got []int64
		for p.openLocked(time.Now()) {
			got = append(got, p.buffer[0].Offset)
			s.deliverLocked(p, time.Now())
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%d were claimed, want %d", got, want)
		}
	}
	take(0, 2, 3, 4)
	if n := p.behindLocked(); n != 3 || m.records != 3 {
		t.Errorf("%d stand behind, %d are counted", n, m.records)
	}
	m.releaseLocked(p, 0)
	take(0)
	p.settledLocked(0)
	p.settledLocked(3)
	take(1)
	p.settledLocked(1)
	p.settledLocked(2)
	take(5, 6)
	m.releaseLocked(p, 5)
	p.bufferLocked(&kgo.Record{Offset: 7, Key: []byte("a")})
	take(5)
	p.discardLocked()
	if m.records != 0 || m.bytes != 0 || p.behindLocked() != 0 {
		t.Errorf("%d records of %d bytes are left", m.records, m.bytes)
	}
}
