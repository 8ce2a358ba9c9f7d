package history

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive/client"
)

// The queues of a run.
const (
	hooks = "hooks" // delivered
	keyed = "keyed" // delivered in order by key
	work  = "work"  // claimed by workers
)

// config is that of every daemon. Nothing dies of crashes or of too many attempts. The
// address says on which source a queue is, if it is on one.
func config(target string, address func(queue string) string) string {
	policy := "policy: {max_attempts: 1000, max_crashes: 1000, backoff: {type: fixed, interval: 40ms}, classify: {permanent: [\"400\"]}}"
	deliver := fmt.Sprintf("deliver: {url: %q, timeout: 2s, allow_private: true, concurrency: 8}", target+"/%s")
	return fmt.Sprintf("grace: 2s\nlog: {level: error}\nqueues:\n  %s:\n    source: %q\n    %s\n    %s\n  %s:\n    source: %q\n    order: key\n    %s\n    %s\n  %s:\n    %s\n",
		hooks, address(hooks), fmt.Sprintf(deliver, hooks), policy, keyed, address(keyed), fmt.Sprintf(deliver, keyed), policy, work, policy)
}

// dice are safe for concurrent use.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func newDice(seed uint64) *dice { return &dice{r: rand.New(rand.NewPCG(seed, 2))} }

