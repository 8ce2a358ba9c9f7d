package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/backendtest"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/brokertest"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/native"
	"github.com/redrive/redrive/internal/proxytest"
	"github.com/redrive/redrive/internal/rabbittest"
	"github.com/redrive/redrive/internal/servertest"
)

// open is how a process of brokertest opens a source.
func open(ctx context.Context, address string) (backendtest.SourceSink, error) {
	return Open(ctx, address, Options{Queue: brokertest.Queue})
}

func TestBeneathAnEngine(t *testing.T) {
	node := rabbittest.Shared(t)
	for _, kind := range []string{"quorum", "classic"} {
		t.Run(kind, func(t *testing.T) {
			brokertest.Run(t, brokertest.Broker{
				Open: open,
				Make: func(t testing.TB) string {
					address := addressOf(node, "type="+kind)
					if err := connect(t, address, Options{Queue: brokertest.Queue}).Close(); err != nil {
						t.Fatal(err)
					}
					return address
				},
				Foreign: func(t testing.TB, address string, bodies ...string) {
					a, err := parse(address)
					if err != nil {
						t.Fatal(err)
					}
					ch := channel(t, node)
					for _, body := range bodies {
						if err := ch.PublishWithContext(t.Context(), "", a.queue, true, false, amqp.Publishing{Body: []byte(body)}); err != nil {
							t.Fatal(err)
						}
					}
				},
			})
		})
	}
}

