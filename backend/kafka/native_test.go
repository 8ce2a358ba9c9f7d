package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/brokertest"
	"github.com/redrive/redrive/internal/native"
	"github.com/redrive/redrive/internal/servertest"
)

// natively makes a topic, opens it with native dead letters and returns the address of
// the dead ones.
func natively(t testing.TB, c *cluster, partitions int32, more string, o Options) (s *Source, address, dlq string) {
	t.Helper()
	address = c.topic(t, partitions) + "&create=true" + more
	o.Native = true
	if o.Queue == "" {
		o.Queue = brokertest.Queue
	}
	s = connect(t, address, o)
	return s, address, "kafka://" + c.brokers + "/" + s.dlq
}

// nativeRetries has messages fail before they are done, and one with a delay of its own.
func nativeRetries(t *testing.T, c *cluster) {
	s, _, dlq := natively(t, c, 2, "&tiers=50ms,200ms", Options{})
	const n, wait = 8, 100 * time.Millisecond
	publishN(t, s, n)
	late := time.Now()
	if err := driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: s.o.Queue, ID: "late", Delay: wait}})); err != nil {
		t.Fatal(err)
	}
	store := memory.New()
	var mu sync.Mutex
	failed, done := map[string]time.Time{}, map[string]bool{}
	published := map[string]time.Time{}
	stop := brokertest.Consume(t, store, 0, func(_ context.Context, d *redrive.Delivery) error {
		mu.Lock()
		defer mu.Unlock()
		if d.ID == "late" {
			if since := time.Since(late); since < wait || d.Attempt != 1 || len(d.Headers) != 0 {
				t.Errorf("after %v: %+v", since, d)
			}
			done[d.ID] = true
			return nil
		}
		switch d.Attempt {
		case 1:
			published[d.ID] = d.PublishedAt
		default:
			if since := time.Since(failed[d.ID]); since < wait {
				t.Errorf("%s came after %v, want %v or more", d.ID, since, wait)
			}
			if d.Lane != redrive.LaneRetry || d.Failures != d.Attempt-1 || d.History.Count != d.Failures || len(d.Headers) != 0 ||
				!d.PublishedAt.Equal(published[d.ID]) || !strings.HasPrefix(d.Origin, s.topic+"/") || d.Key == "" ||
				!strings.Contains(d.History.Latest().Message, fmt.Sprintf("attempt %d", d.Failures)) {
				t.Errorf("%+v", d)
			}
		}
		if d.Attempt == 3 {
			done[d.ID] = true
			return nil
		}
		failed[d.ID] = time.Now()
		return fmt.Errorf("attempt %d: the line is busy", d.Attempt)
	}, engine.QueueOptions{Sources: []driver.Source{s}, Breaker: engine.BreakerOptions{Off: true}, Policies: engine.Policies{Default: redrive.Policy{Backoff: redrive.Fixed{Interval: wait}}}})
	servertest.Until(t, "all are done", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(done) == n+1
	})
	stop()
	if all, err := store.Counts(t.Context(), s.o.Queue); err != nil || all[0].Ledger.Parked != 0 {
		t.Errorf("%+v, %v: want nothing in the store", all, err)
	}
	if records, _ := readTopic(t, dlq); len(records) != 0 {
		t.Errorf("%d dead letters", len(records))
	}
	if stats, err := s.SourceStats(t.Context()); err != nil || stats.Unacked != 0 || stats.Buffered != 0 || stats.Dead != 0 || stats.Uncommitted != 0 {
		t.Errorf("%+v, %v", stats, err)
	}
}

