package jetstream

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/brokertest"
	"github.com/redrive/redrive/internal/natstest"
	"github.com/redrive/redrive/internal/proxytest"
	"github.com/redrive/redrive/internal/servertest"
)

func claim(n int) driver.ClaimRequest {
	return driver.ClaimRequest{Queue: brokertest.Queue, Max: n, Lease: time.Minute, Instance: "test"}
}

// claimN claims until it has n.
func claimN(t testing.TB, s *Source, n int) (ds []redrive.Delivery) {
	t.Helper()
	servertest.Until(t, fmt.Sprintf("%d are claimed", n), func() bool {
		got, err := s.Claim(context.Background(), claim(n-len(ds)))
		if err != nil {
			t.Fatal(err)
		}
		ds = append(ds, got...)
		return len(ds) == n
	})
	return ds
}

func settled(o redrive.Outcome, ds ...redrive.Delivery) []driver.Settlement {
	batch := make([]driver.Settlement, len(ds))
	for i := range ds {
		batch[i] = driver.Settlement{Receipt: ds[i].Receipt, Outcome: o}
	}
	return batch
}

// info asks the server for a source's consumer.
func (r *rig) info(t testing.TB, s *Source) *jetstream.ConsumerInfo {
	t.Helper()
	c, err := r.js.Consumer(context.Background(), s.at.stream, s.at.consumer)
	if err != nil {
		t.Fatal(err)
	}
	return c.CachedInfo()
}