// channel opens a channel of a plain client.
func channel(t testing.TB, node *rabbittest.Node) *amqp.Channel {
	t.Helper()
	ch, err := node.Dial(t).Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// claim claims until it has n messages of a lane.
func claim(t testing.TB, s *Source, lane redrive.Lane, n int) []redrive.Delivery {
	t.Helper()
	var all []redrive.Delivery
	servertest.Until(t, fmt.Sprintf("%d are claimed", n), func() bool {
		ds, err := s.Claim(context.Background(), driver.ClaimRequest{Queue: s.o.Queue, Lane: lane, Max: n - len(all), Lease: time.Minute})
		if err != nil {
			t.Log(err) // the connection may be down for a while
		}
		all = append(all, ds...)
		return len(all) == n
	})
	return all
}

func publish(t testing.TB, s *Source, msgs ...redrive.Message) {
	t.Helper()
	for i := range msgs {
		msgs[i].Queue = s.o.Queue
	}
	if err := driver.FirstError(s.Publish(t.Context(), msgs)); err != nil {
		t.Fatal(err)
	}
}

func settled(d *redrive.Delivery, o redrive.Outcome) driver.Settlement {
	t := driver.Settlement{Receipt: d.Receipt, Outcome: o}
	if o == redrive.OutcomeDead {
		t.Reason = redrive.ReasonPermanent
	}
	if o == redrive.OutcomeDead || o == redrive.OutcomeRetry {
		t.Failure = &redrive.Failure{At: time.Now(), Attempt: d.Attempt, Message: "the line is busy"}
	}
	return t
}

func settle(s *Source, all ...driver.Settlement) error {
	return driver.FirstError(s.Settle(context.Background(), all))
}

// ready counts the messages of a queue that nobody has, as soon as they are want.
func untilReady(t testing.TB, node *rabbittest.Node, queue string, want int) {
	t.Helper()
	ch := channel(t, node)
	got := -1
	servertest.Until(t, fmt.Sprintf("%d messages are in %s", want, queue), func() bool {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if q.Messages != got {
			got = q.Messages
			t.Logf("%s holds %d", queue, got)
		}
		return got == want
	})
}

func TestMessagesOfOthersKeepTheirProperties(t *testing.T) {
	node := rabbittest.Shared(t)
	s := connect(t, addressOf(node), Options{})
	at := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	err := channel(t, node).PublishWithContext(t.Context(), "", s.a.queue, true, false, amqp.Publishing{
		MessageId: "order 7/ä", Type: "orders.new", ContentType: "text/plain", ContentEncoding: "identity", CorrelationId: "c-1", Priority: 4,
		AppId: "shop", ReplyTo: "answers", Expiration: "3600000", UserId: "guest", Timestamp: at, Body: []byte("x"),
		Headers: amqp.Table{"n": int32(7), "list": []any{"a", int64(2)}, "x-death": []any{amqp.Table{"count": int64(99)}}, "raw": []byte{0xff}, "yes": true},
	})
	if err != nil {
		t.Fatal(err)
	}
	d := &claim(t, s, redrive.LaneFresh, 1)[0]
	if d.ID != driver.DeriveID("amqp", "order 7/ä") || d.Identity != redrive.IdentityMessage || d.Kind != "orders.new" || d.Attempt != 1 || d.Suspect || !d.PublishedAt.Equal(at) {
		t.Errorf("%+v", d)
	}
	for name, want := range map[string]string{
		"amqp-message-id": "order 7/ä", "content-type": "text/plain", "content-encoding": "identity", "amqp-correlation-id": "c-1", "amqp-priority": "4",
		"amqp-app-id": "shop", "amqp-reply-to": "answers", "amqp-expiration": "3600000", "amqp-user-id": "guest", "n": "7", "list": `["a",2]`, "raw": "\xff", "yes": "true",
		headername.OriginalForm: `{"types":{"list":["","int64"],"n":"int32","raw":"bytes","yes":"bool"}}`,
	} {
		if got, _ := d.Headers.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if _, there := d.Headers.Get("x-death"); there || len(d.Headers) != 14 {
		t.Errorf("%+v", d.Headers)
	}
	// The same message as ours has its properties again, and none that would act.
	p := write(&d.Message)
	if p.ContentType != "text/plain" || p.CorrelationId != "c-1" || p.Priority != 4 || p.AppId != "shop" || p.Expiration != "" || p.ReplyTo != "" || p.UserId != "" || p.DeliveryMode != amqp.Persistent {
		t.Errorf("%+v", p)
	}
}

// TestHeadersCannotSteerTheBroker publishes names that the broker acts on.
func TestHeadersCannotSteerTheBroker(t *testing.T) {
	node := rabbittest.Shared(t)
	s, other := connect(t, addressOf(node), Options{}), connect(t, addressOf(node), Options{})
	want := redrive.Headers{
		{Name: "CC", Value: []byte(other.a.queue)}, {Name: "b", Value: []byte("1")}, {Name: "a", Value: []byte{0xff}}, {Name: "b", Value: []byte("2")},
		{Name: "x-death", Value: []byte("none")}, {Name: "x-delivery-count", Value: []byte("7")}, {Name: "redrive-amqp-z", Value: nil}, {Name: "CC", Value: []byte("y")},
	}
	publish(t, s, redrive.Message{ID: "m", Headers: want.Clone()})
	d := claim(t, s, redrive.LaneFresh, 1)[0]
	if len(d.Headers) != len(want) {
		t.Fatalf("%q", d.Headers)
	}
	for i := range want {
		if d.Headers[i].Name != want[i].Name || string(d.Headers[i].Value) != string(want[i].Value) {
			t.Errorf("header %d is %q, want %q", i, d.Headers[i], want[i])
		}
	}
	if ds, err := other.Claim(t.Context(), driver.ClaimRequest{Queue: other.o.Queue, Max: 1, Lease: time.Minute}); len(ds) > 0 || err != nil {
		t.Error("a copy went elsewhere:", ds, err)
	}
}

// TestAHistoryWinsOverAResultsHeaders: a result that dies has headers of the names of a failure history's.
func TestAHistoryWinsOverAResultsHeaders(t *testing.T) {
	result := redrive.Headers{{Name: redrive.HeaderReason, Value: []byte("expired")}, {Name: "tenant", Value: []byte("gold")}, {Name: redrive.HeaderError, Value: []byte("too late")}}
	history := native.History{Queue: "q", Attempts: 2, Reason: redrive.ReasonPermanent, History: redrive.History{Count: 1, First: &redrive.Failure{Message: "no"}}}
	p := write(&redrive.Message{Headers: result}, history.Headers()...)
	for name, want := range map[string]string{redrive.HeaderReason: "permanent", redrive.HeaderError: "no"} {
		if p.Headers[name] != want {
			t.Errorf("%s is %v, want %s", name, p.Headers[name], want)
		}
	}
}

// TestUnroutableIsNotAccepted: a confirm by itself says nothing of a message that no queue
// takes.
func TestUnroutableIsNotAccepted(t *testing.T) {
	node := rabbittest.Shared(t)
	address := addressOf(node)
	key := rabbittest.Name() // that nobody has bound
	s := connect(t, address+"&exchange=amq.direct&key="+key, Options{})
	if err := driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: s.o.Queue, ID: "m"}})); !errors.Is(err, errUnroutable) {
		t.Error(err)
	}
	if err := channel(t, node).QueueBind(s.a.queue, key, "amq.direct", false, nil); err != nil {
		t.Fatal(err)
	}
	publish(t, s, redrive.Message{ID: "m"})
	claim(t, s, redrive.LaneFresh, 1)
}

