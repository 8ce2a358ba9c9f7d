package daemon

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/wire"
)

// listQueues lists what the configuration names and what holds or held messages, in pages where a limit
// is given.
func (a *app) listQueues(w http.ResponseWriter, r *http.Request, who *caller) error {
	v, err := parameters(r, pageOf...)
	if err != nil {
		return err
	}
	limit, err := parseLimit(v)
	if err != nil {
		return err
	}
	after := v.Get("after")
	if after != "" {
		if err := driver.CheckQueue(after); err != nil {
			return err
		}
	}
	list := wire.List[wire.Queue]{Complete: true}
	list.Items, list.Next, err = a.queuesAfter(r.Context(), who.sees, after, limit)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, list)
}

// allQueues describes the queues that are wanted, in the order of their names.
func (a *app) allQueues(ctx context.Context, wanted func(queue string) bool) ([]wire.Queue, error) {
	items, _, err := a.queuesAfter(ctx, wanted, "", 0)
	return items, err
}

// queuesAfter is allQueues for a page: those after a name, at most limit if that is not 0, and the name
// that the next page comes after, if there is one.
func (a *app) queuesAfter(ctx context.Context, wanted func(queue string) bool, after string, limit int) (items []wire.Queue, next string, err error) {
	counts, err := a.store.Counts(ctx)
	if err != nil {
		return nil, "", err
	}
	h, err := a.holding(ctx)
	if err != nil {
		return nil, "", err
	}
	seen := make(map[string]bool)
	for i := range counts {
		seen[counts[i].Queue] = true
	}
	if a.conf() != nil {
		for name := range a.conf().Queues {
			if !seen[name] {
				counts = append(counts, driver.Counts{Queue: name})
			}
		}
	}
	counts = slices.DeleteFunc(counts, func(c driver.Counts) bool { return c.Queue <= after || !wanted(c.Queue) })
	slices.SortFunc(counts, func(x, y driver.Counts) int { return strings.Compare(x.Queue, y.Queue) })
	if limit > 0 && len(counts) > limit {
		counts = counts[:limit]
		next = counts[limit-1].Queue
	}
	status := a.status()
	items = make([]wire.Queue, len(counts))
	for i := range counts {
		items[i] = a.describe(&counts[i], &status, &h)
	}
	return items, next, nil
}

func (a *app) showQueue(w http.ResponseWriter, r *http.Request, _ *caller) error {
	queue := r.PathValue("queue")
	counts, err := a.existing(r, queue)
	if err != nil {
		return err
	}
	h, err := a.holding(r.Context())
	if err != nil {
		return err
	}
	status := a.status()
	return writeJSON(w, http.StatusOK, a.describe(counts, &status, &h))
}

// existing returns the counts of a queue that is configured or holds or held
// messages.
func (a *app) existing(r *http.Request, queue string) (*driver.Counts, error) {
	if err := driver.CheckQueue(queue); err != nil {
		return nil, err
	}
	counts, err := a.store.Counts(r.Context(), queue)
	if err != nil {
		return nil, err
	}
	if len(counts) > 0 && counts[0].Ledger.Entered() > 0 {
		return &counts[0], nil
	}
	if a.conf() != nil {
		if _, ok := a.conf().Queues[queue]; ok {
			return &driver.Counts{Queue: queue}, nil
		}
	}
	return nil, a.unknownQueue(queue)
}

// polls is when somebody last waited for a message by its id, by queue. Its zero value is
// ready.
type polls struct {
	mu sync.Mutex
	at map[string]time.Time
}

// maxPolls bounds the names, which callers choose.
const maxPolls = 10_000

func (p *polls) note(queue string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == nil || len(p.at) >= maxPolls {
		p.at = make(map[string]time.Time)
	}
	p.at[queue] = now
}

func (p *polls) last(queue string) *time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.at[queue]
	if !ok {
		return nil
	}
	at = at.UTC()
	return &at
}

// working is who works on a queue in this process.
type working struct {
	engine map[string]engine.QueueStatus
	pull   map[string]engine.PullStatus
}

// status returns what the engine and pull workers are doing, by queue.
func (a *app) status() working {
	all := working{make(map[string]engine.QueueStatus), make(map[string]engine.PullStatus)}
	if a.engine == nil {
		return all
	}
	for _, s := range a.engine.Status() {
		all.engine[s.Queue] = s
	}
	for _, s := range a.pull.Status() {
		all.pull[s.Queue] = s
	}
	return all
}

