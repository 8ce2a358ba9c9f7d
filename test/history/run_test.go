package history

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/childtest"
	"github.com/redrive/redrive/internal/natstest"
	"github.com/redrive/redrive/internal/programtest"
	"github.com/redrive/redrive/internal/proxytest"
	"github.com/redrive/redrive/test/e2e/powerloss"
)

// The folder of the program, and the commit that it is built from.
var binDir, builtFrom string

func TestMain(m *testing.M) {
	os.Exit(childtest.Main(func() int { return inFolder(m) }, natstest.Part))
}

func inFolder(m *testing.M) int {
	var err error
	if binDir, err = os.MkdirTemp("", "redrive-history-*"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(binDir)
	if builtFrom, err = state(); err != nil {
		builtFrom = "unknown"
	}
	return m.Run()
}

// redriveBin builds the program, once, and returns where it is.
var redriveBin = sync.OnceValues(func() (string, error) { return programtest.Build(binDir, "redrive") })

// rig is what a run works on.
type rig struct {
	*crowd
	servers []*server          // of the store, then of the source; none: an embedded store
	between []*proxytest.Proxy // from the daemons to the servers
	clock   *clock             // of the store's server, or of the daemon; nil: it cannot be moved
	disk    *powerloss.Disk    // of an embedded store; nil: one that does not fail
	target  *receiver
}

// rigOf returns what there is to break of a backend.
func rigOf(backend string) Rig {
	from, foreign := sources[backend]
	switch {
	case backend == "sqlite":
		return Rig{Daemons: 1, Links: 1}
	case backend == withClock:
		return Rig{Daemons: 1, Links: 1, Clocks: 1}
	case backend == onDisk:
		return Rig{Daemons: 1, Links: 1, Disks: 1}
	case foreign:
		return Rig{Daemons: 2, Links: 6, Servers: 2, Restart: from.restart, Clocks: clocks("postgres")}
	}
	return Rig{Daemons: 2, Links: 4, Servers: 1, Clocks: clocks(backend)}
}

func newRig(t testing.TB, backend string, seed uint64) *rig {
	t.Helper()
	rec, d := newRecorder(), newDice(seed)
	r := &rig{crowd: &crowd{t: t, rec: rec, dice: d}, target: newReceiver(t, rec, d)}
	switch backend {
	case "sqlite":
		r.embed(redriveBin, filepath.Join(t.TempDir(), "data"))
	case withClock:
		r.clock = newClock(t)
		r.embed(movable, filepath.Join(t.TempDir(), "data"), "CLOCK="+r.clock.file)
	case onDisk:
		var dir string
		r.disk, dir = powerloss.Mount(t, seed)
		r.embed(redriveBin, dir)
	default:
		r.share(backend)
	}
	for _, d := range r.daemons {
		if !await(t.Context(), time.Minute, d.ready) {
			t.Fatalf("%s is not ready: %s", d.name, d.log)
		}
	}
	return r
}

func inStore(string) string { return "" }

// embed starts a daemon with a store in a folder.
func (r *rig) embed(program func() (string, error), dir string, env ...string) {
	r.daemons = []*daemon{newDaemon(r.t, r.rec, program, "daemon", "sqlite:"+filepath.Join(dir, "data"), config(r.target.URL, inStore), env...)}
}

// share starts two daemons that share a store, and a source if the backend is one.
func (r *rig) share(backend string) {
	t := r.t
	from, foreign := sources[backend]
	if foreign {
		backend = "postgres"
	}
	r.servers = []*server{servers[backend](t)}
	if clocks(backend) > 0 {
		r.clock = newClock(t)
		r.clock.rule(t, r.servers[0])
	}
	if foreign {
		r.servers = append(r.servers, from.start(t))
		if r.foreign = []string{hooks}; from.ordered {
			r.foreign = append(r.foreign, keyed)
		}
	}
	for i := range 2 {
		links, address := make([]*proxytest.Proxy, len(r.servers)), inStore
		var store string
		links[0], store = r.servers[0].link(t)
		if foreign {
			var at string
			links[1], at = r.servers[1].link(t)
			address = func(queue string) string {
				if !slices.Contains(r.foreign, queue) {
					return ""
				}
				return strings.ReplaceAll(at, "QUEUE", queue)
			}
		}
		r.between = append(r.between, links...)
		r.daemons = append(r.daemons, newDaemon(t, r.rec, redriveBin, fmt.Sprintf("daemon-%d", i), store, config(r.target.URL, address)))
	}
}

// await waits for a condition.
func await(ctx context.Context, limit time.Duration, holds func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !holds() {
		if !pause(ctx, 50*time.Millisecond) {
			return false
		}
	}
	return true
}

// links are those to the daemons, then those from them to the server.
func (r *rig) link(i int) *proxytest.Proxy {
	if i < len(r.daemons) {
		return r.daemons[i].link
	}
	return r.between[i-len(r.daemons)]
}

// suffer carries out the faults. What one did is undone when it ends.
func (r *rig) suffer(ctx context.Context, faults []Fault) {
	var all sync.WaitGroup
	for _, kinds := range [][]Kind{{KillDaemon, StopDaemon, PowerLoss}, {FullDisk, SlowDisk}, {MoveClock}, {KillServer, StopServer}, {CutLink, DelayLink, DeafLink}} {
		all.Go(func() {
			for _, f := range faults {
				if slices.Contains(kinds, f.Kind) && pause(ctx, f.At-r.rec.now()) {
					r.one(ctx, f)
				}
			}
		})
	}
	all.Wait()
}

func (r *rig) one(ctx context.Context, f Fault) {
	e := Event{Begin: r.rec.now(), Op: OpFault, By: "faults", Answer: OK, Fault: f.Kind, On: f.On, Note: f.String()}
	switch f.Kind {
	case KillDaemon:
		r.daemons[f.On].kill()
		pause(ctx, f.For)
		r.daemons[f.On].resume()
	case StopDaemon:
		r.daemons[f.On].signal(syscall.SIGSTOP)
		pause(ctx, f.For)
		r.daemons[f.On].signal(syscall.SIGCONT)
	case KillServer:
		r.servers[f.On].Kill()
		pause(ctx, f.For)
		if err := r.servers[f.On].Resume(); err != nil {
			r.t.Error(err)
		}
	case StopServer:
		r.servers[f.On].signal(syscall.SIGSTOP)
		pause(ctx, f.For)
		r.servers[f.On].signal(syscall.SIGCONT)
	case MoveClock:
		r.clock.move(r.t, f.jump())
		pause(ctx, f.For)
		r.clock.move(r.t, 0)
	case PowerLoss:
		r.powerLoss(ctx, f)
	case FullDisk:
		r.disk.Full(true)
		pause(ctx, f.For)
		r.disk.Full(false)
	case SlowDisk:
		r.disk.Slow(slowness)
		pause(ctx, f.For)
		r.disk.Slow(0)
	case CutLink:
		r.link(f.On).Cut()
	case DelayLink:
		r.link(f.On).Intercept(func(sent bool) error {
			if !sent {
				pause(ctx, 20*time.Millisecond)
			}
			return nil
		})
		pause(ctx, f.For)
		r.link(f.On).Intercept(nil)
	case DeafLink:
		r.link(f.On).Muffle()
		pause(ctx, f.For)
		r.link(f.On).Cut()
	}
	r.rec.add(e)
}

// play runs the work of a seed under faults, and returns what was seen.
func play(t testing.TB, backend string, seed uint64, faults []Fault, length time.Duration) *History {
	t.Helper()
	r := newRig(t, backend, seed)
	r.rec.began = time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stop := r.begin(ctx)
	over := make(chan struct{})
	go func() { defer close(over); r.suffer(ctx, faults) }()
	pause(ctx, length)
	<-over
	stop()
	r.target.well.Store(true)
	r.well.Store(true)
	h := &History{Embedded: len(r.servers) == 0, Undoes: backend == "postgres" || len(r.foreign) > 0, Foreign: r.foreign}
	problems := r.drain(ctx)
	r.leave()
	r.all.Wait()
	final := r.look(ctx)
	final.Problems = append(problems, final.Problems...)
	final.Copied, problems = r.copied(ctx)
	final.Problems = append(final.Problems, problems...)
	for _, d := range r.daemons {
		final.Problems = append(final.Problems, d.problems()...)
	}
	r.rec.mu.Lock()
	defer r.rec.mu.Unlock()
	h.Events, h.Final = slices.Clone(r.rec.events), final
	return h
}

// queueInfo is what the API says of a queue.
type queueInfo struct {
	Queue   string
	Waiting struct{ All int }
	Leased  int
	Blocked int
	Dead    int
	Ledger  struct{ Published, Done, Dropped int }
}

// patience is how long the work may take to end after the last fault: leases of the dead
// last for 30 s, and each of what they held is tried in isolation.
const patience = 2 * time.Minute

// drain redrives the dead heads of keys until nothing waits and no plan runs.
func (r *rig) drain(ctx context.Context) (problems []string) {
	base := r.daemons[0].direct
	state := ""
	if !await(ctx, patience, func() bool {
		state = ""
		for _, queue := range []string{hooks, keyed, work} {
			var q queueInfo
			if a, note := r.rec.call(ctx, http.MethodGet, base+"/v1/queues/"+queue, nil, nil, &q); a != OK {
				state += queue + ": " + note + " "
				return false
			}
			if queue == keyed && q.Blocked > 0 && q.Dead > 0 {
				r.plan(ctx, "finisher", map[string]any{"action": "redrive", "filter": map[string]any{"queue": keyed}})
			}
			if q.Waiting.All > 0 {
				state += fmt.Sprintf("%s: %d wait, %d of them leased, %d blocked ", queue, q.Waiting.All, q.Leased, q.Blocked)
			}
		}
		var plans struct{ Items []PlanEnd }
		if a, _ := r.rec.call(ctx, http.MethodGet, base+"/v1/plans", nil, nil, &plans); a != OK {
			return false
		}
		for _, p := range plans.Items {
			if p.State == "paused" {
				r.steer(ctx, "finisher", p.ID, "resume")
			}
			if p.State == "running" || p.State == "paused" {
				state += "plan " + p.ID + " runs "
			}
		}
		if len(r.foreign) > 0 && state == "" {
			state = r.atSource(ctx)
		}
		return state == "" || !pause(ctx, 300*time.Millisecond)
	}) {
		problems = append(problems, "after "+patience.String()+" it has not ended: "+state)
	}
	return problems
}

// atSource tells what may still be at the source: what was acknowledged, and neither
// delivered nor dropped, and is no dead letter.
func (r *rig) atSource(ctx context.Context) string {
	dead := map[string]bool{} // or dropped by a plan
	get := func(path string, out any) {
		_, _ = r.rec.call(ctx, http.MethodGet, r.daemons[0].direct+path, nil, nil, out) // the next look may see more
	}
	for _, queue := range r.foreign {
		pages("/v1/dead-letters?limit=500&queue="+queue, get, func(l letter) { dead[l.ID] = true })
	}
	waits := map[string]bool{}
	for _, p := range r.plansOf(get) {
		for _, res := range p.Results {
			dead[res.ID] = dead[res.ID] || res.Outcome == Dropped
		}
	}
	r.rec.mu.Lock()
	defer r.rec.mu.Unlock()
	for i := range r.rec.events {
		switch e := &r.rec.events[i]; {
		case !slices.Contains(r.foreign, e.Queue):
		case e.Op == OpPublish && e.Answer == OK && !dead[e.ID]:
			waits[e.Label] = true
		}
	}
	for i := range r.rec.events {
		e := &r.rec.events[i]
		if slices.Contains(r.foreign, e.Queue) && (is(OpDeliver, Done)(e) || e.Op == OpDrop && e.Answer != Refused || dead[e.ID]) {
			delete(waits, e.Label)
		}
	}
	if len(waits) == 0 {
		return ""
	}
	return fmt.Sprintf("%d may be at the source ", len(waits))
}

// look reads what is there at the end.
func (r *rig) look(ctx context.Context) (f Final) {
	base := r.daemons[0].direct
	get := func(path string, out any) {
		if a, note := r.rec.call(ctx, http.MethodGet, base+path, nil, nil, out); a != OK {
			f.Problems = append(f.Problems, path+": "+note)
		}
	}
	f.Ledger = map[string]Ledger{}
	for _, queue := range []string{hooks, keyed, work} {
		var q queueInfo
		get("/v1/queues/"+queue, &q)
		f.Ledger[queue] = Ledger{Published: q.Ledger.Published, Done: q.Ledger.Done, Dropped: q.Ledger.Dropped, Dead: q.Dead, Waiting: q.Waiting.All}
	}
	f.Left = leftAt(get)
	f.Plans = r.plansOf(get)
	var verified struct {
		Queues []struct {
			Queue     string
			Balanced  bool
			Imbalance int
			Problems  []string
		}
	}
	get("/v1/verify?scan=true", &verified)
	for _, q := range verified.Queues {
		if !q.Balanced {
			f.Unbalanced = append(f.Unbalanced, fmt.Sprintf("%s: %d too many: %v", q.Queue, q.Imbalance, q.Problems))
		}
	}
	return f
}

// plansOf reads the plans with their results.
func (r *rig) plansOf(get func(path string, out any)) (all []PlanEnd) {
	pages("/v1/plans", get, func(p struct {
		ID, State, Problem string
		Done, Failed       int
		Request            struct{ Action string }
	}) {
		end := PlanEnd{ID: p.ID, Action: p.Request.Action, State: p.State, Problem: p.Problem, Done: p.Done, Failed: p.Failed}
		pages("/v1/plans/"+p.ID+"/results?limit=500", get, func(res PlanResult) { end.Results = append(end.Results, res) })
		all = append(all, end)
	})
	return all
}

// pages reads a list to its end.
func pages[T any](path string, get func(path string, out any), each func(T)) {
	for after := ""; ; {
		var list struct {
			Items []T
			Next  string
		}
		get(path+after, &list)
		for _, item := range list.Items {
			each(item)
		}
		if list.Next == "" {
			return
		}
		after = "&after=" + list.Next
	}
}

// seeded returns the seed of a run, from the environment or from the clock.
func seeded(t testing.TB) uint64 {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("REDRIVE_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("REDRIVE_SEED=%q is not a number", text)
		}
	}
	return seed
}