// TestStaleIsRefused lets a lease end: another process gets the message, and what the
// first one says of it then is refused here, as the server would take it.
func TestStaleIsRefused(t *testing.T) {
	t.Parallel()
	r := start(t)
	address := r.stream(t)
	a, b := connect(t, address, Options{}), connect(t, address, Options{})
	brokertest.Publish(t, a, 1)
	first := claimN(t, a, 1)
	a.mu.Lock() // a hears nothing any more, and AckWait passes
	sequence, _ := readPosition(first[0].Receipt.Position)
	a.items[sequence].known = time.Now().Add(-time.Hour)
	reply := a.items[sequence].reply
	a.mu.Unlock()
	if err := errors.Join(a.pulls.Unsubscribe(), a.nc.Flush()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.nc.Request(reply, []byte(nak), 30*time.Second); err != nil {
		t.Fatal(err)
	}
	second := claimN(t, b, 1)
	if second[0].ID != first[0].ID || !second[0].Suspect {
		t.Errorf("%+v", second[0])
	}
	for _, o := range []redrive.Outcome{redrive.OutcomeDone, redrive.OutcomeDrop, redrive.OutcomeRelease} {
		if err := driver.FirstError(a.Settle(t.Context(), settled(o, first...))); !errors.Is(err, redrive.ErrLeaseLost) {
			t.Errorf("%s: %v", o, err)
		}
	}
	if err := driver.FirstError(a.Extend(t.Context(), []redrive.Receipt{first[0].Receipt}, time.Minute)); !errors.Is(err, redrive.ErrLeaseLost) {
		t.Error(err)
	}
	if n := r.info(t, b).NumAckPending; n != 1 {
		t.Errorf("%d are pending, want the one in flight at the other", n)
	}
	if err := driver.FirstError(b.Settle(t.Context(), settled(redrive.OutcomeDone, second...))); err != nil {
		t.Error(err)
	}
	if err := driver.FirstError(b.Settle(t.Context(), settled(redrive.OutcomeDone, second...))); !errors.Is(err, redrive.ErrLeaseLost) {
		t.Errorf("settled twice: %v", err)
	}
}

// TestTheServerFencesNothing is why Caps say that nothing is fenced: the acknowledgement of
// an older delivery ends the newer one.
func TestTheServerFencesNothing(t *testing.T) {
	t.Parallel()
	r := start(t)
	s := connect(t, r.stream(t, workQueue), Options{})
	brokertest.Publish(t, s, 1)
	d := claimN(t, s, 1)
	s.mu.Lock()
	sequence, _ := readPosition(d[0].Receipt.Position)
	old := s.items[sequence].reply
	s.mu.Unlock()
	if err := driver.FirstError(s.Settle(t.Context(), settled(redrive.OutcomeRelease, d...))); err != nil {
		t.Fatal(err)
	}
	again := claimN(t, s, 1)
	if again[0].Receipt == d[0].Receipt {
		t.Error("two deliveries have one receipt")
	}
	if _, err := r.nc.Request(old, []byte(done), 30*time.Second); err != nil {
		t.Fatal(err)
	}
	if i := r.info(t, s); i.NumAckPending != 0 || s.Caps().Fenced {
		t.Errorf("%d are pending: the server fences now, and Caps may say so", i.NumAckPending)
	}
}

// TestReleasesBurnNothing gives a message back again and again: it comes at once, as its
// first attempt, however often the server delivered it.
func TestReleasesBurnNothing(t *testing.T) {
	t.Parallel()
	r := start(t)
	s := connect(t, r.stream(t, workQueue), Options{})
	brokertest.Publish(t, s, 1)
	for range 30 {
		d := claimN(t, s, 1)
		if d[0].Attempt != 1 || d[0].ID != "m0" {
			t.Fatalf("%+v", d[0])
		}
		if err := driver.FirstError(s.Settle(t.Context(), settled(redrive.OutcomeRelease, d...))); err != nil {
			t.Fatal(err)
		}
	}
	d := claimN(t, s, 1)
	if err := driver.FirstError(s.Settle(t.Context(), settled(redrive.OutcomeDone, d...))); err != nil {
		t.Fatal(err)
	}
	stream, err := r.js.Stream(t.Context(), s.at.stream)
	if err != nil || stream.CachedInfo().State.Msgs != 0 {
		t.Errorf("%+v, %v", stream, err)
	}
	servertest.Until(t, "the server's advisories are counted", func() bool { return s.Advisories()["nak"] >= 30 })
}

// TestMaxDeliverIsRefused has a consumer whose messages vanish after two deliveries: the
// probe refuses it, and the advisory of one that is stuck is counted.
func TestMaxDeliverIsRefused(t *testing.T) {
	t.Parallel()
	r := start(t)
	address := r.stream(t, workQueue)
	at, _ := parse(address)
	if _, err := r.js.CreateConsumer(t.Context(), at.stream, jetstream.ConsumerConfig{Durable: "redrive", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: time.Second, MaxDeliver: 2, MaxAckPending: 100}); err != nil {
		t.Fatal(err)
	}
	s := connect(t, address, Options{})
	level := map[string]driver.Level{}
	for _, v := range s.Probe(t.Context()) {
		level[v.Setting] = v.Level
		if v.Level != driver.LevelOK && (v.Hint == "" || v.Promise == "") {
			t.Errorf("%+v", v)
		}
	}
	if level["max_deliver"] != driver.LevelRefused || level["max_ack_pending"] != driver.LevelWarn {
		t.Errorf("%v", level)
	}
	brokertest.Publish(t, s, 1)
	for range 2 {
		d := claimN(t, s, 1)
		if err := driver.FirstError(s.Settle(t.Context(), settled(redrive.OutcomeRelease, d...))); err != nil {
			t.Fatal(err)
		}
	}
	servertest.Until(t, "the server tells that it is stuck", func() bool { return s.Advisories()["max_deliver"] == 1 })
}

func TestConsumersThatCannotServe(t *testing.T) {
	t.Parallel()
	r := start(t)
	for name, c := range map[string]jetstream.ConsumerConfig{
		"none": {AckPolicy: jetstream.AckNonePolicy}, "all": {AckPolicy: jetstream.AckAllPolicy},
		"headers": {AckPolicy: jetstream.AckExplicitPolicy, HeadersOnly: true},
	} {
		address := r.stream(t)
		at, _ := parse(address)
		c.Durable = "redrive"
		if _, err := r.js.CreateConsumer(t.Context(), at.stream, c); err != nil {
			t.Fatal(err)
		}
		if s, err := Open(t.Context(), address, Options{}); err == nil || !errors.Is(err, redrive.ErrUnsupported) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	for address, want := range map[string]string{
		"nats://" + r.addr + "/NOBODY": "stream not found", "nats://" + r.addr: "no stream",
		"nats://" + r.addr + "/X?consumer=a.b": "name of a consumer", "nats://" + r.addr + "/X?what=1": "what",
		"http://" + r.addr + "/X": "scheme", "nats://" + r.addr + "/X?ack_wait=1ms": "ack_wait", "nats://" + r.addr + "/X?tls_cert=c": "tls_key",
	} {
		if _, err := Open(t.Context(), address, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestDelaysStallNobody fails ten messages for an hour at a consumer that allows ten in
// flight: they wait in the store, and the others are delivered.
func TestDelaysStallNobody(t *testing.T) {
	t.Parallel()
	r := start(t)
	address := r.stream(t)
	at, _ := parse(address)
	if _, err := r.js.CreateConsumer(t.Context(), at.stream, jetstream.ConsumerConfig{Durable: "redrive", AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: time.Second, MaxDeliver: -1, MaxAckPending: 10}); err != nil {
		t.Fatal(err)
	}
	s := connect(t, address, Options{})
	brokertest.Publish(t, s, 51)
	var j journal
	store := memory.New()
	brokertest.Consume(t, store, 0, func(ctx context.Context, d *redrive.Delivery) error {
		_ = j.handler(ctx, d)
		if len(d.ID) == 2 { // m0 to m9
			return redrive.RetryAfter(errors.New("later"), time.Hour)
		}
		return nil
	}, engine.QueueOptions{Sources: []driver.Source{s}})
	servertest.Until(t, "all had their attempt", func() bool { n, _ := j.count(); return n == 51 })
	servertest.Until(t, "ten wait", func() bool {
		c, err := store.Counts(t.Context(), brokertest.Queue)
		return err == nil && c[0].AllWaiting() == 10 && r.info(t, s).NumAckPending == 0
	})
}

// TestAnswerIsLost cuts the connection after the server got an acknowledgement: the
// settlement is unknown, and its repetition succeeds.
func TestAnswerIsLost(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t, natstest.Options{})
	proxy := proxytest.New(t, server.Addr())
	r := reach(t, server.Addr())
	address := strings.Replace(r.stream(t, workQueue), server.Addr(), proxy.Addr().String(), 1)
	s := connect(t, address, Options{Client: []nats.Option{nats.IgnoreDiscoveredServers()}})
	brokertest.Publish(t, s, 3)
	ds := claimN(t, s, 3)
	proxy.Muffle()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	errs := s.Settle(ctx, settled(redrive.OutcomeDone, ds...))
	cancel()
	for _, err := range errs {
		if !errors.Is(err, redrive.ErrUnknown) {
			t.Errorf("without an answer: %v", err)
		}
	}
	proxy.Cut()
	servertest.Until(t, "the repetition succeeds", func() bool {
		return driver.FirstError(s.Settle(t.Context(), settled(redrive.OutcomeDone, ds...))) == nil
	})
	if i := r.info(t, s); i.NumAckPending != 0 || i.AckFloor.Stream != 3 {
		t.Errorf("%+v", i)
	}
}

// TestForgottenAcknowledgement has the server deliver again what was acknowledged, as
// after a crash: no handler sees it.
func TestForgottenAcknowledgement(t *testing.T) {
	t.Parallel()
	r := start(t)
	s := connect(t, r.stream(t), Options{})
	brokertest.Publish(t, s, 20)
	if err := driver.FirstError(s.Settle(t.Context(), settled(redrive.OutcomeDone, claimN(t, s, 20)...))); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.consumer.floor = 0 // as it was when nothing was known yet
	s.mu.Unlock()
	if err := r.js.DeleteConsumer(t.Context(), s.at.stream, "redrive"); err != nil {
		t.Fatal(err)
	}
	servertest.Until(t, "all are acknowledged again", func() bool {
		c, err := r.js.Consumer(t.Context(), s.at.stream, "redrive")
		return err == nil && c.CachedInfo().AckFloor.Stream == 20
	})
	if ds, err := s.Claim(t.Context(), claim(20)); err != nil || len(ds) != 0 {
		t.Errorf("%d came again, %v", len(ds), err)
	}
}

// TestRedeliveryRenews has the server deliver again what is in flight: the handler goes on,
// and its settlement counts.
func TestRedeliveryRenews(t *testing.T) {
	t.Parallel()
	r := start(t)
	s := connect(t, r.stream(t), Options{})
	brokertest.Publish(t, s, 1)
	d := claimN(t, s, 1)
	sequence, _ := readPosition(d[0].Receipt.Position)
	s.mu.Lock()
	old := s.items[sequence].reply
	s.mu.Unlock()
	if _, err := r.nc.Request(old, []byte(nak), 30*time.Second); err != nil { // not by us
		t.Fatal(err)
	}
	servertest.Until(t, "the new delivery came", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.items[sequence].reply != old
	})
	if ds, err := s.Claim(t.Context(), claim(1)); err != nil || len(ds) != 0 {
		t.Errorf("it was claimed twice: %v, %v", ds, err)
	}
	if err := driver.FirstError(s.Settle(t.Context(), settled(redrive.OutcomeDone, d...))); err != nil {
		t.Error(err)
	}
	if n := r.info(t, s).NumAckPending; n != 0 {
		t.Errorf("%d are pending", n)
	}
}

// TestBufferIsGivenBack has a process that claims nothing any more: others get what it has
// fetched.
func TestBufferIsGivenBack(t *testing.T) {
	t.Parallel()
	r := start(t)
	address := r.stream(t)
	s := connect(t, address, Options{})
	brokertest.Publish(t, s, 50)
	claimN(t, s, 1)
	servertest.Until(t, "the others are buffered", func() bool {
		stats, err := s.SourceStats(t.Context())
		return err == nil && stats.Buffered == 49 && stats.Unacked == 1 && stats.Lag == 0 && stats.Dead == driver.Unknown
	})
	s.keepOnce(time.Now().Add(3 * DefaultAckWait))
	other := connect(t, address, Options{})
	claimN(t, other, 49)
	if err := driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: brokertest.Queue}})); err != nil {
		t.Fatal(err)
	}
	servertest.Until(t, "it comes back to life", func() bool {
		ds, err := s.Claim(t.Context(), claim(1))
		if err != nil {
			t.Fatal(err)
		}
		more, err := other.Claim(t.Context(), claim(1))
		return err == nil && len(ds)+len(more) == 1
	})
}

