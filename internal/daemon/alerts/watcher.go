// Package alerts tells people of trouble: rules over what the daemon knows, a state that is a record
// each, and receivers of their messages. One daemon of those on a store sends.
package alerts

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/lease"
	"github.com/redrive/redrive/internal/wire"
)

// How often a watcher works.
const (
	tickEvery   = 5 * time.Second // sends, and renews its lease
	lookEvery   = 15 * time.Second
	ledgerEvery = time.Minute // the ledger is part of a look
	beatEvery   = time.Minute
)

// Settings are what a configuration says of alerts.
type Settings struct {
	config.Alerts
	PublicURL, Environment string
}

// Options configures a [Watcher]. All fields are needed.
type Options struct {
	Store    driver.Store
	Instance string // names this process
	Version  string
	Logger   *slog.Logger
	// Settings returns the configuration in force.
	Settings func() Settings
	// Look collects the facts, with the ledger if that is asked for.
	Look func(ctx context.Context, ledger bool) (*Facts, error)
	// Here returns what this process knows without the store.
	Here func() Here
}

// Watcher looks for trouble and tells of it. It is safe for concurrent use.
type Watcher struct {
	o     Options
	lease lease.Lease
	build func(r *config.Receiver, version string) (sender, error)
	pulse func(a *config.Alerts, address, version string) (beat func(context.Context, string) error, err error)

	mu        sync.Mutex
	settings  Settings
	receivers []*receiver
	beat      *pulse // nil: none
	here      board  // what this process knows without the store; it sends that itself
	shared    board  // nil: another daemon sends
	flow      flow
	lookedAt  time.Time
	ledgerAt  time.Time
	beatAt    time.Time
	savedAt   time.Time // the look of which the record was written
	failed    bool      // the newest look
	rested    bool      // nobody gets alerts, and none are left
}

// New returns a watcher. It does nothing before Run.
func New(o Options) *Watcher {
	return &Watcher{
		o: o, build: newSender, pulse: newHeartbeat, here: make(board), flow: make(flow),
		lease: lease.Lease{Store: o.Store, Key: "alerts", Holder: o.Instance, Single: o.Store.Caps().Exclusive},
	}
}

// Run watches until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	defer w.lease.Release(ctx)
	for {
		w.step(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// step is what a watcher does at each tick.
func (w *Watcher) step(ctx context.Context) {
	w.configure()
	if len(w.receivers) == 0 {
		w.rest(ctx)
		return
	}
	w.rested = false
	now := time.Now()
	here := w.o.Here()
	w.set(func() {
		w.here.look(withoutStore(&here, now), now, func(string) bool { return true })
	})
	if here.StoreAway.IsZero() {
		w.lead(ctx, now)
	}
	w.send(ctx)
	w.save(ctx)
	w.heartbeat(ctx, now)
}

func (w *Watcher) set(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

// configure follows the configuration in force.
func (w *Watcher) configure() {
	s := w.o.Settings()
	if w.receivers != nil && reflect.DeepEqual(s, w.settings) {
		return
	}
	receivers := make([]*receiver, 0, len(s.Receivers))
	for i := range s.Receivers {
		same := slices.IndexFunc(w.receivers, func(r *receiver) bool { return reflect.DeepEqual(r.conf, s.Receivers[i]) })
		if same >= 0 {
			receivers = append(receivers, w.receivers[same])
			continue
		}
		receivers = append(receivers, newReceiver(&s.Receivers[i], func() (sender, error) { return w.build(&s.Receivers[i], w.o.Version) }))
	}
	var beat *pulse
	if !s.Heartbeat.IsZero() {
		beat = &pulse{new: func(address string) (func(context.Context, string) error, error) {
			return w.pulse(&s.Alerts, address, w.o.Version)
		}, address: s.Heartbeat}
	}
	w.set(func() {
		w.settings, w.receivers, w.beat = s, receivers, beat
		w.here.only(receivers)
		w.shared.only(receivers)
	})
}

// rest is a step without receivers: nothing is watched, so nothing fires. Another daemon may have some.
func (w *Watcher) rest(ctx context.Context) {
	w.set(func() {
		w.shared = nil
		clear(w.here)
	})
	if w.rested {
		return
	}
	records, err := w.o.Store.ListRecords(ctx, space, "", 1)
	if err == nil && len(records) > 0 {
		var ours bool
		if ours, err = w.lease.Hold(ctx); err == nil && ours {
			err = w.wipe(ctx)
		}
	}
	w.lease.Release(ctx)
	w.trouble(ctx, "alerts: the records cannot be removed", err)
	w.rested = err == nil
}

// lead looks at the store if it is ours to do so.
func (w *Watcher) lead(ctx context.Context, now time.Time) {
	ours, err := w.lease.Hold(ctx)
	if err != nil || !ours {
		w.set(func() { w.shared, w.failed = nil, err != nil })
		w.trouble(ctx, "alerts: the lease cannot be taken", err)
		return
	}
	if w.shared == nil {
		shared, err := w.load(ctx, now)
		if err != nil {
			w.trouble(ctx, "alerts: the records cannot be read", err)
			return
		}
		shared.only(w.receivers)
		w.set(func() { w.shared, w.lookedAt = shared, time.Time{} })
	}
	if now.Sub(w.lookedAt) < lookEvery {
		return
	}
	ledger := now.Sub(w.ledgerAt) >= ledgerEvery
	facts, err := w.o.Look(ctx, ledger)
	if err != nil {
		w.set(func() { w.failed = true })
		w.trouble(ctx, "alerts: no look at the store", err)
		return
	}
	oldest := w.settings.Oldest.Std()
	if oldest == 0 {
		oldest = config.DefaultOldest
	}
	conditions, err := w.about(facts, oldest)
	if err != nil {
		w.set(func() { w.failed = true })
		w.trouble(ctx, "alerts: no look at the causes", err)
		return
	}
	conditions = append(conditions, w.unsent(now)...)
	w.set(func() {
		w.shared.look(conditions, now, func(subject string) bool { return subject != ofLedger || facts.Ledger != nil })
		w.lookedAt, w.failed = now, false
		if ledger {
			w.ledgerAt = now
		}
	})
}

func (w *Watcher) trouble(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		w.o.Logger.LogAttrs(ctx, slog.LevelWarn, what, slog.Any("error", err))
	}
}

// send sends what is due, to all receivers at once.
func (w *Watcher) send(ctx context.Context) {
	if w.shared != nil {
		if ours, err := w.lease.Hold(ctx); err != nil || !ours { // a look may have taken long
			w.trouble(ctx, "alerts: the lease cannot be renewed", err)
			w.set(func() { w.shared = nil })
		}
	}
	now := time.Now()
	type letter struct { // all are written before one is sent: sending changes what they are made of
		to   *receiver
		by   sender
		err  error // there is no sender
		news news
		text *message
	}
	var letters []*letter
	for _, r := range w.receivers {
		if now.Before(r.next) {
			continue
		}
		var n news
		for _, b := range []board{w.here, w.shared} {
			of := b.due(r.name, r.repeats(), now)
			n.firing, n.over = append(n.firing, of.firing...), append(n.over, of.over...)
		}
		if n.none() {
			continue
		}
		l := &letter{to: r, news: n, text: newMessage(&n, w.settings.PublicURL, w.settings.Environment, now)}
		w.set(func() { l.by, l.err = r.ready() })
		letters = append(letters, l)
	}
	var sent sync.WaitGroup
	for _, l := range letters {
		sent.Go(func() {
			err := l.err
			if err == nil {
				err = w.isolated(ctx, func() error { return l.by.send(ctx, l.text) })
			}
			w.set(func() { l.to.note(err, now); w.savedAt = time.Time{} })
			w.logged(ctx, l.to, err)
			if err == nil {
				w.set(func() { l.news.tell(l.to.name, now) })
			}
		})
	}
	sent.Wait()
}

// isolated makes a panic of a receiver an error: it runs on a goroutine of its own, where nobody else would.
func (w *Watcher) isolated(ctx context.Context, send func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = errors.New("panic: the log says more")
			w.o.Logger.LogAttrs(ctx, slog.LevelError, "a receiver of alerts panicked", slog.Any("panic", v), slog.String("stack", string(debug.Stack())))
		}
	}()
	return send()
}