// TestAFullQueuePushesBack: overflow=reject-publish refuses, and that is no loss.
func TestAFullQueuePushesBack(t *testing.T) {
	node := rabbittest.Shared(t)
	queue := rabbittest.Name()
	if _, err := channel(t, node).QueueDeclare(queue, true, false, false, false, amqp.Table{"x-max-length": 1, "x-overflow": "reject-publish"}); err != nil {
		t.Fatal(err)
	}
	s := connect(t, at(node.Addr(), "queue="+queue, "prefetch=1"), Options{})
	refused := 0
	servertest.Until(t, "one is refused", func() bool {
		err := driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: queue}}))
		if errors.Is(err, redrive.ErrBacklogged) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
		return refused > 0
	})
}

// TestAnOldTagIsNeverUsed cuts the connection while messages are in flight.
func TestAnOldTagIsNeverUsed(t *testing.T) {
	node := rabbittest.Shared(t)
	proxy := proxytest.New(t, node.Addr())
	queue := rabbittest.Name()
	s := connect(t, at(proxy.Addr().String(), "queue="+queue, "declare=true"), Options{})
	publish(t, s, redrive.Message{ID: "a"}, redrive.Message{ID: "b"})
	old := claim(t, s, redrive.LaneFresh, 2)
	proxy.Cut()
	again := claim(t, s, redrive.LaneFresh, 2)
	if !again[0].Suspect || !again[1].Suspect {
		t.Error("what came again is not looked up")
	}
	for i := range old {
		if err := settle(s, settled(&old[i], redrive.OutcomeDone)); !errors.Is(err, redrive.ErrLeaseLost) {
			t.Error(err)
		}
	}
	if errs := s.Extend(t.Context(), []redrive.Receipt{old[0].Receipt, again[0].Receipt}, time.Minute); len(errs) != 2 || !errors.Is(errs[0], redrive.ErrLeaseLost) || errs[1] != nil {
		t.Error(errs)
	}
	if err := settle(s, settled(&again[0], redrive.OutcomeDone), settled(&again[1], redrive.OutcomeDone)); err != nil {
		t.Error("the new channel was harmed:", err)
	}
	stats, err := s.SourceStats(t.Context())
	if err != nil || stats.Reconnects != 1 || stats.Lag != 0 || stats.Unacked != 0 {
		t.Errorf("%+v, %v", stats, err)
	}
}

// TestPrefetchHoldsTheBrokerBack: no more is pushed than the prefetch allows.
func TestPrefetchHoldsTheBrokerBack(t *testing.T) {
	node := rabbittest.Shared(t)
	queue := rabbittest.Name()
	s := connect(t, at(node.Addr(), "queue="+queue, "declare=true", "prefetch=10"), Options{})
	publish(t, s, make([]redrive.Message, 30)...)
	ds := claim(t, s, redrive.LaneFresh, 10)
	more, err := s.Claim(t.Context(), driver.ClaimRequest{Queue: queue, Max: 5, Lease: time.Minute})
	if err != nil || len(more) > 0 {
		t.Error(more, err)
	}
	servertest.Until(t, "the broker says that 20 are left", func() bool { // quorum queues tell a little later
		stats, err := s.SourceStats(t.Context())
		return err == nil && stats.Lag == 20 && stats.Unacked == 10 && stats.Buffered == 0
	})
	if err := settle(s, settled(&ds[0], redrive.OutcomeDone)); err != nil {
		t.Fatal(err)
	}
	claim(t, s, redrive.LaneFresh, 1)
}