func (a *app) describe(c *driver.Counts, status *working, h *holding) wire.Queue {
	var holds []engine.Hold
	q := wire.QueueOf(c)
	if a.conf() != nil {
		_, q.Configured = a.conf().Queues[c.Queue]
	}
	q.Deliver = a.targets.of(c.Queue)
	q.PolledAt = a.polls.last(c.Queue)
	if a.backlog != nil {
		level, _ := a.backlog.Level(c.Queue)
		q.Level = level.String()
	}
	if src := a.sources.of(c.Queue); src != nil {
		q.Source = a.ended.of(c.Queue).wire(src.Caps().DeadLetters)
	}
	if s, ok := status.engine[c.Queue]; ok {
		q.Engine, holds = wire.EngineOf(&s), s.Holds
		signPauses(h.pauses[c.Queue], q.Engine.Paused)
		a.hideReasons(c.Queue, &q.Engine.Refused, q.Engine.Breakers, q.Engine.Paused)
	}
	if s, ok := status.pull[c.Queue]; ok {
		q.Pull = wire.PullOf(&s)
		signPauses(h.pauses[c.Queue], q.Pull.Paused)
		a.hideReasons(c.Queue, &q.Pull.Refused, q.Pull.Breakers, q.Pull.Paused)
	}
	q.HeldBy = []wire.Hold{}
	for _, one := range a.heldBy(h, &q, holds) {
		one.Detail = a.shownText(c.Queue, one.Detail)
		q.HeldBy = append(q.HeldBy, one)
	}
	return q
}

// hideReasons masks why a target was given a rest: the text is an error's.
func (a *app) hideReasons(queue string, refused *string, breakers []wire.Breaker, paused []wire.Paused) {
	*refused = a.shownText(queue, *refused)
	for i := range breakers {
		breakers[i].Reason = a.shownText(queue, breakers[i].Reason)
	}
	for i := range paused {
		paused[i].Reason = a.shownText(queue, paused[i].Reason)
	}
}

// consumed refuses to pause what nobody can consume here.
func (a *app) consumed(r *http.Request, queue string) error {
	if a.engine == nil {
		return notHere("consumer")
	}
	_, err := a.existing(r, queue)
	return err
}

func (a *app) pauseQueue(w http.ResponseWriter, r *http.Request, who *caller) error {
	queue := r.PathValue("queue")
	req := wire.PauseRequest{Reason: "by " + who.name}
	if err := readJSON(w, r, 64<<10, &req); err != nil {
		return err
	}
	if req.For < 0 || len(req.Reason) > 1024 {
		return bad("for is negative or the reason longer than 1024 bytes", "")
	}
	if err := a.consumed(r, queue); err != nil {
		return err
	}
	err := a.audited(r, who, wire.AuditEntry{Action: "pause", Queue: queue, Note: req.Reason}, func(*wire.AuditEntry) error {
		return a.pauses.set(r.Context(), queue, req.Target, req.Reason, who.name, req.For.Std())
	})
	if err != nil {
		return err
	}
	a.log.LogAttrs(r.Context(), slog.LevelInfo, "queue paused", slog.String("queue", queue), slog.String("target", req.Target),
		slog.String("reason", req.Reason), slog.Duration("for", req.For.Std()), slog.String("actor", who.name))
	return a.showQueue(w, r, who)
}

func (a *app) resumeQueue(w http.ResponseWriter, r *http.Request, who *caller) error {
	queue := r.PathValue("queue")
	var req wire.PauseRequest
	if err := readJSON(w, r, 64<<10, &req); err != nil {
		return err
	}
	if err := a.consumed(r, queue); err != nil {
		return err
	}
	err := a.audited(r, who, wire.AuditEntry{Action: "resume", Queue: queue}, func(*wire.AuditEntry) error {
		return a.pauses.end(r.Context(), queue, req.Target)
	})
	if err != nil {
		return err
	}
	a.log.LogAttrs(r.Context(), slog.LevelInfo, "queue resumed", slog.String("queue", queue), slog.String("target", req.Target), slog.String("actor", who.name))
	return a.showQueue(w, r, who)
}

// probeStore tells what the settings of the store promise, and how the daemon's machine stands.
func (a *app) probeStore(w http.ResponseWriter, r *http.Request, who *caller) error {
	if err := who.confine(""); err != nil {
		return err
	}
	list := wire.List[wire.Finding]{Items: a.tls.findings(time.Now()), Complete: true}
	for _, v := range a.store.Probe(r.Context()) {
		list.Items = append(list.Items, wire.Finding{Level: v.Level.String(), Setting: v.Setting, Value: v.Value, Promise: v.Promise, Hint: v.Hint})
	}
	list.Items = append(list.Items, a.backupFinding(time.Now())...)
	list.Items = append(list.Items, a.machineFindings(r.Context())...)
	refused, err := a.refusedConfigurations(r.Context(), who)
	if err != nil {
		return err
	}
	list.Items = append(list.Items, refused...)
	return writeJSON(w, http.StatusOK, list)
}
