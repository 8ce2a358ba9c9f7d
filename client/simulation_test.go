package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/gateway/session"
	"github.com/redrive/redrive/internal/wsproto"
)

// The simulation runs both machines of the protocol against a real store, with the
// network, the processes and the store's answers under the dice: frames are late,
// repeated or lost with their connection, either side notices late, the server's process
// dies with what it held, the client starts anew from what it had written down.
const (
	simRounds   = 200
	simMessages = 120
	simFaulty   = 4000   // events with faults
	simCalm     = 60_000 // events within which everything must have ended after them
)

var errAnswerLost = errors.New("the answer was lost")

func envNumber(t *testing.T, name string, otherwise uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q is not a number", name, text)
	}
	return n
}

// TestSimulation: REDRIVE_SEED names the first seed, REDRIVE_PROOF_ROUNDS how many follow.
func TestSimulation(t *testing.T) {
	seed, rounds := envNumber(t, "REDRIVE_SEED", 1), envNumber(t, "REDRIVE_PROOF_ROUNDS", simRounds)
	if testing.Short() {
		rounds = min(rounds, 50)
	}
	var total simCounts
	for i := range rounds {
		w := newWorld(t, seed+i)
		w.run()
		total.add(&w.counts)
		if t.Failed() {
			t.Fatalf("repeat with: REDRIVE_SEED=%d REDRIVE_PROOF_ROUNDS=1 go test -run TestSimulation ./client", seed+i)
		}
	}
	t.Logf("%d rounds from seed %d: %+v", rounds, seed, total)
}

// simCounts show that the dice did what they should.
type simCounts struct{ Connections, Cuts, Crashes, Superseded, AnswersLost, Stored, Results, Refused, Gaps, SlowDowns int }

func (c *simCounts) add(o *simCounts) {
	c.Connections += o.Connections
	c.Cuts += o.Cuts
	c.Crashes += o.Crashes
	c.Superseded += o.Superseded
	c.AnswersLost += o.AnswersLost
	c.Stored += o.Stored
	c.Results += o.Results
	c.Refused += o.Refused
	c.Gaps += o.Gaps
	c.SlowDowns += o.SlowDowns
}

// link is one connection. Frames arrive in order, for as long as it lives.
type link struct {
	up, down   [][]byte // on their way to the server, and to the client
	clientGone bool
	serverGone bool
	hello      *session.Hello
	machine    *session.Machine
	step       *session.Step // given to the store, not answered yet
}

type world struct {
	t       *testing.T
	seed    uint64
	dice    *rand.Rand
	store   *memory.Store
	options session.Options
	client  *machine
	link    *link   // the client's, nil: none
	links   []*link // that the server still serves
	now     time.Time
	calm    bool
	full    bool // the queue is above its limit
	counts  simCounts

	made     int
	outcome  map[string]string   // by body: "" on its way, "acked", "refused"
	stored   map[string]string   // session and number -> id of the message
	handled  map[string]int      // by body: deliveries
	results  map[string]int      // by id of the message: results that the client handled
	ids      map[string][]string // by body: ids of the messages
	lastSeen uint64              // number of the last result handled
	pending  []Result            // came, and not handled by the application
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, seed: seed, dice: rand.New(rand.NewPCG(seed, 8)), store: memory.New(), client: newMachine(8), now: time.Unix(1e9, 0),
		outcome: make(map[string]string), stored: make(map[string]string), handled: make(map[string]int), results: make(map[string]int), ids: make(map[string][]string),
	}
	w.options = session.Options{Window: 1 + w.dice.IntN(20), MaxBatch: 1 + w.dice.IntN(8), MaxOutstanding: 10 + w.dice.IntN(60), Expires: 1000 * time.Hour}
	t.Cleanup(func() { _ = w.store.Close() })
	return w
}

func (w *world) chance(percent int) bool { return w.dice.IntN(100) < percent }

func (w *world) failf(format string, args ...any) {
	w.t.Helper()
	w.t.Errorf("seed %d: %s", w.seed, fmt.Sprintf(format, args...))
}

func (w *world) run() {
	for i := 0; i < simFaulty && !w.t.Failed(); i++ {
		w.event()
	}
	w.calm, w.full = true, false
	for i := 0; i < simCalm && !w.t.Failed(); i++ {
		if w.ended() {
			w.check()
			return
		}
		w.event()
	}
	if !w.t.Failed() {
		w.failf("it does not come to an end: %d made, %d tickets, limit %d, %d pending", w.made, len(w.client.tickets), w.client.limit, len(w.pending))
	}
}

