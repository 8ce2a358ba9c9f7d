package jetstream

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/brokertest"
	"github.com/redrive/redrive/internal/native"
	"github.com/redrive/redrive/internal/servertest"
)

// read reads a whole stream.
func read(t testing.TB, address string) (all []Stored) {
	t.Helper()
	r, err := OpenReader(context.Background(), address, brokertest.Queue)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	all, err = r.Read(context.Background(), 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestNativeDeadLetters has an engine fail messages at once and after retries in the
// store: all of them end in the stream of dead letters, with their failure history.
func TestNativeDeadLetters(t *testing.T) {
	t.Parallel()
	r := start(t)
	address := r.stream(t)
	s := connect(t, address, Options{Native: true})
	brokertest.Publish(t, s, 20)
	store := memory.New()
	brokertest.Consume(t, store, 0, func(_ context.Context, d *redrive.Delivery) error {
		switch d.ID {
		case "m3":
			return redrive.Permanent(errors.New("no such number"))
		case "m7":
			return errors.New("the line is busy")
		}
		return nil
	}, engine.QueueOptions{Sources: []driver.Source{s}, DeadLetters: s, Policies: engine.Policies{Default: redrive.Policy{Backoff: redrive.Fixed{Interval: time.Millisecond}, MaxAttempts: 3}}})
	dlq := strings.Replace(address, s.at.stream, s.at.dlq, 1)
	servertest.Until(t, "two are in the stream", func() bool {
		stats, err := s.SourceStats(t.Context())
		return err == nil && stats.Dead == 2
	})
	all := read(t, dlq)
	slices.SortFunc(all, func(a, b Stored) int { return strings.Compare(a.ID, b.ID) })
	for i, want := range []struct {
		id       string
		reason   redrive.Reason
		attempts int
		text     string
		offset   int64
	}{{"m3", redrive.ReasonPermanent, 1, "no such number", 4}, {"m7", redrive.ReasonExhausted, 3, "the line is busy", 8}} {
		m := all[i].Message
		history, ok := native.TakeHistory(&m)
		if !ok || m.ID != want.id || history.Reason != want.reason || history.Attempts != want.attempts || history.Queue != brokertest.Queue ||
			history.History.Latest() == nil || !strings.Contains(history.History.Latest().Message, want.text) || history.DiedAt.IsZero() {
			t.Errorf("%+v %+v", m, history)
		}
		at, ok := native.ReadOriginal(m.Headers)
		if !ok || at.Stream != s.at.stream || at.Subject != s.publish || at.Offset != want.offset || at.Group != "redrive" || at.At.IsZero() {
			t.Errorf("%+v", at)
		}
	}
	c, err := store.Counts(t.Context(), brokertest.Queue)
	if err != nil || c[0].AllDead() != 0 {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestNativeDeadLetterIsOne settles a message as dead after an earlier try had come as
// far as the stream of dead letters.
func TestNativeDeadLetterIsOne(t *testing.T) {
	t.Parallel()
	r := start(t)
	address := r.stream(t, workQueue)
	s := connect(t, address, Options{Native: true})
	r.foreign(t, address, "poison")
	d := claimN(t, s, 1)
	died := settled(redrive.OutcomeDead, d...)
	died[0].Reason, died[0].Failure = redrive.ReasonPermanent, &redrive.Failure{Message: "no"}
	sequence, _ := readPosition(d[0].Receipt.Position)
	s.mu.Lock()
	it := s.items[sequence]
	s.mu.Unlock()
	errs := make([]error, 1)
	if safe := s.bury(t.Context(), died, []*item{it}, []int{0}, errs); len(safe) != 1 { // and then it crashed
		t.Fatal(errs)
	}
	if err := driver.FirstError(s.Settle(t.Context(), died)); err != nil {
		t.Fatal(err)
	}
	if all := read(t, strings.Replace(address, s.at.stream, s.at.dlq, 1)); len(all) != 1 || string(all[0].Body) != "poison" || all[0].ID != d[0].ID {
		t.Errorf("%+v", all)
	}
	if i := r.info(t, s); i.NumAckPending != 0 || i.NumPending != 0 {
		t.Errorf("%+v", i)
	}
}

// TestNativeDeadLettersNeedTheirStream refuses what the stream refuses: the message stays
// in flight, and is not lost.
func TestNativeDeadLettersNeedTheirStream(t *testing.T) {
	t.Parallel()
	r := start(t)
	s := connect(t, r.stream(t), Options{Native: true})
	brokertest.Publish(t, s, 1)
	d := claimN(t, s, 1)
	if err := r.js.DeleteStream(t.Context(), s.at.dlq); err != nil {
		t.Fatal(err)
	}
	died := settled(redrive.OutcomeDead, d...)
	died[0].Reason = redrive.ReasonPermanent
	if err := driver.FirstError(s.Settle(t.Context(), died)); !errors.Is(err, redrive.ErrUnknown) {
		t.Errorf("without the stream: %v", err)
	}
	if n := r.info(t, s).NumAckPending; n != 1 {
		t.Errorf("%d are pending, want the dead one", n)
	}
	if err := connect(t, r.stream(t), Options{}).DeadLetter(t.Context(), &redrive.Entry{}); !errors.Is(err, redrive.ErrUnsupported) {
		t.Errorf("without Native: %v", err)
	}
}

func TestReader(t *testing.T) {
	t.Parallel()
	r := start(t)
	address := r.stream(t)
	if all := read(t, address); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	s := connect(t, address, Options{})
	brokertest.Publish(t, s, 600)
	all := read(t, address)
	for i := range all {
		if all[i].Sequence != uint64(i+1) || all[i].Queue != brokertest.Queue || all[i].Subject != s.publish {
			t.Fatalf("%+v", all[i])
		}
	}
	if len(all) != 600 {
		t.Fatalf("%d of 600 were read", len(all))
	}
	reader, err := OpenReader(t.Context(), address, brokertest.Queue)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := reader.Delete(t.Context(), 1, 2, 600, 600, 10_000); err != nil {
		t.Error(err)
	}
	if got, err := reader.Read(t.Context(), 0, 1000); len(got) != 597 || err != nil {
		t.Errorf("%d, %v", len(got), err)
	}
	if got, err := reader.Read(t.Context(), 591, 5); err != nil || len(got) != 5 || got[4].Sequence != 595 {
		t.Errorf("%d from 591, %v", len(got), err)
	}
	if got, err := reader.Read(t.Context(), 0, 2); err != nil || len(got) != 2 || got[0].Sequence != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := reader.Read(t.Context(), 591, 1000); err != nil || len(got) != 9 || reader.Last() != 600 {
		t.Errorf("%d from 591, %v", len(got), err)
	}
}

// FuzzHeaders sends headers to NATS' own encoding and back.
func FuzzHeaders(f *testing.F) {
	f.Add("a", []byte("b"), "c", []byte("\x00\xff\r\n"), "kind", "key")
	f.Add("z", []byte(" x "), "a", []byte(""), " kind", "k\n")
	f.Add("Nats-Rollup", []byte("all"), "redrive-headers", []byte("x"), "", "")
	f.Add("", []byte("x"), "a:b", []byte("y"), "", "")
	f.Fuzz(func(t *testing.T, name1 string, value1 []byte, name2 string, value2 []byte, kind, key string) {
		m := redrive.Message{Queue: brokertest.Queue, ID: "m1", Kind: kind, Key: key, Headers: redrive.Headers{{Name: name1, Value: value1}, {Name: name2, Value: value2}, {Name: name1, Value: value2}}}
		if m.Validate() != nil {
			t.Skip()
		}
		for _, h := range m.Headers {
			if strings.HasPrefix(h.Name, "redrive-") {
				t.Skip() // ours
			}
		}
		out := &nats.Msg{Header: headersOf(&m)}
		out.Header[jetstream.MsgIDHeader] = []string{messageID(&m)}
		for name, values := range out.Header {
			for _, v := range values {
				if !plainName(name) || !plainValue(v) {
					t.Fatalf("%q: %q cannot be sent", name, v)
				}
			}
		}
		got := redrive.Message{Queue: brokertest.Queue}
		readHeaders(&got, out.Header)
		if d := cmp.Diff(m, got, cmpopts.EquateEmpty()); d != "" {
			t.Error(d)
		}
	})
}
