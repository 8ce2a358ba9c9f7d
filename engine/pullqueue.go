package engine

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// pullQueue is what the workers of one queue share.
type pullQueue struct {
	gateSet
	unknown unhandled

	mu           sync.Mutex
	changed      chan struct{} // closed when the queue changed
	polls        int
	refused      string
	turn         int  // over laneTurns
	suspects     bool // something may be claimed in isolation
	lastIsolated bool // the newest claim was of a suspect
	sweepAt      time.Time
	isolateFor   string // the worker that is kept from claiming until it is idle
	isolateAt    time.Time
	asked        map[string]time.Time // kinds that workers asked for, and when
	askedAny     time.Time            // when one asked for any
	askedAt      time.Time            // when one asked
	strayAt      time.Time            // the next look for kinds that nobody asks for
	given        *Policies            // the newest of PullOptions.Policies
	policies     *policySet           // of given
}

// laneTurns is the order in which single messages are taken from the lanes: by their
// weights, spread.
var laneTurns = []redrive.Lane{redrive.LaneFresh, redrive.LaneFresh, redrive.LaneRetry, redrive.LaneFresh, redrive.LaneFresh, redrive.LaneRedrive, redrive.LaneFresh, redrive.LaneFresh, redrive.LaneRetry, redrive.LaneFresh, redrive.LaneFresh}

// queue returns the state of a queue, made on demand.
func (p *Puller) queue(name string) *pullQueue {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.queues[name]
	if q != nil {
		return q
	}
	q = &pullQueue{changed: make(chan struct{}), suspects: true}
	q.init(name, BreakerOptions{}, "")
	q.breaker.onChange = func(s BreakerStatus) {
		p.e.observe(&Observation{Occasion: OnBreaker, Queue: name, Text: s.State})
		p.e.log.LogAttrs(p.e.base, slog.LevelWarn, "breaker "+s.State, slog.String("queue", name), slog.String("kind", s.Key), slog.String("reason", s.Reason))
	}
	p.queues[name] = q
	p.hub.add(name, q)
	return q
}

// notify implements watcher.
func (q *pullQueue) notify(ev *driver.Event, _ time.Time) {
	q.mu.Lock()
	q.suspects = ev.Suspects
	q.mu.Unlock()
	q.wake()
}

// wake lets claims that wait look again.
func (q *pullQueue) wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	close(q.changed)
	q.changed = make(chan struct{})
}

func (q *pullQueue) change() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changed
}

func (q *pullQueue) polling(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.polls += n
}

// nextDue asks the store when to look again. What it says is due and was not found is
// not for this worker: the pause before the next look grows.
func (q *pullQueue) nextDue(ctx context.Context, store driver.Store, now time.Time, pause *time.Duration) (time.Time, error) {
	events, err := store.Wait(ctx, []driver.Watch{{Queue: q.queue}})
	if err != nil {
		return time.Time{}, err
	}
	if len(events) == 0 || events[0].NextDueIn == driver.Never {
		return now.Add(MaxPullWait), nil
	}
	q.mu.Lock()
	q.suspects = events[0].Suspects
	q.mu.Unlock()
	if events[0].NextDueIn > 0 {
		return now.Add(events[0].NextDueIn), nil
	}
	*pause = min(2**pause, claimRetry)
	return now.Add(*pause), nil
}

// claim takes what is due now. When it returns nothing it may say when to look again.
func (p *Puller) claim(q *pullQueue, r *PullRequest, now time.Time) (ds []redrive.Delivery, again time.Time, err error) {
	holds, isolated := p.holds(r.Worker)
	if isolated {
		return nil, now.Add(claimRetry), nil
	}
	isolate, wait := q.isolatedTurn(r.Worker, holds, now)
	if wait {
		return nil, now.Add(claimRetry), nil
	}
	if isolate {
		if ds, err = p.claimPart(q, r, driver.ClaimRequest{Isolated: true, Max: 1}, now); err != nil || len(ds) > 0 {
			return ds, again, err
		}
	}
	order := q.lanes()
	left, bytes := r.Max, 0
	for round := 0; round < 2 && left > 0; round++ {
		for _, lane := range order {
			for want := share(lane, r.Max, round, left); want > 0 && left > 0 && bytes < pullBytes; {
				n := min(want, chunkOf(len(ds), bytes))
				got, err := p.claimLane(q, r, lane, n, now, &again)
				if err != nil {
					if len(ds) > 0 { // what was claimed is delivered
						return ds, again, nil
					}
					return nil, again, err
				}
				ds = append(ds, got...)
				left -= len(got)
				want -= len(got)
				for i := range got {
					bytes += got[i].Size()
				}
				if len(got) < n {
					break
				}
			}
		}
	}
	return ds, again, nil
}

