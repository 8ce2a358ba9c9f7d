package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
)

const batch = 64

// BenchmarkMessage is a message's whole life in batches of 64: published, claimed,
// settled. One op is a batch.
func BenchmarkMessage(b *testing.B) {
	for name, id := range map[string]func() string{
		"generated-id": func() string { return "" },
		"chosen-id":    redrive.NewID,
	} {
		b.Run(name, func(b *testing.B) {
			s, ctx, body := memory.New(), context.Background(), make([]byte, 256)
			msgs := make([]redrive.Message, batch)
			settlements := make([]driver.Settlement, batch)
			b.ReportAllocs()
			for b.Loop() {
				for i := range msgs {
					msgs[i] = redrive.Message{ID: id(), Queue: "q", Body: body}
				}
				if err := driver.FirstError(s.Publish(ctx, msgs)); err != nil {
					b.Fatal(err)
				}
				got, err := s.Claim(ctx, driver.ClaimRequest{Queue: "q", Max: batch, Lease: time.Minute, Instance: "b"})
				if err != nil || len(got) != batch {
					b.Fatalf("claimed %d: %v", len(got), err)
				}
				for i := range got {
					settlements[i] = driver.Settlement{Receipt: got[i].Receipt, Outcome: redrive.OutcomeDone}
				}
				if err := driver.FirstError(s.Settle(ctx, settlements)); err != nil {
					b.Fatal(err)
				}
			}
			perMessage(b)
		})
	}
}

// BenchmarkDeep is BenchmarkMessage over a million messages that wait.
func BenchmarkDeep(b *testing.B) {
	s, ctx := memory.New(), context.Background()
	for range 1_000_000 / batch {
		s.Publish(ctx, blank(0))
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Publish(ctx, blank(0))
		settleAll(b, s, redrive.OutcomeDone)
	}
	perMessage(b)
}

// BenchmarkRetry is a claim and a delayed retry, over 100,000 delayed messages.
func BenchmarkRetry(b *testing.B) {
	s, ctx := memory.New(), context.Background()
	for range 100_000 / batch {
		s.Publish(ctx, blank(time.Hour))
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Publish(ctx, blank(0))
		settleAll(b, s, redrive.OutcomeRetry)
	}
	perMessage(b)
}

// BenchmarkWake is one message at a time from a publish to a waiter that claims and
// settles it.
func BenchmarkWake(b *testing.B) {
	s, ctx := memory.New(), context.Background()
	settled := make(chan struct{})
	go func() {
		var since uint64
		for {
			events, err := s.Wait(ctx, []driver.Watch{{Queue: "q", Since: since}})
			if err != nil {
				return
			}
			since = events[0].Version
			got, _ := s.Claim(ctx, driver.ClaimRequest{Queue: "q", Max: 1, Lease: time.Minute})
			for i := range got {
				s.Settle(ctx, []driver.Settlement{{Receipt: got[i].Receipt, Outcome: redrive.OutcomeDone}})
				settled <- struct{}{}
			}
		}
	}()
	b.ReportAllocs()
	for b.Loop() {
		s.Publish(ctx, []redrive.Message{{Queue: "q"}})
		<-settled
	}
	_ = s.Close()
}

func blank(delay time.Duration) []redrive.Message {
	msgs := make([]redrive.Message, batch)
	for i := range msgs {
		msgs[i] = redrive.Message{Queue: "q", Delay: delay}
	}
	return msgs
}

func settleAll(b *testing.B, s *memory.Store, o redrive.Outcome) {
	b.Helper()
	ctx := context.Background()
	got, err := s.Claim(ctx, driver.ClaimRequest{Queue: "q", Max: batch, Lease: time.Minute})
	if err != nil || len(got) != batch {
		b.Fatalf("claimed %d: %v", len(got), err)
	}
	settlements := make([]driver.Settlement, batch)
	for i := range got {
		settlements[i] = driver.Settlement{Receipt: got[i].Receipt, Outcome: o, After: time.Hour}
	}
	if err := driver.FirstError(s.Settle(ctx, settlements)); err != nil {
		b.Fatal(err)
	}
}

// perMessage reports what one message costs; one op is a batch.
func perMessage(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/message")
}
