package redrive

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// anyBackoff draws a backoff of any sort, with settings from sensible to absurd.
func anyBackoff(t *rapid.T) Backoff {
	anyDuration := func(name string) time.Duration {
		return time.Duration(rapid.OneOf(
			rapid.Int64Range(0, int64(time.Hour)),
			rapid.SampledFrom([]int64{math.MinInt64, -1, 0, 1, math.MaxInt64 - 1, math.MaxInt64}),
			rapid.Int64(),
		).Draw(t, name))
	}
	switch rapid.IntRange(0, 3).Draw(t, "sort") {
	case 0:
		return Exponential{Base: anyDuration("base"), Max: anyDuration("max"), Spread: anyDuration("spread"),
			Multiplier: rapid.OneOf(rapid.Float64Range(0.5, 10), rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1)})).Draw(t, "multiplier"),
			Jitter:     Jitter(rapid.IntRange(0, len(jitterNames)-1).Draw(t, "jitter"))}
	case 1:
		return Decorrelated{Base: anyDuration("base"), Max: anyDuration("max")}
	case 2:
		return Fixed{Interval: anyDuration("interval")}
	default:
		return Schedule{anyDuration("first"), anyDuration("second"), anyDuration("third")}
	}
}

func TestBackoffIsNeverNegativeAndNeverOverflows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyBackoff(t)
		failures := rapid.OneOf(rapid.IntRange(-1, 100), rapid.SampledFrom([]int{1_000_000, math.MaxInt})).Draw(t, "failures")
		share := rapid.OneOf(rapid.Float64Range(0, 0.999999), rapid.SampledFrom([]float64{0, math.Nextafter(1, 0)})).Draw(t, "random")
		if d := b.Delay(failures, func() float64 { return share }); d < 0 {
			t.Fatalf("%#v after %d failures: %s", b, failures, d)
		}
	})
}

func TestBackoffIsPure(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, failures, seed := anyBackoff(t), rapid.IntRange(1, 50).Draw(t, "failures"), rapid.Uint64().Draw(t, "seed")
		first := b.Delay(failures, rand.New(rand.NewPCG(seed, 1)).Float64)
		for range 3 {
			_ = b.Delay(failures+7, rand.Float64)
			if again := b.Delay(failures, rand.New(rand.NewPCG(seed, 1)).Float64); again != first {
				t.Fatalf("%#v: %s, then %s", b, first, again)
			}
		}
	})
}

func TestExponentialBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := Exponential{
			Base:       time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "base")),
			Max:        time.Duration(rapid.Int64Range(1, int64(24*time.Hour)).Draw(t, "max")),
			Spread:     time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "spread")),
			Multiplier: rapid.Float64Range(1, 10).Draw(t, "multiplier"),
		}
		n := rapid.IntRange(1, 200).Draw(t, "failures")
		random := rapid.Float64Range(0, 0.999).Draw(t, "random")
		delay := func(j Jitter, n int) time.Duration {
			e.Jitter = j
			return e.Delay(n, func() float64 { return random })
		}
		plain := delay(JitterNone, n)
		if plain > e.Max {
			t.Fatalf("without jitter: %s is above the cap of %s", plain, e.Max)
		}
		if next := delay(JitterNone, n+1); next < plain {
			t.Fatalf("without jitter: %s after %s", next, plain)
		}
		if got := delay(JitterFull, n); got > plain {
			t.Fatalf("full: %s is above %s", got, plain)
		}
		if got := delay(JitterEqual, n); got < plain/2-1 || got > plain {
			t.Fatalf("equal: %s is not within half of %s", got, plain)
		}
		if got := delay(JitterPlusMinus, n); got < max(plain-e.Spread-1, 0) || got > plain+e.Spread {
			t.Fatalf("plus-minus: %s is not %s plus or minus %s", got, plain, e.Spread)
		}
		if got := delay(JitterPlusMinusInside, n); got > e.Max {
			t.Fatalf("plus-minus-inside: %s is above the cap of %s", got, e.Max)
		}
	})
}

func TestDecorrelatedBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Decorrelated{Base: time.Second, Max: time.Duration(rapid.Int64Range(int64(time.Second), int64(time.Hour)).Draw(t, "max"))}
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		n := rapid.IntRange(1, 500).Draw(t, "failures")
		if got := d.Delay(n, r.Float64); got < d.Base || got > d.Max {
			t.Fatalf("after %d failures: %s is not between %s and %s", n, got, d.Base, d.Max)
		}
	})
}

func TestBackoffDelays(t *testing.T) {
	none := Exponential{Base: time.Second, Max: 10 * time.Second, Jitter: JitterNone}
	for _, c := range []struct {
		name string
		b    Backoff
		n    int
		want time.Duration
	}{
		{"the first delay is the base", none, 1, time.Second},
		{"then it doubles", none, 3, 4 * time.Second},
		{"up to the cap", none, 5, 10 * time.Second},
		{"even after a million failures", none, 1_000_000, 10 * time.Second},
		{"full jitter is a share of it", Exponential{Base: time.Second}, 3, 2 * time.Second},
		{"equal jitter is half and a share of half", Exponential{Base: time.Second, Jitter: JitterEqual}, 3, 3 * time.Second},
		{"plus-minus inside counts one power more", Exponential{Base: time.Second, Jitter: JitterPlusMinusInside, Max: time.Hour}, 3, 8 * time.Second},
		{"the default has full jitter and a cap of an hour", DefaultBackoff, 100, 30 * time.Minute},
		{"fixed", Fixed{3 * time.Second}, 9, 3 * time.Second},
		{"schedule", Schedule{time.Second, time.Minute}, 1, time.Second},
		{"schedule repeats its last", Schedule{time.Second, time.Minute}, 7, time.Minute},
		{"an empty schedule is the default", Schedule{}, 1, 500 * time.Millisecond},
		{"decorrelated", Decorrelated{Base: time.Second}, 1, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.b.Delay(c.n, func() float64 { return 0.5 }); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestJitterNames(t *testing.T) {
	for j := range Jitter(len(jitterNames)) {
		text, _ := j.MarshalText()
		var back Jitter
		if err := back.UnmarshalText(text); err != nil || back != j {
			t.Errorf("%s came back as %s, %v", j, back, err)
		}
	}
	var j Jitter
	if err := j.UnmarshalText([]byte("some")); err == nil {
		t.Error("an unknown jitter was accepted")
	}
}

// herdPeak lets messages that failed together fail on for ten minutes, and returns how
// many came back in the busiest second after the first 200.
func herdPeak(b Backoff, messages int, seed uint64) (peak int) {
	random := rand.New(rand.NewPCG(seed, 0)).Float64
	const horizon = 600
	var seconds [horizon]int
	for range messages {
		at := time.Duration(0)
		for failures := 1; ; failures++ {
			at += max(b.Delay(failures, random), time.Millisecond)
			second := int(at / time.Second)
			if second >= horizon {
				break
			}
			seconds[second]++
		}
	}
	for _, n := range seconds[200:] {
		peak = max(peak, n)
	}
	return peak
}

// The figure behind the default: jitter inside the cap brings a herd back together.
func TestFullJitterDispersesAHerd(t *testing.T) {
	const seed, messages = 42, 10_000
	full := herdPeak(Exponential{Base: time.Second, Max: time.Minute}, messages, seed)
	inside := herdPeak(Exponential{Base: time.Second, Max: time.Minute, Jitter: JitterPlusMinusInside, Spread: time.Second}, messages, seed)
	after := herdPeak(Exponential{Base: time.Second, Max: time.Minute, Jitter: JitterPlusMinus, Spread: time.Second}, messages, seed)
	t.Logf("seed %d: busiest second of %d messages: full jitter %d, plus-minus after the cap %d, inside the cap %d", seed, messages, full, after, inside)
	if full*5 > inside {
		t.Errorf("seed %d: the busiest second has %d retries with full jitter, %d with plus-minus inside the cap", seed, full, inside)
	}
}

func ExampleExponential() {
	b := Exponential{Base: time.Second, Max: time.Minute, Jitter: JitterNone}
	for failures := 1; failures <= 8; failures++ {
		fmt.Print(b.Delay(failures, nil), " ")
	}
	// Output: 1s 2s 4s 8s 16s 32s 1m0s 1m0s
}