// share is how much of a claim a lane gets in a round: by the weights first, then all
// that is left.
func share(l redrive.Lane, total, round, left int) int {
	if round > 0 {
		return left
	}
	return min((total*laneWeight[l]+len(laneTurns)-1)/len(laneTurns), left)
}

// chunkOf is how many messages to read at once, by the size of those that were read.
func chunkOf(n, bytes int) int {
	if n == 0 {
		return pullChunk
	}
	return min(max((pullBytes-bytes)/max(bytes/n, 1), 1), MaxPull)
}

// lanes returns the lanes in the order of this claim.
func (q *pullQueue) lanes() []redrive.Lane {
	q.mu.Lock()
	defer q.mu.Unlock()
	first := laneTurns[q.turn%len(laneTurns)]
	q.turn++
	order := []redrive.Lane{first}
	for l := range redrive.LaneFresh + redrive.Lane(driver.Lanes) {
		if l != first {
			order = append(order, l)
		}
	}
	return order
}

// isolatedTurn says whether to look for a suspect first, or that this worker has to wait
// until it is idle, so that a suspect can be isolated in it. Suspects alternate with
// others.
func (q *pullQueue) isolatedTurn(worker string, holds int, now time.Time) (isolate, wait bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case !q.suspects:
		q.isolateFor, q.isolateAt = "", time.Time{}
		return false, false
	case holds == 0:
		q.lastIsolated = !q.lastIsolated
		if q.isolateFor == worker {
			q.isolateFor, q.isolateAt, q.lastIsolated = "", time.Time{}, true
		}
		return q.lastIsolated, false
	case q.isolateAt.IsZero(): // since when a suspect waits
		q.isolateAt = now
	case now.Sub(q.isolateAt) > 2*pullPatience: // the worker does not become idle
		q.isolateFor, q.isolateAt = "", now
	case now.Sub(q.isolateAt) > pullPatience && q.isolateFor == "":
		q.isolateFor = worker
	}
	return false, q.isolateFor == worker
}

// claimLane asks the gates and claims from one lane.
func (p *Puller) claimLane(q *pullQueue, r *PullRequest, lane redrive.Lane, n int, now time.Time, again *time.Time) ([]redrive.Delivery, error) {
	if p.o.Breaker != nil {
		q.breaker.configure(p.o.Breaker(q.queue), "")
	}
	g := new(grants)
	granted := q.reserve(g, &noGates, now, lane, n)
	q.mu.Lock()
	q.refused = g.reason
	q.mu.Unlock()
	if granted < n && !g.until.IsZero() && (again.IsZero() || g.until.Before(*again)) {
		*again = g.until
	}
	if granted == 0 {
		return nil, p.sweepExpired(q, now)
	}
	req := driver.ClaimRequest{Lane: lane, Max: granted, ExceptKinds: g.exceptKinds, ExceptIDs: g.exceptIDs}
	var ok bool
	if req.Kinds, ok = narrowed(r.Kinds, g.kinds); !ok {
		q.giveBack(g, now, granted)
		return nil, nil
	}
	return q.claimGranted(g, granted, func() ([]redrive.Delivery, error) { return p.claimPart(q, r, req, now) })
}

// narrowed is what both lists name; an empty one names all. It reports false if that
// is nothing.
func narrowed(asked, allowed []string) ([]string, bool) {
	switch {
	case len(allowed) == 0:
		return asked, true
	case len(asked) == 0:
		return allowed, true
	}
	both := slices.DeleteFunc(slices.Clone(asked), func(kind string) bool { return !slices.Contains(allowed, kind) })
	return both, len(both) > 0
}