func TestMessagesOfOthers(t *testing.T) {
	t.Parallel()
	r := start(t)
	address := r.stream(t, func(c *jetstream.StreamConfig) { c.Subjects = []string{c.Subjects[0], c.Subjects[0] + ".>"} })
	s := connect(t, address, Options{})
	for _, m := range []*nats.Msg{
		{Subject: s.publish, Data: []byte("named"), Header: nats.Header{"Nats-Msg-Id": {"order-7"}, "h": {"1", "2"}}},
		{Subject: s.publish + ".new", Data: nil, Header: nats.Header{"Nats-Msg-Id": {"no id of ours!"}}},
		{Subject: s.publish, Data: []byte("x"), Header: nats.Header{"redrive-id": {"not an id!"}}},
	} {
		if _, err := r.js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	ds := claimN(t, s, 3)
	if d := ds[0]; d.ID != "order-7" || d.Identity != redrive.IdentityMessage || len(d.Headers) != 3 || d.Origin != s.at.stream+"/1" {
		t.Errorf("%+v", d)
	}
	if v, _ := ds[1].Headers.Get("redrive-original-subject"); v != s.publish+".new" || ds[1].Identity != redrive.IdentityPosition {
		t.Errorf("%+v", ds[1])
	}
	if _, ok := ds[2].Headers.Get("redrive-id"); !ok || driver.CheckID(ds[2].ID) != nil {
		t.Errorf("%+v", ds[2])
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before := map[string]bool{ds[0].ID: true, ds[1].ID: true, ds[2].ID: true}
	for _, d := range claimN(t, connect(t, address, Options{}), 3) { // what is given back comes in any order
		if !before[d.ID] {
			t.Errorf("%s was none of %v", d.ID, before)
		}
	}
}

// TestInstructionsAreNotObeyed publishes a message whose headers would make the server
// purge the stream.
func TestInstructionsAreNotObeyed(t *testing.T) {
	t.Parallel()
	r := start(t)
	s := connect(t, r.stream(t, func(c *jetstream.StreamConfig) { c.AllowRollup = true }), Options{})
	brokertest.Publish(t, s, 3)
	evil := redrive.Message{Queue: brokertest.Queue, ID: "evil", Headers: redrive.Headers{{Name: "Nats-Rollup", Value: []byte("all")}, {Name: "Nats-Msg-Id", Value: []byte("m0")}}}
	if err := driver.FirstError(s.Publish(t.Context(), []redrive.Message{evil})); err != nil {
		t.Fatal(err)
	}
	ds := claimN(t, s, 4)
	if v, _ := ds[3].Headers.Get("Nats-Rollup"); ds[3].ID != "evil" || v != "all" || len(ds[3].Headers) != 2 {
		t.Errorf("%+v", ds[3])
	}
}

func TestWhatCannotBePublished(t *testing.T) {
	t.Parallel()
	r := start(t)
	publish := func(s *Source, m redrive.Message) error {
		m.Queue = brokertest.Queue
		return driver.FirstError(s.Publish(t.Context(), []redrive.Message{m}))
	}
	s := connect(t, r.stream(t, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 }), Options{})
	if err := publish(s, redrive.Message{Body: make([]byte, 2000)}); !errors.Is(err, redrive.ErrInvalid) {
		t.Errorf("larger than the stream takes: %v", err)
	}
	if err := publish(s, redrive.Message{Delay: time.Second}); !errors.Is(err, redrive.ErrUnsupported) {
		t.Errorf("a delay: %v", err)
	}
	small := reach(t, natstest.Start(t, natstest.Options{}).Addr())
	s = connect(t, small.stream(t), Options{})
	if err := publish(s, redrive.Message{Body: make([]byte, 1<<20+1)}); !errors.Is(err, redrive.ErrInvalid) {
		t.Errorf("larger than the server takes: %v", err)
	}
	s = connect(t, r.stream(t, func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 2, jetstream.DiscardNew }), Options{})
	brokertest.Publish(t, s, 2)
	if err := publish(s, redrive.Message{}); !errors.Is(err, redrive.ErrBacklogged) {
		t.Errorf("a full stream: %v", err)
	}
	s = connect(t, r.stream(t, func(c *jetstream.StreamConfig) { c.Duplicates = 100 * time.Millisecond }), Options{})
	if err := publish(s, redrive.Message{ID: "a"}); err != nil {
		t.Error(err)
	}
	redriven := redrive.Message{ID: "a"}
	redriven.Redrives = 1
	if err := publish(s, redriven); err != nil {
		t.Errorf("redriven: %v", err)
	}
	servertest.Until(t, "the id is forgotten", func() bool { return publish(s, redrive.Message{ID: "a"}) == nil })
	if s.Caps().Remembers {
		t.Error("ids are known for a while only")
	}
	s = connect(t, r.stream(t), Options{})
	if err := publish(s, redrive.Message{ID: "a"}); err != nil {
		t.Error(err)
	}
	if err := publish(s, redrive.Message{ID: "a"}); !errors.Is(err, redrive.ErrDuplicate) {
		t.Errorf("twice: %v", err)
	}
}