// ended reports that every message was made, decided, delivered, and answered.
func (w *world) ended() bool {
	if w.made < simMessages || len(w.client.tickets) > 0 || len(w.pending) > 0 || w.client.confirmed < w.client.handled {
		return false
	}
	counts, err := w.store.Counts(context.Background())
	if err != nil {
		w.failf("counts: %v", err)
	}
	for i := range counts {
		if counts[i].AllWaiting() > 0 {
			return false
		}
	}
	return true
}

func (w *world) event() {
	w.now = w.now.Add(time.Duration(w.dice.IntN(40)) * time.Millisecond)
	switch w.dice.IntN(12) {
	case 0:
		w.makeMessage()
	case 1, 2:
		w.clientSends()
	case 3, 4:
		w.clientReceives()
	case 5:
		w.clientHandles()
	case 6, 7:
		w.serverReceives()
	case 8, 9:
		w.serverWorks()
	case 10:
		w.deliver()
	case 11:
		if w.link == nil {
			w.connect()
		} else if !w.calm {
			w.fault()
		}
	}
}

func (w *world) makeMessage() {
	if w.made == simMessages || len(w.client.tickets) > 40 {
		return
	}
	w.made++
	body := strconv.Itoa(w.made)
	m := &Message{Queue: "q", Body: []byte(body)}
	switch w.dice.IntN(20) {
	case 0:
		m.Queue = "Not a queue"
	case 1:
		m.ID = "chosen-" + body
	case 2:
		m.ID = "chosen-always" // others have this id and another body
	}
	if _, err := w.client.add(m, func(err error) {
		if w.outcome[body] != "" {
			w.failf("message %s was decided twice", body)
		}
		w.outcome[body] = "acked"
		if err != nil {
			w.outcome[body] = "refused"
			w.counts.Refused++
		}
	}); err != nil {
		w.failf("add: %v", err)
	}
}

func (w *world) connect() {
	w.counts.Connections++
	w.link = new(link)
	w.links = append(w.links, w.link)
	w.link.up = append(w.link.up, w.client.hello())
}

func (w *world) clientSends() {
	l := w.link
	if l == nil {
		return
	}
	for _, f := range w.client.due(1 + w.dice.IntN(5)) {
		l.up = append(l.up, f)
		if !w.calm && w.chance(3) && strings.Contains(string(f), "publish") {
			l.up = append(l.up, f) // a client that repeats itself
		}
	}
	if w.full && w.chance(20) {
		w.full = false
	}
}

func (w *world) clientReceives() {
	l := w.link
	if l == nil {
		return
	}
	if len(l.down) == 0 {
		if l.serverGone {
			l.clientGone, w.link = true, nil
		}
		return
	}
	frame := l.down[0]
	l.down = l.down[1:]
	in, err := w.client.take(frame)
	if err != nil {
		w.failf("client: %v: %s", err, frame)
		return
	}
	if in.gap != nil {
		w.counts.Gaps++
		w.failf("a gap: %s", frame)
	}
	if in.slow != nil {
		w.counts.SlowDowns++
	}
	if in.result != nil {
		w.pending = append(w.pending, *in.result)
	}
}

// clientHandles is the application, which handles results in their order.
func (w *world) clientHandles() {
	if len(w.pending) == 0 {
		return
	}
	r := w.pending[0]
	w.pending = w.pending[1:]
	if r.Number != w.lastSeen+1 {
		w.failf("result %d after %d", r.Number, w.lastSeen)
	}
	w.lastSeen = r.Number
	w.results[r.ID]++
	w.counts.Results++
	if w.stored[fmt.Sprint(w.client.session, "/", r.Seq)] != r.ID {
		w.failf("the result of number %d names message %s", r.Seq, r.ID)
	}
	w.client.handle(r.Number)
}

// pick chooses a connection that the server serves.
func (w *world) pick() *link {
	if len(w.links) == 0 {
		return nil
	}
	return w.links[w.dice.IntN(len(w.links))]
}

func (w *world) serverReceives() {
	l := w.pick()
	if l == nil {
		return
	}
	if len(l.up) == 0 {
		if l.clientGone && w.chance(30) { // half open for a while
			w.end(l)
		}
		return
	}
	if l.machine == nil && l.hello != nil || l.machine != nil && l.machine.Full() {
		return
	}
	frame := l.up[0]
	l.up = l.up[1:]
	if l.machine != nil {
		if err := l.machine.Frame(frame); err != nil {
			w.failf("server: %v: %s", err, frame)
		}
		return
	}
	h, err := session.ReadHello(frame)
	if err != nil {
		w.failf("hello: %v: %s", err, frame)
		return
	}
	l.hello = h
	w.open(l)
}

