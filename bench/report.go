package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// report writes the tables of docs/performance.md.
func report(w io.Writer, results []Result, how string) {
	fmt.Fprintf(w, "%s\n\n", how)
	fmt.Fprint(w, "| system | version | settings | durability |\n|---|---|---|---|\n")
	for i := range drivers {
		if d := &drivers[i]; slices.ContainsFunc(results, func(r Result) bool { return r.Driver == d.Name && !r.Skipped }) {
			fmt.Fprintf(w, "| %s | %s | %s | %s |\n", d.Name, d.Version(), d.Settings, d.Durability)
		}
	}
	for _, l := range workloads {
		rows := slices.DeleteFunc(slices.Clone(results), func(r Result) bool { return r.Workload != l.Name || r.Skipped })
		if len(rows) > 0 {
			table(w, l, rows)
		}
	}
}

func table(w io.Writer, l Workload, rows []Result) {
	columns := []string{"system", "msg/s, median (range)", "CPU us/msg", "bytes/msg", "ratio (range)", "disk probe syncs/s"}
	switch l.Name {
	case "latency":
		columns = []string{"system", "p50", "p99", "p99 from commit", "CPU us/msg", "bytes/msg", "disk probe p99", "not handled"}
	case "sessions-rate":
		columns = []string{"system", "p50", "p99", "CPU us/msg", "bytes/msg", "disk probe p99"}
	case "flood":
		columns = slices.Insert(columns, 1, "published/s", "handled/published")
	case "relay-ndjson", "relay-128":
		columns = slices.Insert(columns, 3, "of it the daemon's")
	}
	fmt.Fprintf(w, "\n### %s: %s\n\n| %s |\n|%s\n", l.Name, l.About, strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for i := range drivers {
		own := of(rows, drivers[i].Name)
		if len(own) == 0 {
			continue
		}
		cells := []string{drivers[i].Name}
		usage := []string{middle(own, func(r Result) float64 { return r.CPU }, "%.1f"), middle(own, func(r Result) float64 { return r.Bytes }, "%.0f")}
		switch l.Name {
		case "latency":
			for _, f := range []func(Result) time.Duration{
				func(r Result) time.Duration { return r.P50 }, func(r Result) time.Duration { return r.P99 },
				func(r Result) time.Duration { return r.CommitP99 },
			} {
				cells = append(cells, milliseconds(own, f))
			}
			cells = append(append(cells, usage...), milliseconds(own, func(r Result) time.Duration { return r.Probe.P99 }),
				middle(own, func(r Result) float64 { return float64(r.Unhandled) }, "%.0f"))
		case "sessions-rate":
			cells = append(cells, milliseconds(own, func(r Result) time.Duration { return r.P50 }), milliseconds(own, func(r Result) time.Duration { return r.P99 }))
			cells = append(append(cells, usage...), milliseconds(own, func(r Result) time.Duration { return r.Probe.P99 }))
		case "flood":
			cells = append(cells, middle(own, func(r Result) float64 { return r.Published }, "%.0f"),
				middle(own, func(r Result) float64 { return r.Rate / r.Published }, "%.2f"))
			fallthrough
		default:
			if slices.Contains(columns, "of it the daemon's") {
				usage = slices.Insert(usage, 1, middle(own, func(r Result) float64 { return r.Own }, "%.1f"))
			}
			cells = append(append(cells, spread(values(own, func(r Result) float64 { return r.Rate }), rate)), usage...)
			cells = append(cells, ratio(rows, i), middle(own, func(r Result) float64 { return r.Probe.Rate }, "%.0f"))
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
}

// peer is what a driver is compared with: an HTTP endpoint with a bare one, any other
// with the driver of ours that it names, or else with the first.
func peer(i int) (subject, other string, ok bool) {
	d := &drivers[i]
	switch {
	case d.Name == httpBare.Name:
		return httpRedrive.Name, d.Name, true
	case d.Name == wsBare.Name:
		return wsRedrive.Name, d.Name, true
	case d.Name == relayBare.Name:
		return relayRedrive.Name, d.Name, true
	case d.Name == relayRedrive.Name || d.Name == wsRedrive.Name || d.Name == httpRedrive.Name || d.Name == redriveSQLite.Name || d.Name == redrivePostgres.Name:
		return "", "", false
	case d.Subject != "":
		return d.Subject, d.Name, d.Synced
	default:
		return redriveSQLite.Name, d.Name, d.Synced
	}
}

// ratio divides the rates of Redrive by those of a peer, round by round.
func ratio(rows []Result, i int) string {
	subject, other, ok := peer(i)
	a, b := of(rows, subject), of(rows, other)
	if !ok || len(a) == 0 || len(a) != len(b) {
		return ""
	}
	pairs := make([]float64, len(a))
	for round := range a {
		pairs[round] = a[round].Rate / b[round].Rate
	}
	return strings.TrimPrefix(subject, "HTTP, ") + " is " + spread(pairs, func(v float64) string { return fmt.Sprintf("%.2fx", v) })
}

func of(rows []Result, driver string) []Result {
	return slices.DeleteFunc(slices.Clone(rows), func(r Result) bool { return r.Driver != driver })
}

func values(rows []Result, f func(Result) float64) []float64 {
	v := make([]float64, len(rows))
	for i, r := range rows {
		v[i] = f(r)
	}
	return v
}

func median[T cmp.Ordered](v []T) T {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

func middle(rows []Result, f func(Result) float64, format string) string {
	return fmt.Sprintf(format, median(values(rows, f)))
}

func milliseconds(rows []Result, f func(Result) time.Duration) string {
	return middle(rows, func(r Result) float64 { return float64(f(r)) / float64(time.Millisecond) }, "%.2f ms")
}

// rate shows three digits: more would be noise.
func rate(v float64) string {
	if v >= 1000 {
		unit := math.Pow(10, math.Floor(math.Log10(v))-2)
		v = math.Round(v/unit) * unit
	}
	return fmt.Sprintf("%.0f", v)
}

func spread(v []float64, show func(float64) string) string {
	if len(v) == 1 {
		return show(v[0])
	}
	return fmt.Sprintf("%s (%s-%s)", show(median(v)), show(slices.Min(v)), show(slices.Max(v)))
}