func TestProbe(t *testing.T) {
	t.Parallel()
	r := start(t)
	for setting, alter := range map[string]func(*jetstream.StreamConfig){
		"storage":   func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage },
		"limits":    func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 },
		"max_age":   func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour },
		"retention": func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy },
		"replicas":  func(*jetstream.StreamConfig) {},
	} {
		s := connect(t, r.stream(t, alter), Options{})
		for _, v := range s.Probe(t.Context()) {
			if warned := v.Level == driver.LevelWarn; warned != (v.Setting == setting || v.Setting == "replicas") {
				t.Errorf("%s: %+v", setting, v)
			}
			if v.Level == driver.LevelWarn && v.Hint == "" || v.Setting == "replicas" && !strings.Contains(v.Hint, "sync_interval: always") {
				t.Errorf("%+v", v)
			}
		}
	}
}

func TestUserAndToken(t *testing.T) {
	t.Parallel()
	r := natstest.Start(t, natstest.Options{Token: "hunter2"})
	for address, well := range map[string]bool{
		"nats://" + r.Addr() + "/X": false, "nats://hunter3@" + r.Addr() + "/X": false,
		"nats://hunter2@" + r.Addr() + "/X": true, "nats://" + r.Addr() + "/X?token=hunter2": true,
	} {
		_, err := Open(t.Context(), address, Options{})
		if err == nil || errors.Is(err, nats.ErrAuthorization) == well || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%v", err)
		}
	}
}
