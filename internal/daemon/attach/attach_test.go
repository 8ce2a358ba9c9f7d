package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/broker"
	"github.com/redrive/redrive/internal/dialect"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/native"
	"github.com/redrive/redrive/internal/redistest"
)

// script is an origin that returns batches that a test wrote down.
type script struct {
	batches [][]letter
	settled []string
	refused []string
}

func (s *script) next(context.Context) ([]letter, error) {
	if len(s.batches) == 0 {
		return nil, io.EOF
	}
	b := s.batches[0]
	s.batches = s.batches[1:]
	return b, nil
}

func (s *script) settle(ctx context.Context, durable, refused []letter) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for i := range durable {
		s.settled = append(s.settled, durable[i].position)
	}
	for i := range refused {
		s.refused = append(s.refused, refused[i].position)
	}
	return nil
}

func (s *script) name(p *dialect.Place, name string) { p.Queue = name }
func (s *script) unread() int64                      { return 0 }
func (s *script) close() error                       { return nil }

func attached(s *script, o Options) *Attachment {
	o.Queue = "orders"
	return &Attachment{o: o, origin: s, address: &broker.Address{Kind: broker.RabbitMQ, Vhost: "/"}}
}

// into puts entries into a store.
func into(store driver.Store) Put {
	return func(ctx context.Context, entries []redrive.Entry) ([]error, error) {
		return store.Apply(ctx, driver.Batch{Put: entries, Entered: driver.EnteredImported})
	}
}