// logged tells of the first message that a receiver did not take, and of the first that it took again.
func (w *Watcher) logged(ctx context.Context, r *receiver, err error) {
	switch {
	case err != nil && r.tries == 1:
		w.o.Logger.LogAttrs(ctx, slog.LevelError, "an alert could not be sent", slog.String("receiver", r.name), slog.Any("error", err))
	case err != nil:
		w.o.Logger.LogAttrs(ctx, slog.LevelDebug, "an alert could not be sent", slog.String("receiver", r.name), slog.Any("error", err))
	case r.back:
		w.o.Logger.LogAttrs(ctx, slog.LevelWarn, "alerts are sent again", slog.String("receiver", r.name))
	}
}

// unsent says which receivers take nothing, for the others.
func (w *Watcher) unsent(now time.Time) (all []condition) {
	for _, r := range w.receivers {
		if r.failing.IsZero() {
			continue
		}
		all = append(all, condition{subject: ofReceiver + "/" + r.name, rule: wire.AlertUnsent, begins: now.Sub(r.failing) >= unsentAfter,
			numbers: map[string]int64{"tries": int64(r.tries)}, next: "redrive alerts --test", path: "/ui/",
			summary: "no alert could be sent to " + r.name + " since " + clock(r.failing) + ": " + printable(r.err)})
	}
	return all
}

// heartbeat tells whoever waits for it that alerts are watched and can be sent.
func (w *Watcher) heartbeat(ctx context.Context, now time.Time) {
	if w.beat == nil || w.shared == nil || w.failed || now.Sub(w.beatAt) < beatEvery {
		return
	}
	working := false
	for _, r := range w.receivers {
		working = working || r.failing.IsZero()
	}
	if !working {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	err := w.beat.post(ctx, "alert-heartbeat-"+w.o.Instance)
	if !w.beat.failed {
		w.trouble(ctx, "alerts: no heartbeat", err)
	}
	if w.beat.failed = err != nil; err == nil {
		w.beatAt = now
	}
}

// Test sends a test message to each receiver, and returns what became of each.
func (w *Watcher) Test(ctx context.Context) []wire.AlertTested {
	w.mu.Lock()
	receivers, environment := w.receivers, w.settings.Environment
	w.mu.Unlock()
	all := make([]wire.AlertTested, len(receivers))
	m := testMessage(environment, w.o.Instance, time.Now())
	var sent sync.WaitGroup
	for i, r := range receivers {
		sent.Go(func() {
			all[i] = wire.AlertTested{Name: r.name, Kind: r.kind}
			to, err := r.new() // one of its own, so that no alert waits for it
			if err == nil {
				err = w.isolated(ctx, func() error { return to.send(ctx, m) })
			}
			if err != nil {
				all[i].Error = err.Error()
			}
		})
	}
	sent.Wait()
	return all
}