// open reads the session and begins with it.
func (w *world) open(l *link) {
	rec, version := w.record(l.hello.Session)
	m, err := session.Open(&w.options, l.hello, "owner", rec, version, w.now)
	if err != nil {
		w.settle(l, err)
		return
	}
	l.machine = m
}

func (w *world) record(name string) (*session.Record, int64) {
	if name == "" {
		return nil, 0
	}
	r, err := w.store.GetRecord(context.Background(), session.Space, name)
	if errors.Is(err, redrive.ErrNotFound) {
		return nil, 0
	}
	if err != nil {
		w.failf("record: %v", err)
	}
	rec, err := session.DecodeRecord(r.Value)
	if err != nil {
		w.failf("%v", err)
	}
	return rec, r.Version
}

// serverWorks goes on with one connection as the shell does: one thing at a time, so
// that anything may come in between.
func (w *world) serverWorks() {
	l := w.pick()
	if l == nil || l.machine == nil {
		return
	}
	m := l.machine
	defer func() {
		l.down = append(l.down, m.Take()...)
		if !l.clientGone && l != w.link {
			l.down = nil
		}
	}()
	if l.step != nil {
		w.answer(l)
		return
	}
	if m.Unsure() {
		rec, version := w.record(m.Name())
		w.settle(l, m.Reread(rec, version))
		return
	}
	if refs := m.Doubts(); len(refs) > 0 {
		remembered, err := w.store.Recall(context.Background(), refs)
		if err != nil {
			w.failf("recall: %v", err)
		}
		m.Resolve(remembered)
	}
	if w.chance(50) {
		w.readResults(m)
	}
	if queues := m.Queues(); len(queues) > 0 {
		if !w.calm && w.chance(5) {
			w.full = !w.full
		}
		level := driver.LevelOK
		if w.full {
			level = driver.LevelRefused
		} else if w.chance(20) {
			level = driver.LevelWarn
		}
		m.SetLevel(queues[0], level, time.Second, w.now)
	}
	l.step = m.Next(w.now)
	if err := m.Overfull(); err != nil {
		w.end(l)
	}
}

// readResults does what the shell does for results.
func (w *world) readResults(m *session.Machine) {
	ctx := context.Background()
	if ids := m.Again(); len(ids) > 0 {
		refs := make([]redrive.Ref, len(ids))
		for i, id := range ids {
			refs[i] = redrive.Ref{Queue: driver.ResultQueue, ID: id}
		}
		entries, err := w.store.Get(ctx, refs)
		if err != nil {
			w.failf("get: %v", err)
		}
		again := make([]*redrive.Message, len(ids))
		for i, e := range entries {
			if e != nil {
				again[i] = &e.Message
			}
		}
		m.Repush(again)
	}
	m.Stale()
	known, limit, ok := m.Wants()
	if !ok {
		return
	}
	page, err := w.store.Find(ctx, redrive.Query{Queue: driver.ResultQueue, Key: m.Name(), Limit: len(known) + limit, Bodies: true})
	if err != nil {
		w.failf("find: %v", err)
	}
	var found []*redrive.Message
	for i := range page.Entries {
		fresh := true
		for _, id := range known {
			fresh = fresh && id != page.Entries[i].ID
		}
		if fresh && len(found) < limit {
			found = append(found, &page.Entries[i].Message)
		}
	}
	m.Found(found, page.Next != "")
}

// answer lets the store carry out a step, or not, and its answer come back, or not.
func (w *world) answer(l *link) {
	s := l.step
	l.step = nil
	if w.full && len(s.Batch.Publish) > 0 && w.chance(50) {
		w.settle(l, l.machine.Applied(nil, redrive.ErrBacklogged, w.now))
		return
	}
	if !w.calm && w.chance(6) {
		w.counts.AnswersLost++
		if w.chance(50) {
			w.apply(s)
		}
		w.settle(l, l.machine.Applied(nil, errAnswerLost, w.now))
		return
	}
	items, err := w.apply(s)
	w.settle(l, l.machine.Applied(items, err, w.now))
}

