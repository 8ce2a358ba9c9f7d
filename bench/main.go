// Bench measures Redrive beside its peers: one set of workloads, a driver for each
// system, interleaved runs, the disk probed before every run. Each run is a process
// of its own over a fresh folder, so that none pays for the garbage of another.
//
//	go run . -run 'publish|drain' -drivers 'redrive|bare' -rounds 5 -duration 3s
//
// It prints the tables of docs/performance.md.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := bench(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	workloads, drivers string
	rounds             int
	duration           time.Duration
	dir                string
	one, profile       string
	serve              string
}

func bench(ctx context.Context) error {
	var o options
	flag.StringVar(&o.workloads, "run", ".", "workloads whose name matches this `regexp`")
	flag.StringVar(&o.drivers, "drivers", ".", "drivers whose name matches this `regexp`")
	flag.IntVar(&o.rounds, "rounds", 3, "how often each driver runs each workload, in turns")
	flag.DurationVar(&o.duration, "duration", 2*time.Second, "of one run")
	flag.StringVar(&o.dir, "dir", "", "where the systems keep their files: on the disk to be measured; default: the temporary folder")
	flag.StringVar(&o.one, "one", "", "run the one `driver` and the one workload of -run in this process and print the result as JSON")
	flag.StringVar(&o.profile, "cpuprofile", "", "with -one, write a CPU profile of the run to this `file`")
	flag.StringVar(&o.serve, "serve", "", "run the daemon over -dir, delivering to this `URL`, for the relay workloads")
	flag.Parse()
	if o.serve != "" {
		return serveTo(ctx, o)
	}
	if o.one != "" {
		return printOne(ctx, o)
	}
	results, err := interleave(ctx, o)
	if err != nil {
		return err
	}
	how := fmt.Sprintf("%s, %s/%s, %d cores, %s. Bodies of %d bytes; %d interleaved rounds of %s each; ratios are made round by round. Client, system and handler share the machine. "+
		"CPU and bytes written include a system's own process, and cover all that a run did.",
		time.Now().UTC().Format(time.DateOnly), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), bodySize, o.rounds, o.duration)
	report(os.Stdout, results, how)
	return nil
}

// interleave runs A B C A B C ... for each workload.
func interleave(ctx context.Context, o options) (results []Result, err error) {
	matchWorkload, err := regexp.Compile(o.workloads)
	if err != nil {
		return nil, err
	}
	matchDriver, err := regexp.Compile(o.drivers)
	if err != nil {
		return nil, err
	}
	for _, l := range workloads {
		if !matchWorkload.MatchString(l.Name) {
			continue
		}
		for round := range o.rounds {
			for i := range drivers {
				d := &drivers[i]
				if !matchDriver.MatchString(d.Name) {
					continue
				}
				r, err := runApart(ctx, o, l.Name, d.Name)
				if err != nil {
					return nil, fmt.Errorf("%s on %s: %w", l.Name, d.Name, err)
				}
				if !r.Skipped {
					fmt.Fprintf(os.Stderr, "%s %d/%d %-24s %s msg/s, %.1f us, %.0f bytes, p99 %s, probe %.0f/s\n",
						l.Name, round+1, o.rounds, d.Name, rate(r.Rate), r.CPU, r.Bytes, r.P99, r.Probe.Rate)
				}
				results = append(results, r)
			}
		}
	}
	if len(results) == 0 {
		return nil, errors.New("nothing matches -run and -drivers")
	}
	return results, nil
}

// runApart runs one workload on one driver in a process of its own.
func runApart(ctx context.Context, o options, workload, driver string) (r Result, err error) {
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	cmd := exec.CommandContext(ctx, self, "-one", driver, "-run", workload, "-duration", o.duration.String(), "-dir", o.dir)
	var out, trouble bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &trouble
	if err := cmd.Run(); err != nil {
		return r, fmt.Errorf("%w: %s", err, bytes.TrimSpace(trouble.Bytes()))
	}
	return r, json.Unmarshal(out.Bytes(), &r)
}

func printOne(ctx context.Context, o options) (err error) {
	i := slices.IndexFunc(drivers, func(d Driver) bool { return d.Name == o.one })
	j := slices.IndexFunc(workloads, func(l Workload) bool { return l.Name == o.workloads })
	if i < 0 || j < 0 {
		return fmt.Errorf("no driver %q or no workload %q", o.one, o.workloads)
	}
	if relayProfile = o.profile; o.profile != "" && o.one != relayRedrive.Name { // whose daemon is profiled
		stop, failed := profile(o.profile)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	r, err := runOne(ctx, o, &drivers[i], &workloads[j])
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// profile writes a CPU profile to a file until stop is called.
func profile(name string) (stop func() error, err error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() error { pprof.StopCPUProfile(); return f.Close() }, nil
}

func runOne(ctx context.Context, o options, d *Driver, l *Workload) (r Result, err error) {
	r = Result{Driver: d.Name, Workload: l.Name}
	dir, err := os.MkdirTemp(o.dir, "redrive-bench-*")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if r.Probe, err = probeDisk(dir); err != nil {
		return r, err
	}
	q, err := d.Open(dir)
	if err != nil {
		return r, err
	}
	err = l.run(ctx, &run{queue: q, duration: o.duration, result: &r})
	if errors.Is(err, errUnfit) {
		r.Skipped, err = true, nil
	}
	return r, errors.Join(err, q.Close())
}
