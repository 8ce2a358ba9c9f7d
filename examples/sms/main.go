// Command sms shows a guard: an application sends text messages through three
// providers, which are real HTTP servers with scripted limits and outages. Each second
// it draws how many callers were answered at once, how many messages wait, and what
// each provider bears. In the middle all three are sick at once: then the callers get
// tickets, and the queue is worked off afterwards.
//
//	go run ./examples/sms
//	go run ./examples/sms -rate 200 -length 2m -queue sqlite:./redrive-data
//	go run ./examples/sms -queue postgres://user@localhost/redrive
//	go run ./examples/sms -queue 'kafka://localhost:9092/sms?group=sms' -store sqlite:./redrive-data
//
// The queue may be a store, or a topic of Kafka with a store beside it: requests then wait
// in the topic; what failed again, its result and the guard's state are in the store.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"github.com/redrive/redrive/engine"
)

// patience is how long the queue may take at the end.
const patience = 2 * time.Minute

func main() {
	rate := flag.Int("rate", 100, "requests a second")
	length := flag.Duration("length", time.Minute, "length of the script")
	queue := flag.String("queue", "", "address of the queue behind the guard: sqlite:DIR, postgres://... or kafka://host:9092/topic?group=...; empty: in memory")
	store := flag.String("store", "", "address of the store beside a topic: sqlite:DIR or postgres://...; empty: in memory")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *rate, *length, *queue, *store); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, rate int, length time.Duration, queue, store string) (err error) {
	q, err := openQueue(ctx, queue, store)
	if err != nil {
		return err
	}
	defer q.close() //nolint:errcheck // what was accepted is durable
	providers := []*provider{
		newProvider("north", length, phase{0.10, 0.45, broken, 0}, phase{0.60, 0.80, quota, rate / 2}),
		newProvider("south", length, phase{0.12, 0.45, hangs, 0}),
		newProvider("west", length, phase{0.15, 0.45, resets, 0}),
	}
	for _, p := range providers {
		p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	}
	defer func() {
		for _, p := range providers {
			p.server.CloseClientConnections()
		}
	}()
	a, err := newApp(q, providers)
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	defer stop()
	go a.guard.Run(working) //nolint:errcheck // it returns nil
	consumed := make(chan error, 1)
	go func() { consumed <- engine.Run(working, q.store, "sms", a, a.guard.QueueOptions()) }()

	live, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	sent := make(chan int, 1)
	go func() { sent <- a.traffic(live, rate) }()
	n, err := watch(ctx, out, a, providers, sent)
	if err != nil {
		return err
	}
	stop()
	if err := <-consumed; err != nil {
		return err
	}
	if err := a.check(n, providers); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\n%d requests: %d answered at once (%.1f %%), %d put off and sent later, %d refused, none lost\n",
		n, a.answered, 100*float64(a.answered)/float64(max(n, 1)), a.deferred, a.failed)
	return err
}

// watch draws a line a second until all was sent and nothing waits, and returns how
// many requests there were.
func watch(ctx context.Context, out io.Writer, a *app, providers []*provider, sent <-chan int) (int, error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var end <-chan time.Time
	n, ended := 0, false
	for second := 1; ; {
		select {
		case n = <-sent:
			ended, end = true, time.After(patience)
			continue
		case <-end:
			return n, fmt.Errorf("the queue was not empty %s after the last request", patience)
		case <-ctx.Done():
			return n, ctx.Err()
		case <-tick.C:
		}
		waiting := a.waiting()
		draw(out, second, waiting, a, providers)
		if ended && waiting == 0 {
			return n, nil
		}
		second++
	}
}

// draw draws one line.
func draw(out io.Writer, second, waiting int, a *app, providers []*provider) {
	t := a.takeNow()
	var b strings.Builder
	fmt.Fprintf(&b, "%3ds  sync %s", second, bar(t.answered, t.sent, 10))
	fmt.Fprintf(&b, "  queue %5d", waiting)
	states := make(map[string]string)
	for name, s := range a.guard.Snapshot() {
		states[name] = s.State
	}
	for _, p := range providers {
		load := p.takeLoad()
		fmt.Fprintf(&b, "  %s %4d/s %-10s", p.name, load, states[p.name])
	}
	fmt.Fprintln(out, b.String())
}

// bar draws a share.
func bar(part, whole, width int) string {
	if whole == 0 {
		return strings.Repeat(" ", width) + "    -"
	}
	full := part * width / whole
	return strings.Repeat("█", full) + strings.Repeat("·", width-full) + fmt.Sprintf(" %3d%%", 100*part/whole)
}