// nativeDeadLetters has a record of others and one of ours die, and gives them back to
// their topic.
func nativeDeadLetters(t *testing.T, c *cluster, how string) {
	s, address, dlq := natively(t, c, 1, "&tiers=10ms&dead="+how, Options{})
	foreign := &kgo.Record{Topic: s.topic, Key: []byte{0xff, 1}, Value: []byte("not ours"), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h", Value: []byte{0}}}}
	if err := c.client.ProduceSync(t.Context(), foreign).FirstErr(); err != nil {
		t.Fatal(err)
	}
	publishN(t, s, 5)
	store := memory.New()
	consume := func(s *Source, h redrive.HandlerFunc) func() {
		return brokertest.Consume(t, store, 0, h, engine.QueueOptions{Sources: []driver.Source{s},
			Policies: engine.Policies{Default: redrive.Policy{Backoff: redrive.Fixed{Interval: time.Millisecond}, MaxAttempts: 3}}})
	}
	stop := consume(s, func(_ context.Context, d *redrive.Delivery) error {
		switch {
		case d.ID == "m3":
			return errors.New("the line is busy")
		case string(d.Body) == "not ours":
			return redrive.Permanent(errors.New("no such number"))
		}
		return nil
	})
	servertest.Until(t, "two are dead", func() bool { records, _ := readTopic(t, dlq); return len(records) == 2 })
	stop()
	records, topic := readTopic(t, dlq)
	for i := range records {
		r := &records[i]
		m := topic.Message(r, "attached")
		was, _ := native.ReadOriginal(m.Headers)
		history, ok := native.TakeHistory(&m)
		if !ok || history.Queue != s.o.Queue || was.Topic != s.topic || was.Group != s.group || history.DiedAt.IsZero() {
			t.Errorf("%+v, %+v", history, was)
		}
		switch string(r.Value) {
		case "not ours":
			if string(r.Key) != "\xff\x01" || was.Partition != 0 || was.Offset != foreign.Offset || !was.At.Equal(foreign.Timestamp.Truncate(time.Millisecond)) || history.Attempts != 1 ||
				history.Reason != redrive.ReasonPermanent || !strings.Contains(history.History.Latest().Message, "no such number") ||
				m.ID != deriveID(s.cluster, s.topic, 0, foreign.Offset) || m.Origin != origin(s.topic, 0, foreign.Offset) {
				t.Errorf("%+v, %+v, %+v", r, history, was)
			}
		case "body 3":
			if string(r.Key) != "k3" || m.ID != "m3" || history.Attempts != 3 || history.History.Count != 3 || history.Reason != redrive.ReasonExhausted ||
				was.Offset != foreign.Offset+4 {
				t.Errorf("%+v, %+v, %+v", r, history, was)
			}
		default:
			t.Errorf("%+v", r)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// They go back with key and headers, and nothing else comes again.
	foreign.Partition = 0
	back := []Record{{Topic: s.topic, Partition: 0, Key: foreign.Key, Value: foreign.Value, Headers: redrive.Headers{{Name: "h", Value: []byte("1")}, {Name: "h", Value: []byte{0}}}}}
	if err := driver.FirstError(topic.Publish(t.Context(), back)); err != nil {
		t.Fatal(err)
	}
	got := make(chan *redrive.Delivery, 10)
	stop = consume(connect(t, address, Options{Queue: s.o.Queue, Native: true}), func(_ context.Context, d *redrive.Delivery) error {
		got <- d
		return nil
	})
	if d := <-got; string(d.Body) != "not ours" || len(d.Headers) != 3 || string(d.Headers[1].Value) != "\x00" {
		t.Errorf("%+v", d)
	}
	stop()
	if len(got) != 0 {
		t.Errorf("%d came again", len(got))
	}
}

// crashedIsDeadNatively has the store deliver what was in flight in a process that
// died: when it dies there, too, it goes to the topic of dead letters, and nothing else does
// so a second time.
func crashedIsDeadNatively(t *testing.T, c *cluster) {
	s, _, dlq := natively(t, c, 1, "", Options{})
	foreign := &kgo.Record{Topic: s.topic, Key: []byte{0xff, 1}, Value: []byte("not ours"), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}}}
	if err := c.client.ProduceSync(t.Context(), foreign).FirstErr(); err != nil {
		t.Fatal(err)
	}
	publishN(t, s, 1)
	store := memory.New()
	id := deriveID(s.cluster, s.topic, 0, foreign.Offset)
	if _, err := store.Apply(t.Context(), driver.Batch{Records: []driver.RecordWrite{
		{Space: "claims", Key: s.o.Queue + "/dead/0", Value: []byte(id), Version: driver.AnyVersion}}}); err != nil {
		t.Fatal(err)
	}
	stop := brokertest.Consume(t, store, 0, func(_ context.Context, d *redrive.Delivery) error {
		if d.Suspect != (d.ID == id) {
			t.Errorf("%+v", d)
		}
		return redrive.Permanent(errors.New("no such number"))
	}, engine.QueueOptions{Sources: []driver.Source{s}, DeadLetters: s, Breaker: engine.BreakerOptions{Off: true}})
	servertest.Until(t, "two are dead", func() bool { records, _ := readTopic(t, dlq); return len(records) == 2 })
	stop()
	if counts, err := store.Counts(t.Context(), s.o.Queue); err != nil || counts[0].Ledger.Parked != 1 || counts[0].Ledger.Done != 1 || len(counts[0].Dead) != 0 {
		t.Errorf("%+v, %v", counts, err)
	}
	records, topic := readTopic(t, dlq)
	for i := range records {
		m := topic.Message(&records[i], "attached")
		was, _ := native.ReadOriginal(m.Headers)
		history, _ := native.TakeHistory(&m)
		if was.Topic != s.topic || was.Partition != 0 || was.Offset > 1 || was.Group != s.group || was.At.IsZero() ||
			history.Reason != redrive.ReasonPermanent || history.Attempts != 1+int(1-was.Offset) || history.DiedAt.IsZero() {
			t.Errorf("%+v, %+v", was, history)
		}
		if m.ID == id && (string(records[i].Key) != "\xff\x01" || string(m.Body) != "not ours" || was.Offset != 0 || !strings.Contains(history.History.Latest().Message, "no such number")) {
			t.Errorf("%+v, %+v", m, history)
		}
	}
	if err := connect(t, c.topic(t, 1), Options{}).DeadLetter(t.Context(), &redrive.Entry{}); !errors.Is(err, redrive.ErrUnsupported) {
		t.Errorf("without Native: %v", err)
	}
}

// missingTopics are refused with the command that makes them.
func missingTopics(t *testing.T, c *cluster) {
	address := c.topic(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := Open(ctx, address, Options{Native: true})
	var e *redrive.Error
	if !errors.As(err, &e) || !strings.Contains(e.Hint, "kafka-topics.sh") || !strings.Contains(e.Hint, "--partitions 2") {
		t.Errorf("%v", err)
	}
	if _, err := Open(ctx, address+"&dlq=x", Options{}); !errors.Is(err, redrive.ErrInvalid) {
		t.Errorf("dlq where nothing is native: %v", err)
	}
	s := connect(t, address+"&create=true", Options{Native: true})
	for _, v := range s.Probe(ctx) {
		if strings.Contains(v.Setting, s.dlq) || strings.Contains(v.Setting, s.prefix) {
			t.Errorf("what was created is not right: %+v", v)
		}
	}
}

// fencedChangesNothing lets a member that the group has expelled settle natively.
func fencedChangesNothing(t *testing.T, c *cluster) {
	s, address, dlq := natively(t, c, 1, "&tiers=1s", Options{})
	publishN(t, s, 3)
	ds := claimN(t, s, 3)
	servertest.Until(t, "the member is expelled", func() bool {
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group = s.group
		id, _ := s.main.client.GroupMetadata()
		req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: id}}
		resp, err := req.RequestWith(t.Context(), c.client)
		return err == nil && resp.ErrorCode == 0 && resp.Members[0].ErrorCode == 0
	})
	for i, o := range []driver.Settlement{{Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent}, {Outcome: redrive.OutcomeRetry, After: time.Second}} {
		o.Receipt = ds[i].Receipt
		if err := driver.FirstError(s.Settle(t.Context(), []driver.Settlement{o})); err == nil {
			t.Errorf("%v of an expelled member succeeded", o.Outcome)
		}
	}
	if records, _ := readTopic(t, dlq); len(records) != 0 {
		t.Errorf("%d dead letters of an expelled member", len(records))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if again := claimN(t, connect(t, address, Options{Queue: s.o.Queue, Native: true}), 3); len(again) != 3 {
		t.Errorf("%d came again", len(again))
	}
}

// cutter cuts connections at one kind of request, once: before it is sent, or when its
// answer is there.
type cutter struct {
	key   int16
	after bool
	armed atomic.Bool
	cuts  atomic.Int64
}

func (k *cutter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &cutConn{Conn: conn, k: k}, nil
}

type cutConn struct {
	net.Conn
	k       *cutter
	pending atomic.Bool
}

func (c *cutConn) Write(b []byte) (int, error) {
	if len(b) >= 6 && int16(b[4])<<8|int16(b[5]) == c.k.key && c.k.armed.CompareAndSwap(true, false) {
		c.k.cuts.Add(1)
		if !c.k.after {
			_ = c.Conn.Close()
			return 0, io.ErrClosedPipe
		}
		c.pending.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.pending.Load() && err == nil {
		_ = c.Conn.Close()
		return 0, io.EOF
	}
	return n, err
}

// cutsLoseNothing cuts the connection before and after each request of a native dead
// letter. What is repeated then is there once with transactions, at least once else.
func cutsLoseNothing(t *testing.T, c *cluster) {
	requests := map[string]map[string]kmsg.Key{
		byTransaction: {"InitProducerID": kmsg.InitProducerID, "Produce": kmsg.Produce, "AddOffsetsToTxn": kmsg.AddOffsetsToTxn, "TxnOffsetCommit": kmsg.TxnOffsetCommit, "EndTxn": kmsg.EndTxn},
		byPublish:     {"Produce": kmsg.Produce, "OffsetCommit": kmsg.OffsetCommit},
	}
	for how, keys := range requests {
		for name, key := range keys {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/after=%v", how, name, after), func(t *testing.T) {
					t.Parallel()
					cutOnce(t, c, how, &cutter{key: int16(key), after: after})
				})
			}
		}
	}
}