// TestAcknowledgementsAreCoalesced follows the tags of a channel.
func TestAcknowledgementsAreCoalesced(t *testing.T) {
	tags := newTags()
	for _, step := range []struct {
		acked, others []uint64
		upTo          uint64
		single        string
	}{
		{acked: []uint64{1, 2, 3}, upTo: 3},
		{acked: []uint64{6, 5}, single: "[5 6]"},
		{acked: []uint64{4, 9}, upTo: 4, single: "[9]"},    // 5 and 6 were acknowledged before: a tag must be one that is not
		{acked: []uint64{8}, others: []uint64{7}, upTo: 8}, // 7 was rejected before
		{others: []uint64{10}},
		{acked: []uint64{11}, upTo: 11},
	} {
		upTo, single := tags.finish(step.acked, step.others)
		if want := strings.TrimPrefix(step.single, "[]"); upTo != step.upTo || len(single) > 0 && fmt.Sprint(single) != want || len(single) == 0 && want != "" {
			t.Errorf("%+v: up to %d and %v", step, upTo, single)
		}
	}
	if len(tags.above) != 0 || tags.low != 12 {
		t.Errorf("%+v", tags)
	}
}

func TestOpenTellsWhatIsMissing(t *testing.T) {
	node := rabbittest.Shared(t)
	for _, c := range []struct{ address, want string }{
		{at(node.Addr(), "queue=nowhere"), "declare=true"},
		{at(node.Addr()), "no queue"},
		{at(node.Addr(), "queue=x", "color=red"), "color"},
		{at(node.Addr(), "queue=x", "type=stream"), "quorum or classic"},
		{at(node.Addr(), "queue=x", "dead=dlx"), "dead_letters: native"},
		{strings.Replace(at(node.Addr(), "queue=x"), "guest:guest", "guest:hunter2", 1), "password"},
		{at("127.0.0.1:1", "queue=x"), "is a broker running"},
	} {
		s, err := Open(t.Context(), c.address, Options{})
		if err == nil {
			_ = s.Close()
			t.Errorf("%s was opened", c.address)
			continue
		}
		if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", c.address, err)
		}
	}
}

func TestProbe(t *testing.T) {
	node := rabbittest.Shared(t)
	ch := channel(t, node)
	for name, c := range map[string]struct {
		durable bool
		args    amqp.Table
		warned  string
	}{
		"quorum":    {true, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": unlimited}, ""},
		"classic":   {true, nil, ""},
		"transient": {false, nil, "durable and x-queue-type"},
		"short":     {true, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 3, "x-message-ttl": 60000}, "x-delivery-limit x-message-ttl"},
		"dropping":  {true, amqp.Table{"x-max-length": 5, "x-expires": 600000}, "x-expires x-max-length"},
		"lossy":     {true, amqp.Table{"x-dead-letter-exchange": "amq.direct", "x-max-length": 5, "x-overflow": "reject-publish"}, "x-dead-letter-exchange"},
	} {
		t.Run(name, func(t *testing.T) {
			queue := rabbittest.Name()
			if _, err := ch.QueueDeclare(queue, c.durable, false, false, false, c.args); err != nil {
				t.Fatal(err)
			}
			s := connect(t, at(node.Addr(), "queue="+queue), Options{})
			var warned []string
			for _, v := range s.Probe(t.Context()) {
				t.Logf("%+v", v)
				if v.Level != driver.LevelOK {
					warned = append(warned, v.Setting)
				}
			}
			if got := strings.Join(warned, " "); got != c.warned {
				t.Errorf("it warns of %q, want %q", got, c.warned)
			}
		})
	}
}

// dead returns what stands in the queue of dead letters.
func dead(t testing.TB, node *rabbittest.Node, s *Source, n int) []amqp.Delivery {
	t.Helper()
	untilReady(t, node, s.a.deadQueue, n)
	ch := channel(t, node)
	all := make([]amqp.Delivery, n)
	for i := range all {
		d, ok, err := ch.Get(s.a.deadQueue, true)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		all[i] = d
	}
	return all
}