func (w *world) apply(s *session.Step) ([]error, error) {
	items, err := w.store.Apply(context.Background(), s.Batch)
	if err != nil {
		return nil, err
	}
	for i := range s.Batch.Publish {
		if items != nil && items[i] != nil {
			continue
		}
		m := &s.Batch.Publish[i]
		w.counts.Stored++
		if before := w.stored[m.ReplyTo]; before != "" {
			w.failf("%s was stored twice: %s and %s", m.ReplyTo, before, m.ID)
		}
		w.stored[strings.TrimPrefix(m.ReplyTo, driver.SessionReply)] = m.ID
		w.ids[string(m.Body)] = append(w.ids[string(m.Body)], m.ID)
	}
	return items, nil
}

// settle carries on after what a machine said.
func (w *world) settle(l *link, err error) {
	var c *session.Close
	switch {
	case err == nil:
	case errors.Is(err, session.ErrReopen):
		w.open(l)
	case errors.As(err, &c) && c.Code == wsproto.CodeSuperseded:
		w.counts.Superseded++
		if l == w.link {
			w.failf("the client's own connection is superseded")
		}
		w.end(l)
	default:
		w.failf("server: %v", err)
	}
}

// end lets the server be done with a connection.
func (w *world) end(l *link) {
	l.serverGone = true
	for i := range w.links {
		if w.links[i] == l {
			w.links = append(w.links[:i], w.links[i+1:]...)
			break
		}
	}
}

// deliver is the engine with the target: it handles one message.
func (w *world) deliver() {
	ctx := context.Background()
	ds, err := w.store.Claim(ctx, driver.ClaimRequest{Queue: "q", Max: 1, Lease: time.Hour, Instance: "engine"})
	if err != nil {
		w.failf("claim: %v", err)
	}
	for i := range ds {
		d := &ds[i]
		w.handled[string(d.Body)]++
		s := driver.Settlement{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}
		if w.chance(10) {
			s.Outcome, s.Reason = redrive.OutcomeDead, redrive.ReasonPermanent
		}
		if r, ok := driver.ResultMessage(&d.Message, s.Outcome, s.Reason, nil, d.Body); ok {
			s.Emit = []redrive.Message{r}
		}
		if err := driver.FirstError(w.store.Settle(ctx, []driver.Settlement{s})); err != nil {
			w.failf("settle: %v", err)
		}
	}
}

// fault breaks something.
func (w *world) fault() {
	l := w.link
	switch w.dice.IntN(8) {
	case 0: // the client's end notices; the server's may not
		w.counts.Cuts++
		l.clientGone, w.link = true, nil
		l.down = nil
		if len(l.up) > 0 && w.chance(50) {
			l.up = l.up[:w.dice.IntN(len(l.up))]
		}
		if w.chance(50) {
			w.end(l)
		}
	case 1: // the server's end breaks, with what was on its way
		w.counts.Cuts++
		l.down = l.down[:w.dice.IntN(len(l.down)+1)]
		w.end(l)
	case 2: // the server's process dies, and with it every connection; a write may still happen
		w.counts.Crashes++
		for len(w.links) > 0 {
			dead := w.links[0]
			if dead.step != nil && w.chance(50) {
				w.apply(dead.step)
			}
			dead.down = dead.down[:w.dice.IntN(len(dead.down)+1)]
			w.end(dead)
		}
	case 3: // the client's process dies and begins anew from what it had written down
		w.counts.Crashes++
		l.clientGone, w.link = true, nil
		old := w.client
		w.client = &machine{session: old.session, token: old.token, window: old.window, attempt: old.attempt, next: old.next, tickets: old.tickets, acked: old.acked, handled: old.handled, arrived: old.handled}
		w.pending = nil // it hears of them again
	}
}

// check looks at what must hold when all has ended.
func (w *world) check() {
	for body, outcome := range w.outcome {
		stored := len(w.ids[body])
		switch {
		case outcome == "acked" && (stored != 1 || w.handled[body] == 0):
			w.failf("message %s was acknowledged; stored %d times, delivered %d times", body, stored, w.handled[body])
		case outcome == "refused" && stored > 0:
			w.failf("message %s was refused, and stored", body)
		}
		for _, id := range w.ids[body] {
			if w.results[id] == 0 {
				w.failf("no result of message %s came to the client", body)
			}
		}
	}
	if len(w.outcome) != simMessages {
		w.failf("%d messages of %d were decided", len(w.outcome), simMessages)
	}
	rec, _ := w.record(w.client.session)
	if rec.Outstanding() != 0 || len(rec.Pushed) != 0 {
		w.failf("%d messages outstanding and %d results pushed at the end", rec.Outstanding(), len(rec.Pushed))
	}
}