func cutOnce(t *testing.T, c *cluster, how string, k *cutter) {
	s, address, dlq := natively(t, c, 1, "&tiers=1s&dead="+how, Options{Client: []kgo.Opt{kgo.Dialer(k.dial)}})
	publishN(t, s, 3)
	ds := claimN(t, s, 3)
	k.armed.Store(true)
	batch := []driver.Settlement{{Receipt: ds[1].Receipt, Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent, Failure: &redrive.Failure{Message: "no"}}}
	servertest.Until(t, "it is settled", func() bool {
		err := driver.FirstError(s.Settle(t.Context(), batch))
		if err != nil {
			t.Log(err)
		}
		return err == nil || errors.Is(err, redrive.ErrLeaseLost)
	})
	var records []Record
	servertest.Until(t, "the end of the transaction is seen", func() bool {
		records, _ = readTopic(t, dlq)
		return len(records) > 0
	})
	t.Logf("%d dead letters", len(records))
	if k.cuts.Load() != 1 {
		t.Errorf("cut %d times", k.cuts.Load())
	}
	if how == byTransaction && len(records) != 1 {
		t.Errorf("%d dead letters", len(records))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, d := range claimN(t, connect(t, address, Options{Queue: s.o.Queue, Native: true}), 2) {
		if d.ID == ds[1].ID {
			t.Errorf("%s is dead and came again", d.ID)
		}
	}
}

func TestTiers(t *testing.T) {
	a, err := parse("kafka://a,b:1/orders?group=shop&tiers=1h,90s,1s,2m")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(a.tierTopics(), " "); got != "orders.retry.shop.1s orders.retry.shop.1m30s orders.retry.shop.2m orders.retry.shop.1h" {
		t.Error(got)
	}
	for d, want := range map[time.Duration]string{0: "1s", time.Second: "1s", time.Second + 1: "1m30s", 90 * time.Second: "1m30s", time.Hour: "1h"} {
		if got := a.tier(d); got != "orders.retry.shop."+want {
			t.Errorf("%v goes to %s", d, got)
		}
	}
	if strings.Join(a.brokers, " ") != "a:9092 b:1" || a.dlq != "orders.dlq" {
		t.Errorf("%+v", a)
	}
	for _, bad := range []string{"?tiers=x", "?tiers=-1s", "?dead=maybe", "?create=1", "?dlq=", "?nothing=x"} {
		if _, err := parse("kafka://a/orders" + bad); !errors.Is(err, redrive.ErrInvalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
