package redislist

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// BenchmarkSettle settles single entries while so many are in flight: a message is
// published and claimed for each, so that the number stays.
func BenchmarkSettle(b *testing.B) {
	for _, inFlight := range []int{10, 100, 1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("inflight=%d", inFlight), func(b *testing.B) {
			s := open(b, Options{})
			held := claimed(b, s, inFlight)
			next := 0
			for b.Loop() {
				b.StopTimer()
				if next == len(held) {
					next = 0
				}
				again := claimed(b, s, 1)[0]
				d := held[next*7919%len(held)]
				held[next*7919%len(held)] = again
				next++
				b.StartTimer()
				noErr(b, driver.FirstError(s.Settle(b.Context(), []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}})))
			}
		})
	}
}

// BenchmarkSettleBatch settles a hundred entries a call, in the order of their claims,
// and reports what the server itself spent on it.
func BenchmarkSettleBatch(b *testing.B) {
	for _, inFlight := range []int{100, 1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("inflight=%d", inFlight), func(b *testing.B) {
			s := open(b, Options{})
			held := claimed(b, s, inFlight)
			n, spent := 0, 0.0
			for b.Loop() {
				b.StopTimer()
				held = append(held[batch:], claimed(b, s, batch)...)
				settle := make([]driver.Settlement, batch)
				for i := range settle {
					settle[i] = driver.Settlement{Receipt: held[i].Receipt, Outcome: redrive.OutcomeDone}
				}
				noErr(b, s.conn.ConfigResetStat(b.Context()).Err())
				b.StartTimer()
				noErr(b, driver.FirstError(s.Settle(b.Context(), settle)))
				b.StopTimer()
				n += batch
				spent += scriptTime(b, s)
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/message")
			b.ReportMetric(spent*1000/float64(n), "server-ns/message")
		})
	}
}

// scriptTime is how many microseconds the server spent on scripts since its statistics
// were reset.
func scriptTime(b *testing.B, s *Source) (micros float64) {
	b.Helper()
	info, err := s.conn.Info(b.Context(), "commandstats").Result()
	noErr(b, err)
	_, after, _ := strings.Cut(info, "cmdstat_evalsha:")
	_, after, _ = strings.Cut(after, "usec=")
	after, _, _ = strings.Cut(after, ",")
	micros, err = strconv.ParseFloat(after, 64)
	noErr(b, err)
	return micros
}

// claimed publishes and claims messages of 256 bytes.
func claimed(b *testing.B, s *Source, n int) []redrive.Delivery {
	b.Helper()
	var all []redrive.Delivery
	for len(all) < n {
		msgs := make([]redrive.Message, min(n-len(all), 1000))
		for i := range msgs {
			msgs[i] = redrive.Message{Queue: "sms", Body: make([]byte, 256)}
		}
		noErr(b, driver.FirstError(s.Publish(b.Context(), msgs)))
		ds, err := s.Claim(b.Context(), driver.ClaimRequest{Queue: "sms", Max: len(msgs), Lease: time.Hour, Instance: "bench"})
		noErr(b, err)
		all = append(all, ds...)
	}
	return all
}
