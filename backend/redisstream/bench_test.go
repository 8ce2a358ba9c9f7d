package redisstream

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
)

// benchStore opens a store on a server of its own, and reports what the server's time
// went into.
func benchStore(b *testing.B) *Store {
	b.Helper()
	server := redistest.Start(b, redistest.Options{AppendOnly: true, Fsync: "everysec"})
	s := openAt(b, server.URL(), "bench")
	b.Cleanup(func() {
		if b.N > 1000 {
			for line := range strings.Lines(server.Client(b).Info(b.Context(), "commandstats").Val()) {
				if strings.Contains(line, "evalsha") {
					b.Log(strings.TrimSpace(line))
				}
			}
		}
	})
	return s
}

func benchMessages(n int) []redrive.Message {
	msgs := make([]redrive.Message, n)
	for i := range msgs {
		msgs[i] = redrive.Message{Queue: "sms", Body: make([]byte, 256)}
	}
	return msgs
}

// A message is published in a batch of 100.
func BenchmarkPublish100(b *testing.B) {
	s := benchStore(b)
	for b.Loop() {
		if err := driver.FirstError(s.Publish(b.Context(), benchMessages(100))); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/msg")
}

// A message dies in a batch of 100, of one of ten causes.
func BenchmarkDie100(b *testing.B) {
	s := benchStore(b)
	for b.Loop() {
		b.StopTimer()
		if err := driver.FirstError(s.Publish(b.Context(), benchMessages(100))); err != nil {
			b.Fatal(err)
		}
		list := make([]driver.Settlement, 0, 100)
		for i, d := range claim(b, s, ask(100)) {
			list = append(list, driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent,
				Failure: &redrive.Failure{Message: "it failed", Signature: "1-4f1c09aa52de83b" + strconv.Itoa(i%10)}})
		}
		b.StartTimer()
		if err := driver.FirstError(s.Settle(b.Context(), list)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/msg")
	b.ReportMetric(float64(usedMemory(b, s))/float64(b.N)/100, "server-B/msg")
}

// A message is claimed and settled in a batch of 100.
func BenchmarkClaimSettle100(b *testing.B) {
	s := benchStore(b)
	for b.Loop() {
		b.StopTimer()
		if err := driver.FirstError(s.Publish(b.Context(), benchMessages(100))); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		ds, err := s.Claim(b.Context(), driver.ClaimRequest{Queue: "sms", Max: 100, Lease: time.Minute, Instance: "one"})
		if err != nil || len(ds) != 100 {
			b.Fatal(len(ds), err)
		}
		list := make([]driver.Settlement, len(ds))
		for i := range ds {
			list[i] = driver.Settlement{Receipt: ds[i].Receipt, Outcome: redrive.OutcomeDone}
		}
		if err := driver.FirstError(s.Settle(b.Context(), list)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/msg")
}