func TestNativeDeadLettersKeepTheirHistory(t *testing.T) {
	node := rabbittest.Shared(t)
	for _, strategy := range []Dead{DeadConfirm, DeadTx, DeadDLX} {
		t.Run(string(strategy), func(t *testing.T) {
			s := connect(t, addressOf(node, "dead="+string(strategy)), Options{Native: true})
			publish(t, s, redrive.Message{ID: "m", Kind: "text", Key: "k", Body: []byte("x"), Headers: redrive.Headers{{Name: "content-type", Value: []byte("text/plain")}}})
			d := claim(t, s, redrive.LaneFresh, 1)
			if err := settle(s, settled(&d[0], redrive.OutcomeRetry)); err != nil {
				t.Fatal(err)
			}
			d = claim(t, s, redrive.LaneRetry, 1)
			if d[0].Attempt != 2 || d[0].Failures != 1 || d[0].History == nil || d[0].History.First.Message != "the line is busy" || d[0].Kind != "text" || d[0].Key != "k" || d[0].ID != "m" {
				t.Fatalf("%+v", d[0])
			}
			if err := settle(s, settled(&d[0], redrive.OutcomeDead)); err != nil {
				t.Fatal(err)
			}
			got := dead(t, node, s, 1)[0]
			if got.MessageId != "m" || string(got.Body) != "x" || got.ContentType != "text/plain" || got.Type != "text" {
				t.Errorf("%+v", got)
			}
			var m redrive.Message
			readTable(&m, got.Headers)
			if o, ok := native.ReadOriginal(m.Headers); !ok || o.Queue != s.a.queue || o.RoutingKey != s.a.queue {
				t.Errorf("%+v", o)
			}
			history, _ := native.TakeHistory(&m)
			want := native.History{Attempts: 2, Reason: redrive.ReasonPermanent}
			failures := 2
			if strategy == DeadDLX { // the broker knows nothing of the last failure
				want, failures = native.History{Attempts: 1}, 1
				if got.Headers["x-first-death-reason"] != "rejected" {
					t.Errorf("%+v", got.Headers)
				}
			}
			if history.Attempts != want.Attempts || history.Reason != want.Reason || history.History.Count != failures || history.Queue != s.o.Queue {
				t.Errorf("%+v", history)
			}
		})
	}
}

// TestDLXIsCheckedAtTheStart: what a queue rejects into nowhere is lost in silence.
func TestDLXIsCheckedAtTheStart(t *testing.T) {
	node := rabbittest.Shared(t)
	safe := func(more amqp.Table) amqp.Table {
		args := amqp.Table{"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
		maps.Copy(args, more)
		return args
	}
	ch := channel(t, node)
	if err := ch.ExchangeDeclare("bound", "direct", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args amqp.Table
		want string
	}{
		"none":      {safe(nil), "no x-dead-letter-exchange"},
		"classic":   {amqp.Table{"x-dead-letter-exchange": ""}, "at least once"},
		"drop-head": {amqp.Table{"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-dead-letter-exchange": ""}, "reject-publish"},
		"no queue":  {safe(amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "nowhere"}), "nowhere"},
		"no such":   {safe(amqp.Table{"x-dead-letter-exchange": "no-such"}), "exchange of dead letters"},
		"good":      {safe(amqp.Table{"x-dead-letter-exchange": "bound", "x-dead-letter-routing-key": "somebody"}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			queue := rabbittest.Name()
			for _, n := range []string{queue, queue + ".dead"} {
				args := c.args
				if n != queue {
					args = nil
				}
				if _, err := ch.QueueDeclare(n, true, false, false, false, args); err != nil {
					t.Fatal(err)
				}
			}
			if name == "good" {
				if err := ch.QueueBind(queue+".dead", "somebody", "bound", false, nil); err != nil {
					t.Fatal(err)
				}
				connect(t, addressOf(node), Options{Native: true}) // it makes the queues of delays
			}
			s, err := Open(t.Context(), at(node.Addr(), "queue="+queue, "dead=dlx"), Options{Native: true})
			if err == nil {
				_ = s.Close()
			}
			if c.want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