// rounds is how many runs a backend gets, and how long each of them is.
func rounds(t testing.TB) (n int, length time.Duration, proof bool) {
	t.Helper()
	text := os.Getenv("REDRIVE_PROOF_ROUNDS")
	if text == "" {
		return 1, 12 * time.Second, false
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("REDRIVE_PROOF_ROUNDS=%q is not a number of rounds", text)
	}
	return n, 2 * time.Minute, true
}

// TestHistoryKillNine has everybody at work while daemons, servers and connections fail,
// and judges the history. What fails is tried again with ever fewer faults.
func TestHistoryKillNine(t *testing.T) {
	for _, backend := range []string{"sqlite", onDisk, withClock, "postgres", "mariadb", "redis", "redislist", "nats", "rabbitmq", "kafka"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel() // mostly waits for leases of the dead to run out
			seed := seeded(t)
			n, length, proof := rounds(t)
			if !proof && slices.Contains([]string{withClock, "nats", "rabbitmq", "kafka"}, backend) {
				t.Skip("with REDRIVE_PROOF_ROUNDS set also on this backend")
			}
			for round := range n {
				l, made := oneRun(t, backend, seed+uint64(round), length)
				if !made {
					t.Skip("it was not played")
				}
				if proof {
					appendRun(t, l)
				}
				if t.Failed() {
					break
				}
			}
		})
	}
}