func open(t *testing.T) driver.Store {
	t.Helper()
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func dead(t *testing.T, store driver.Store) []redrive.Entry {
	t.Helper()
	page, err := store.Find(t.Context(), redrive.Query{Queue: "orders", State: redrive.StateDead, Bodies: true, Limit: redrive.MaxPage})
	if err != nil {
		t.Fatal(err)
	}
	return page.Entries
}

func say(position, id, body string, again bool) letter {
	return letter{position: position, id: id, again: again, message: redrive.Message{Body: []byte(body)}}
}

// Message ids that repeat are the publisher's fault; none of its messages may vanish for it.
func TestOneIDForSeveralMessagesOfAQueue(t *testing.T) {
	store := open(t)
	s := &script{batches: [][]letter{
		{say("1", "same", "first", false), say("2", "same", "first", false), say("3", "same", "other", true)},
		{say("1", "same", "first", true)}, // after a crash: it is there
	}}
	sum, err := attached(s, Options{Move: true}).Run(t.Context(), into(store), func(Summary) {})
	if err != nil || sum.Imported != 3 || sum.Duplicates != 1 || len(s.settled) != 4 {
		t.Errorf("%+v %v, settled %v", sum, err, s.settled)
	}
	if n := len(dead(t, store)); n != 3 {
		t.Errorf("%d dead letters, want 3", n)
	}
}

func TestWhatComesAgainWithoutAnIDIsADuplicate(t *testing.T) {
	store := open(t)
	s := &script{batches: [][]letter{{say("1", redrive.NewID(), "x", true)}}}
	if _, err := attached(s, Options{}).Run(t.Context(), into(store), func(Summary) {}); err != nil {
		t.Fatal(err)
	}
	if v, _ := dead(t, store)[0].Headers.Get(redrive.HeaderPossibleDuplicate); v != "true" {
		t.Error("it is no possible duplicate")
	}
	if len(s.settled) != 0 {
		t.Error("a copy acknowledged", s.settled)
	}
}

// What no publish would take at a store is made to fit, and none of it is left at its broker.
func TestLettersOfOthersAreMadeToFit(t *testing.T) {
	odd := say("orders/\xff\r\n"+strings.Repeat("m", 2000), "odd", "x", false)
	for _, name := range []string{"", "a\r\nb", strings.Repeat("n", 200)} {
		odd.message.Headers.Add(name, "v")
	}
	odd.message.PublishedAt = time.Date(40_000, 1, 1, 0, 0, 0, 0, time.UTC)
	odd.at = time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	many, large := say("2", "many", "x", false), say("3", "large", strings.Repeat("b", redrive.MaxBodySize+1), false)
	for range redrive.MaxHeaders + 1 {
		many.message.Headers.Add("n", "v")
	}
	got := make(map[string]redrive.Entry)
	put := func(_ context.Context, entries []redrive.Entry) ([]error, error) {
		for i := range entries {
			got[entries[i].ID] = entries[i]
		}
		return nil, nil
	}
	s := &script{batches: [][]letter{{odd, many, large}}}
	if sum, err := attached(s, Options{Move: true}).Run(t.Context(), put, func(Summary) {}); err != nil || sum.Imported != 3 || len(s.settled) != 3 {
		t.Fatalf("%+v %v", sum, err)
	}
	e := got["odd"]
	if err := e.Validate(); err != nil || !e.PublishedAt.IsZero() || !e.DiedAt.Equal(odd.at) || e.Reason != redrive.ReasonRejected {
		t.Errorf("%v: %+v", err, e)
	}
	for i, want := range odd.message.Headers {
		if h := native.Outside(e.Headers[i]); h.Name != want.Name || string(h.Value) != "v" {
			t.Errorf("%q came back as %q", want.Name, h.Name)
		}
	}
	for _, id := range []string{"many", "large"} {
		if e := got[id]; e.Reason != redrive.ReasonOversize {
			t.Errorf("%s is dead as %s", id, e.Reason)
		}
	}
}

func TestWhatTheStoreRefusesIsNotAcknowledged(t *testing.T) {
	s := &script{batches: [][]letter{{say("1", "a", "x", false), say("2", "b", "x", false)}}}
	refuse := func(context.Context, []redrive.Entry) ([]error, error) { return []error{nil, redrive.ErrInvalid}, nil }
	sum, err := attached(s, Options{Move: true}).Run(t.Context(), refuse, func(Summary) {})
	if err != nil || sum.Failed != 1 || len(sum.Problems) != 1 || fmt.Sprint(s.settled, s.refused) != "[1] [2]" {
		t.Errorf("%+v %v: settled %v, refused %v", sum, err, s.settled, s.refused)
	}
}

func TestNothingIsAcknowledgedAfterAFault(t *testing.T) {
	fault := errors.New("away")
	s := &script{batches: [][]letter{{say("1", "a", "x", false)}}}
	_, err := attached(s, Options{Move: true}).Run(t.Context(), func(context.Context, []redrive.Entry) ([]error, error) { return nil, fault }, func(Summary) {})
	if !errors.Is(err, fault) || len(s.settled) != 0 {
		t.Error(err, s.settled)
	}
	// Too few answers tell nothing of the rest.
	s.batches = [][]letter{{say("1", "a", "x", false), say("2", "b", "x", false)}}
	_, err = attached(s, Options{Move: true}).Run(t.Context(), func(context.Context, []redrive.Entry) ([]error, error) { return []error{nil}, nil }, func(Summary) {})
	if err == nil || len(s.settled) != 0 {
		t.Error(err, s.settled)
	}
}

func TestFollowingRepeatsWhatAFaultStopped(t *testing.T) {
	store := open(t)
	calls := 0
	put := func(ctx context.Context, entries []redrive.Entry) ([]error, error) {
		if calls++; calls < 3 {
			return nil, errors.New("the daemon restarts")
		}
		return into(store)(ctx, entries)
	}
	s := &script{batches: [][]letter{{say("1", "a", "x", false)}}}
	sum, err := attached(s, Options{Move: true, Follow: true}).Run(t.Context(), put, func(Summary) {})
	if err != nil || sum.Imported != 1 || calls != 3 || len(s.settled) != 1 {
		t.Errorf("%+v %v after %d calls", sum, err, calls)
	}
}

func TestPlacesAndLineage(t *testing.T) {
	store := open(t)
	first := say("orders-dlt/1", "a", "x", false)
	first.message.Headers.Add(headername.Redrives, "2")
	first.message.Headers.Add(headername.Plan, "p-1")
	first.message.Headers.Add(headername.Key, "customer-7")
	s := &script{batches: [][]letter{{first}}}
	sum, err := attached(s, Options{Place: "orders"}).Run(t.Context(), into(store), func(Summary) {})
	if err != nil || sum.Places["orders"] != 1 || sum.Dialects["none"] != 1 {
		t.Fatalf("%+v %v", sum, err)
	}
	e := dead(t, store)[0]
	o, _ := native.ReadOriginal(e.Headers)
	if e.Origin != "orders-dlt/1" || e.Redrives != 2 || e.Plan != "p-1" || e.Key != "customer-7" || o.Queue != "orders" || e.Reason != redrive.ReasonRejected {
		t.Errorf("%+v", e)
	}
}

func TestAddressesThatCannotBeRead(t *testing.T) {
	for address, o := range map[string]Options{
		"kafka://host:9092":                                {Queue: "q"},
		"kafka://host:9092/t":                              {Queue: "Not A Queue"},
		"rabbitmq://u:secret@host/v?queue=q":               {Queue: "q", Follow: true},
		"redis://:secret@host/0?stream=s&nonsense=1":       {Queue: "q"},
		"rabbitmq://u:secret@host/v?queue=q&prefetch=many": {Queue: "q"},
		"ftp://u:secret@host/x":                            {Queue: "q"},
		"nats://host":                                      {Queue: "q"},
	} {
		_, err := Open(t.Context(), address, o)
		if err == nil {
			t.Errorf("%s was opened", address)
		} else if text := fmt.Sprintf("%+v", err); strings.Contains(text, "secret") {
			t.Errorf("%s: %s", address, text)
		}
	}
}

// TestARedisStream: what is pending in a group is acknowledged before it is deleted, and a
// run that begins again goes on where the last one ended.
func TestARedisStream(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = client.Close() })
	const n = 250
	for i := range n {
		if err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: "dlq", Values: []string{"a", "1", "b", fmt.Sprint(i)}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.XGroupCreate(t.Context(), "dlq", "g", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if err := client.XReadGroup(t.Context(), &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{"dlq", ">"}, Count: 10}).Err(); err != nil {
		t.Fatal(err)
	}
	store := open(t)
	run := func(o Options) Summary {
		t.Helper()
		o.Queue = "orders"
		a, err := Open(t.Context(), "redis://"+server.Addr+"/0?stream=dlq", o)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		sum, err := a.Run(t.Context(), into(store), func(Summary) {})
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	if sum := run(Options{}); sum.Imported != n {
		t.Errorf("%+v", sum)
	}
	if sum := run(Options{Move: true}); sum.Imported != 0 || sum.Duplicates != n {
		t.Errorf("%+v", sum)
	}
	pending, err := client.XPending(t.Context(), "dlq", "g").Result()
	if left := client.XLen(t.Context(), "dlq").Val(); err != nil || pending.Count != 0 || left != 0 {
		t.Errorf("%v: %d pending, %d left", err, pending.Count, left)
	}
	if body := string(dead(t, store)[0].Body); body != `{"a":"1","b":"0"}` {
		t.Errorf("body %s", body)
	}
	if sum := run(Options{Move: true}); sum.Read != 0 {
		t.Errorf("%+v", sum)
	}
}

func TestFollowingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := &script{batches: [][]letter{{}, {}}}
	a := attached(s, Options{Follow: true})
	rounds := 0
	_, err := a.Run(ctx, nil, func(Summary) {
		if rounds++; rounds == 1 {
			cancel()
		}
	})
	if err != nil || rounds != 1 {
		t.Error(err, rounds)
	}
}

// TestWhatIsBegunIsFinished ends an attachment while the store takes what was read: it is
// stored, acknowledged and counted.
func TestWhatIsBegunIsFinished(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	store := open(t)
	s := &script{batches: [][]letter{{{id: "1", position: "1", certain: true}}}}
	put := func(ctx context.Context, entries []redrive.Entry) ([]error, error) {
		cancel()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return into(store)(ctx, entries)
	}
	sum, err := attached(s, Options{Follow: true, Move: true}).Run(ctx, put, func(Summary) {})
	if err != nil || sum.Imported != 1 || len(s.settled) != 1 {
		t.Errorf("%v: %+v, %d acknowledged", err, sum, len(s.settled))
	}
}