// claimPart claims, and ends what must not be tried: it expired, or too many processes
// died of it.
func (p *Puller) claimPart(q *pullQueue, r *PullRequest, req driver.ClaimRequest, now time.Time) ([]redrive.Delivery, error) {
	req.Queue, req.Lease, req.Instance = q.queue, r.Lease, p.e.opts.Instance
	if req.Kinds == nil {
		req.Kinds = r.Kinds
	}
	if r.Worker != "" {
		req.Instance = r.Worker
	}
	claimed, err := p.store.Claim(p.e.run, req)
	if err != nil {
		if errors.Is(err, context.Canceled) {
			err = redrive.ErrClosed
		}
		return nil, &redrive.Error{Op: "claim", Queue: q.queue, Err: err}
	}
	fit, ended := p.split(q, claimed, now)
	if err := p.end(ended); err != nil {
		return nil, err
	}
	if len(fit) > 0 {
		p.hold(q, r, fit, now)
		p.e.observe(&Observation{Occasion: OnClaim, Queue: q.queue, Count: len(fit)})
	}
	return fit, nil
}

// due reports whether what is done every so often is due, at being the next time, and notes that
// it is done now.
func (q *pullQueue) due(at *time.Time, now time.Time, every time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now.Before(*at) {
		return false
	}
	*at = now.Add(every)
	return true
}

// sweepExpired ends what expired while a gate lets nothing be claimed.
func (p *Puller) sweepExpired(q *pullQueue, now time.Time) error {
	if !q.due(&q.sweepAt, now, expireEvery) {
		return nil
	}
	ds, err := p.store.Claim(p.e.run, driver.ClaimRequest{Queue: q.queue, Expired: true, Max: p.store.Caps().Most(expireBatch), Lease: DefaultLease, Instance: p.e.opts.Instance})
	if err != nil {
		return &redrive.Error{Op: "claim", Queue: q.queue, Err: err}
	}
	fit, ended := p.split(q, ds, now)
	for i := range fit {
		ended = append(ended, driver.Settlement{Receipt: fit[i].Receipt, Outcome: redrive.OutcomeRelease})
	}
	return p.end(ended)
}

// PullStatus is what pull workers do with a queue.
type PullStatus struct {
	Queue    string
	Polls    int // claims that wait
	Held     int // messages in flight at workers
	Workers  int // that named themselves and hold something
	Breakers []BreakerStatus
	Paused   []PauseStatus
	Refused  string // why nothing can be claimed now
	// AllRefusedSince is that of QueueStatus.
	AllRefusedSince time.Time
	// Unhandled is the kinds of the last day that nobody asks for; of many only some.
	Unhandled []UnhandledKind
}

// Status returns what workers do, for each queue that was pulled from.
func (p *Puller) Status() []PullStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	all := make([]PullStatus, 0, len(p.queues))
	workers := make(map[redrive.Ref]struct{})
	at := make(map[*pullQueue]int, len(p.queues))
	for name, q := range p.queues {
		q.mu.Lock()
		at[q] = len(all)
		all = append(all, PullStatus{Queue: name, Polls: q.polls, Breakers: q.breaker.states(), Paused: q.pauses.status(), Refused: q.refused,
			AllRefusedSince: q.breaker.allRefusedSince(now)})
		if now.Sub(q.askedAny) >= kindsKeep {
			all[at[q]].Unhandled = q.unknown.list(slices.Collect(maps.Keys(q.asked)), now)
		}
		q.mu.Unlock()
	}
	for _, one := range p.held {
		s := &all[at[one.q]]
		s.Held++
		if name := (redrive.Ref{Queue: s.Queue, ID: one.worker}); one.worker != "" {
			if _, seen := workers[name]; !seen {
				workers[name] = struct{}{}
				s.Workers++
			}
		}
	}
	slices.SortFunc(all, func(a, b PullStatus) int { return strings.Compare(a.Queue, b.Queue) })
	return all
}

// Pause stops delivering messages of a kind, or of the whole queue if kind is empty,
// for d or until it is resumed if d is 0.
func (p *Puller) Pause(queue, kind, reason string, d time.Duration) {
	p.queue(queue).pauses.pause(time.Now(), kind, reason, d, false)
	p.e.observe(&Observation{Occasion: OnPaused, Queue: queue, Text: reason})
}

// Resume ends a pause.
func (p *Puller) Resume(queue, kind string) {
	q := p.queue(queue)
	q.pauses.resume(kind)
	q.wake()
}