// oneRun plays one seed, judges it, and tells what it was. made is false where the backend
// cannot run here.
func oneRun(t *testing.T, backend string, seed uint64, length time.Duration) (l line, made bool) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 3))
	faults := Faults(random, rigOf(backend), length)
	var h *History
	var found []Violation
	tries := 0
	// try plays them; h is nil where nothing was played: a server may not start. A run that
	// went wrong in another way is judged all the same.
	try := func(faults []Fault) (fails bool) {
		tries++ // no name comes twice: testing would make it another with #, which is a comment to RabbitMQ
		h, found = nil, nil
		t.Run(fmt.Sprintf("run-%d-%d", seed, tries), func(t *testing.T) { h = play(t, backend, seed, faults, length) })
		if h != nil {
			found = Check(h)
		}
		return len(found) > 0
	}
	fails := try(faults)
	if h == nil {
		return l, false
	}
	l = line{backend: backend, seed: seed, rounds: 1}
	l.of(h, faults)
	l.lost, l.broken = count(found, "nothing acknowledged is lost"), len(found)
	if !fails {
		t.Logf("REDRIVE_SEED=%d: %s", seed, summary(h, faults))
		return l, true
	}
	t.Errorf("REDRIVE_SEED=%d: %d faults, %d violations", seed, len(faults), len(found))
	report(t, found)
	few := Shrink(faults, func(some []Fault) bool {
		fails := try(some)
		t.Logf("with %d faults: %d violations", len(some), len(found))
		if fails {
			report(t, found)
		}
		return fails
	}, shrinks(t))
	t.Errorf("REDRIVE_SEED=%d: the fewest faults that were found to do it, %d of %d: %v", seed, len(few), len(faults), few)
	return l, true
}