func (d *dice) roll(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

func (d *dice) upTo(most time.Duration) time.Duration { return time.Duration(d.roll(int(most))) }

// receiver gets the deliveries: most succeed, some fail, for now or for good, some are
// slow, and of some the answer is lost.
type receiver struct {
	*httptest.Server
	rec  *recorder
	dice *dice
	well atomic.Bool // everything succeeds
}

func newReceiver(t testing.TB, rec *recorder, d *dice) *receiver {
	r := &receiver{rec: rec, dice: d}
	r.Server = httptest.NewServer(r)
	t.Cleanup(func() { r.CloseClientConnections(); r.Close() })
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	begin := r.rec.now()
	text, err := io.ReadAll(req.Body)
	if err != nil {
		return // it did not come whole
	}
	e := Event{Begin: begin, Op: OpDeliver, By: "receiver", Queue: req.URL.Path[1:], ID: req.Header.Get("Webhook-Id"), Answer: OK, Outcome: Done}
	e.Label, e.Rev, e.Garbled = read(string(text))
	status, roll := http.StatusOK, r.dice.roll(100)
	switch {
	case r.well.Load():
	case roll < 10:
		e.Outcome, status = Retry, http.StatusInternalServerError
	case roll < 18 && (e.Queue == hooks || roll < 12):
		e.Outcome, status = Dead, http.StatusBadRequest
	case roll < 24:
		pause(req.Context(), r.dice.upTo(300*time.Millisecond))
	case roll < 27:
		e.Note = "the answer is lost"
	}
	r.rec.add(e)
	if e.Note != "" {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(status)
}

// crowd is all who work on the daemons.
type crowd struct {
	t       testing.TB
	rec     *recorder
	dice    *dice
	daemons []*daemon
	foreign []string    // queues on a source, which knows no ids and no delays
	well    atomic.Bool // workers only finish
	all     sync.WaitGroup
	leave   context.CancelFunc
}

func (c *crowd) any() string { return c.daemons[c.dice.roll(len(c.daemons))].url() }

// publisher publishes to a queue until ctx ends. What has an id of its own is sent again
// while it is unknown what became of it, as is all that has a key. What has an id or a
// delay passes a source by, so that less of it is sent there.
func (c *crowd) publisher(ctx context.Context, name, queue, key string) {
	foreign := slices.Contains(c.foreign, queue)
	named, late := 2, 4 // one in so many has an id, is delayed
	if foreign {
		named, late = 6, 8
	}
	for seq := 1; ctx.Err() == nil; seq++ {
		label := c.rec.label()
		header := map[string]string{"Content-Type": "application/json"}
		id := ""
		if key != "" && !foreign || key == "" && c.dice.roll(named) == 0 {
			id = "own-" + label
			header["Redrive-Id"] = id
		}
		if key != "" {
			header["Redrive-Key"] = key
		} else if c.dice.roll(late) == 0 {
			header["Redrive-Delay"] = fmt.Sprintf("%dms", 50+c.dice.roll(1000))
		}
		for {
			e := Event{Begin: c.rec.now(), Op: OpPublish, By: name, Queue: queue, Label: label, ID: id, Key: key, Seq: seq}
			var out struct{ ID string }
			e.Answer, e.Note = c.rec.call(context.WithoutCancel(ctx), http.MethodPost, c.any()+"/v1/queues/"+queue+"/messages", header, body(label, 0), &out)
			if e.Answer == OK {
				e.ID = out.ID
			}
			c.rec.add(e)
			if e.Answer == OK || e.Answer == Unknown && id == "" && key == "" || key == "" && e.Answer == Refused || !pause(ctx, 30*time.Millisecond) {
				break
			}
		}
		pause(ctx, 10*time.Millisecond+c.dice.upTo(50*time.Millisecond))
	}
}

// session publishes over a session of the Go client until ctx ends, and receives what
// became of it.
func (c *crowd) session(ctx context.Context, name string, d *daemon) {
	began := c.rec.now()
	dialing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	by, err := client.Dial(dialing, "ws"+strings.TrimPrefix(d.url(), "http")+"/v1/ws", client.Options{
		MaxBackoff: 300 * time.Millisecond,
		OnResult: func(r *client.Result) {
			c.rec.mu.Lock()
			label := c.rec.labels[r.Queue+"/"+r.ID]
			c.rec.mu.Unlock()
			if label != "" {
				c.rec.add(Event{Begin: c.rec.now(), Op: OpResult, By: name, Queue: r.Queue, Label: label, ID: r.ID, Outcome: r.Outcome, Answer: OK})
			}
		},
	})
	if err != nil {
		c.t.Errorf("%s, from %s: %v", name, began, err)
		return
	}
	defer by.Close()
	for ctx.Err() == nil {
		label := c.rec.label()
		e := Event{Begin: c.rec.now(), Op: OpPublish, By: name, Queue: hooks, Label: label, ID: "own-" + label}
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		err := by.Publish(patience, &client.Message{Queue: hooks, ID: e.ID, Body: []byte(body(label, 0))})
		cancel()
		if e.Answer = OK; err != nil {
			e.Answer, e.Note = Unknown, err.Error()
		}
		c.rec.add(e)
		pause(ctx, 20*time.Millisecond+c.dice.upTo(80*time.Millisecond))
	}
}

// item is what a worker got.
type item struct {
	Receipt    string
	ID         string
	Body       string
	Generation int
	Redrives   int
}

// worker claims and settles until ctx ends.
func (c *crowd) worker(ctx context.Context, name string) {
	for ctx.Err() == nil {
		lease := time.Duration(1000+c.dice.roll(1000)) * time.Millisecond
		url, begin := c.any(), c.rec.now()
		var got struct{ Items []item }
		in := map[string]any{"max": 1 + c.dice.roll(4), "lease": lease.String(), "wait": "200ms", "worker": name}
		if a, _ := c.rec.call(context.WithoutCancel(ctx), http.MethodPost, url+"/v1/queues/"+work+"/claims", nil, in, &got); a != OK {
			pause(ctx, 50*time.Millisecond)
			continue
		}
		for _, i := range got.Items {
			e := Event{Begin: begin, Op: OpClaim, By: name, Queue: work, ID: i.ID, Receipt: i.Receipt, Lease: lease, Generation: i.Generation, Redrives: i.Redrives, Answer: OK}
			e.Label, e.Rev, e.Garbled = read(i.Body)
			c.rec.add(e)
		}
		for _, i := range got.Items {
			c.handle(ctx, name, &i, lease)
		}
	}
}

// handle does something with one message.
func (c *crowd) handle(ctx context.Context, name string, i *item, lease time.Duration) {
	outcome, roll := Done, c.dice.roll(100)
	switch {
	case c.well.Load():
	case roll < 12:
		outcome = Retry
	case roll < 20:
		outcome = Dead
	case roll < 25:
		outcome = Release
	case roll < 30: // it hangs, and settles what another may have by then
		pause(ctx, lease+c.dice.upTo(lease))
		outcome = []string{Done, Retry, Dead, Release}[c.dice.roll(4)]
	case roll < 34: // so does this one, and extends first
		pause(ctx, lease+c.dice.upTo(lease))
		c.extend(ctx, name, i, lease)
	case roll < 38:
		c.extend(ctx, name, i, lease)
		pause(ctx, lease/2)
	case roll < 40:
		return // it dies
	}
	label, _, _ := read(i.Body)
	for {
		e := Event{Begin: c.rec.now(), Op: OpSettle, By: name, Queue: work, Label: label, ID: i.ID, Receipt: i.Receipt, Outcome: outcome}
		s := map[string]any{"receipt": i.Receipt, "outcome": outcome}
		if outcome == Retry || outcome == Dead {
			s["failure"] = map[string]any{"type": "Planned", "message": "this one fails"}
		}
		e.Answer, e.Note = c.each(ctx, "settlements", map[string]any{"settlements": []any{s}})
		c.rec.add(e)
		if e.Answer == OK && c.dice.roll(10) == 0 { // once more, as if the answer had been lost
			e = Event{Begin: c.rec.now(), Op: OpSettle, By: name, Queue: work, Label: label, ID: i.ID, Receipt: i.Receipt, Outcome: outcome}
			e.Answer, e.Note = c.each(ctx, "settlements", map[string]any{"settlements": []any{s}})
			c.rec.add(e)
			return
		}
		if e.Answer != Unknown || !pause(ctx, 100*time.Millisecond) {
			return
		}
	}
}

func (c *crowd) extend(ctx context.Context, name string, i *item, lease time.Duration) {
	label, _, _ := read(i.Body)
	e := Event{Begin: c.rec.now(), Op: OpExtend, By: name, Queue: work, Label: label, ID: i.ID, Receipt: i.Receipt, Lease: lease}
	e.Answer, e.Note = c.each(ctx, "extensions", map[string]any{"receipts": []string{i.Receipt}, "lease": lease.String()})
	c.rec.add(e)
}

// each settles or extends one message, and reads the answer for it.
func (c *crowd) each(ctx context.Context, what string, in any) (Answer, string) {
	var out struct {
		Items []struct {
			Status string
			Error  *struct {
				Status        int
				Title, Detail string
			}
		}
	}
	a, note := c.rec.call(context.WithoutCancel(ctx), http.MethodPost, c.any()+"/v1/queues/"+work+"/"+what, nil, in, &out)
	if a != OK {
		return a, note
	}
	if len(out.Items) != 1 {
		return Unknown, fmt.Sprintf("%d items", len(out.Items))
	}
	if p := out.Items[0].Error; p != nil {
		if p.Status == http.StatusTooManyRequests || p.Status >= 500 {
			return Unknown, p.Title + " " + p.Detail
		}
		return Refused, p.Title + " " + p.Detail
	}
	return OK, ""
}

// begin starts everybody. The publishers leave first.
func (c *crowd) begin(ctx context.Context) (stopPublishing func()) {
	publishing, stop := context.WithCancel(ctx)
	working, leave := context.WithCancel(ctx)
	c.leave = leave
	var publishers sync.WaitGroup
	for i, queue := range []string{hooks, hooks, work, work} {
		publishers.Go(func() { c.publisher(publishing, fmt.Sprintf("publisher-%d", i), queue, "") })
	}
	for i := range 4 {
		publishers.Go(func() { c.publisher(publishing, fmt.Sprintf("ordered-%d", i), keyed, fmt.Sprintf("key-%d", i)) })
	}
	for i, d := range c.daemons {
		publishers.Go(func() { c.session(publishing, fmt.Sprintf("session-%d", i), d) })
	}
	publishers.Go(func() { c.operator(publishing, "operator") })
	for i := range 4 {
		c.all.Go(func() { c.worker(working, fmt.Sprintf("worker-%d", i)) })
	}
	return func() { stop(); publishers.Wait() }
}

// letter is a dead letter as the list has it.
type letter struct {
	Queue, ID, State, Body string
	Generation, Redrives   int
}

func (l *letter) UnmarshalJSON(b []byte) error {
	type plain letter // without this method
	var p struct {
		plain
		Body *string `json:"body"`
	}
	err := json.Unmarshal(b, &p)
	*l = letter(p.plain)
	if p.Body != nil {
		l.Body = *p.Body
	}
	return err
}