// shrinks tells whether to go on looking for the fewest faults: for so many runs as
// REDRIVE_SHRINK says, else 6; in long runs for half an hour. A run is not broken off.
func shrinks(t testing.TB) (more func() bool) {
	t.Helper()
	left := 6
	if text := os.Getenv("REDRIVE_SHRINK"); text != "" {
		var err error
		if left, err = strconv.Atoi(text); err != nil {
			t.Fatalf("REDRIVE_SHRINK=%q is not a number of runs", text)
		}
	} else if _, _, proof := rounds(t); proof {
		deadline := time.Now().Add(30 * time.Minute)
		return func() bool { return time.Now().Before(deadline) }
	}
	return func() bool { left--; return left >= 0 }
}

func report(t testing.TB, found []Violation) {
	t.Helper()
	const most = 2
	shown := map[string]int{}
	for i := range found {
		if shown[found[i].Promise]++; shown[found[i].Promise] <= most {
			t.Log(found[i].String())
		}
	}
	t.Log(shown)
}

func count(found []Violation, promise string) (n int) {
	for i := range found {
		if found[i].Promise == promise {
			n++
		}
	}
	return n
}

// summary tells how much was done.
func summary(h *History, faults []Fault) string {
	counts := map[string]int{}
	for i := range h.Events {
		e := &h.Events[i]
		counts[string(e.Op)+" "+string(e.Answer)]++
		if e.Outcome != "" && e.Answer == OK {
			counts[string(e.Op)+" as "+e.Outcome]++
		}
	}
	for _, f := range faults {
		counts["fault "+string(f.Kind)]++
	}
	for _, l := range h.Final.Left {
		counts["left "+l.State]++
	}
	var names []string
	for name, n := range counts {
		names = append(names, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
