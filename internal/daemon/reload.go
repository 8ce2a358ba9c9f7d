package daemon

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
)

// A file is read when its folder was quiet for settle, as editors write in steps, and at
// the latest after settleMost: the folder may hold files that change all the time, such
// as a store or a log.
const (
	settle     = 100 * time.Millisecond
	settleMost = 500 * time.Millisecond
)

// watch reloads the configuration when its file changes, and on SIGHUP, until ctx ends.
// It watches the folder, because editors and orchestrators replace the file.
func (s *Server) watch(ctx context.Context) error {
	if s.o.Reload == nil {
		return nil
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	var events chan fsnotify.Event
	var faults chan error
	if s.o.Watch != "" {
		w, err := fsnotify.NewWatcher()
		if err == nil {
			defer w.Close() //nolint:errcheck // nothing was written
			if err = w.Add(filepath.Dir(s.o.Watch)); err == nil {
				events, faults = w.Events, w.Errors
			}
		}
		if err != nil {
			s.log.LogAttrs(ctx, slog.LevelWarn, "configuration file is not watched: send SIGHUP after a change", slog.Any("error", err))
		}
	}
	seen := ""
	quiet := time.NewTimer(settle) // what changed before we watched
	defer quiet.Stop()
	var first time.Time // of the events that were not followed yet
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangup:
			seen = fingerprint(s.o.Watch)
			s.reload(ctx, "SIGHUP")
		case <-events:
			if first.IsZero() {
				first = time.Now()
			}
			quiet.Reset(max(min(settle, time.Until(first.Add(settleMost))), 0))
		case err := <-faults:
			s.log.LogAttrs(ctx, slog.LevelWarn, "watching the configuration", slog.Any("error", err))
			quiet.Reset(settle)
		case <-quiet.C:
			first = time.Time{}
			if now := fingerprint(s.o.Watch); now != seen {
				seen = now
				s.reload(ctx, "file")
			}
		}
	}
}

// fingerprint tells versions of a file apart; one that cannot be read has none.
func fingerprint(path string) string {
	if path == "" {
		return ""
	}
	b, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return "unreadable"
	}
	sum := sha256.Sum256(b)
	return string(sum[:])
}

// reload puts the configuration as it is now into force, or says why not.
func (s *Server) reload(ctx context.Context, why string) {
	err := s.replace(ctx)
	if err == nil {
		s.app.refused.Store(nil)
		return
	}
	s.log.LogAttrs(ctx, slog.LevelError, "configuration reload failed: previous configuration stays active", slog.String("on", why), slog.Any("error", err))
	refused := &refusal{why: err.Error(), since: time.Now().UTC()}
	if before := s.app.refused.Load(); before != nil {
		refused.since = before.since
	}
	s.app.refused.Store(refused)
}

// refusal is why the newest configuration is not in force, and since when one is refused.
type refusal struct {
	why   string
	since time.Time
}

// replace reads, checks and swaps the configuration, all or nothing but for the tokens.
func (s *Server) replace(ctx context.Context) error {
	cfg, err := s.o.Reload()
	if err != nil {
		return err
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	old := s.app.live.Load()
	next, err := newLive(cfg)
	if err != nil {
		return err
	}
	if next.hash == old.hash && reflect.DeepEqual(cfg, old.config) {
		s.log.LogAttrs(ctx, slog.LevelInfo, "configuration unchanged", slog.String("hash", next.hash))
		return nil
	}
	if old, err = s.replaceTokens(old, cfg); err != nil {
		return err
	}
	if fixed := needRestart(old.config, cfg); len(fixed) > 0 {
		return &redrive.Error{Op: "reload", Err: fmt.Errorf("a restart is needed for %s", strings.Join(fixed, ", ")), Hint: "restart the daemon, or take these changes back"}
	}
	if err := checkListen(cfg, s.o.Listeners...); err != nil {
		return err
	}
	changes, err := s.changes(old.config, cfg)
	if err != nil {
		return err
	}
	for _, c := range changes {
		if c.settings == nil {
			continue
		}
		if err := s.app.store.Configure(ctx, c.queue, *c.settings); err != nil {
			return fmt.Errorf("queue %s: %w", c.queue, err)
		}
	}
	s.succeed(old, next)
	s.app.metrics.SetQueues(slices.Collect(maps.Keys(cfg.Queues)))
	var errs []error
	for _, c := range changes {
		err := s.apply(&c)
		if err == nil && c.target {
			err = s.retryNow(ctx, c.queue)
		}
		errs = append(errs, err)
	}
	s.log.LogAttrs(ctx, slog.LevelInfo, "configuration reloaded", slog.String("hash", next.hash), slog.String("before", old.hash), slog.Int("changed_queues", len(changes)))
	return errors.Join(errs...)
}

// replaceTokens puts changed tokens into force: a revocation waits neither for a store that is
// away nor for somebody who takes back another change, which is refused.
func (s *Server) replaceTokens(old *live, cfg *config.Config) (*live, error) {
	if len(old.config.Tokens) == 0 || len(cfg.Tokens) == 0 || reflect.DeepEqual(old.config.Tokens, cfg.Tokens) {
		return old, nil
	}
	changed := *old.config
	changed.Tokens = cfg.Tokens
	next, err := newLive(&changed)
	if err != nil {
		return nil, err
	}
	s.succeed(old, next)
	return next, nil
}

// succeed puts a configuration into force.
func (s *Server) succeed(old, next *live) {
	ended := next.succeed(old)
	s.app.live.Store(next)
	for _, o := range ended { // who is refused from now on does not go on either
		o.end(o.why)
	}
}

// liveKeys are the parts of a configuration that can change while the daemon runs.
var liveKeys = []string{"queues", "policies", "tokens", "retention", "mask", "alerts"}

// needRestart names what differs and cannot be changed while the daemon runs.
func needRestart(old, cfg *config.Config) (fixed []string) {
	before, after := reflect.ValueOf(*old), reflect.ValueOf(*cfg)
	for i := range before.NumField() {
		name, _, _ := strings.Cut(before.Type().Field(i).Tag.Get("yaml"), ",")
		if !slices.Contains(liveKeys, name) && !reflect.DeepEqual(before.Field(i).Interface(), after.Field(i).Interface()) {
			fixed = append(fixed, name)
		}
	}
	slices.Sort(fixed)
	for _, name := range slices.Sorted(maps.Keys(union(old.Queues, cfg.Queues))) {
		a, b := orEmpty(old.Queues[name]), orEmpty(cfg.Queues[name])
		if a.Source != b.Source || a.Source != "" && a.DeadLetters != b.DeadLetters {
			fixed = append(fixed, "queues."+name+".source")
		}
		if (a.Guard != nil || b.Guard != nil) && !reflect.DeepEqual(a, b) {
			fixed = append(fixed, "queues."+name+" (it has a guard)")
		}
	}
	return fixed
}

func union(a, b map[string]*config.Queue) map[string]bool {
	all := make(map[string]bool, len(a)+len(b))
	for name := range a {
		all[name] = true
	}
	for name := range b {
		all[name] = true
	}
	return all
}

func orEmpty(q *config.Queue) *config.Queue {
	if q == nil {
		return new(config.Queue)
	}
	return q
}

// change is what a new configuration means for one queue.
type change struct {
	queue    string
	settings *driver.QueueSettings // nil: as before
	stop     bool                  // it is no longer delivered
	consume  *consumed             // nil: as before, or stop
	target   bool                  // with consume: it is not only by other policies
}

// changes finds what differs between two configurations, and builds what takes its
// place, so that nothing can fail when it is put in.
func (s *Server) changes(old, cfg *config.Config) (all []change, err error) {
	for _, name := range slices.Sorted(maps.Keys(union(old.Queues, cfg.Queues))) {
		before, after := orEmpty(old.Queues[name]), orEmpty(cfg.Queues[name])
		_, was := old.Queues[name]
		_, is := cfg.Queues[name]
		c := change{queue: name}
		if settings := after.Settings(); is && (!was || before.Settings() != settings) {
			c.settings = &settings
		}
		policies := !reflect.DeepEqual(usedPolicies(old, name), usedPolicies(cfg, name))
		switch {
		case s.sources.awaits(name): // it is consumed as it is then, once its source is open
		case before.Deliver != nil && after.Deliver == nil:
			c.stop = true
		case after.Deliver != nil && (policies || !reflect.DeepEqual(before.Deliver, after.Deliver)):
			if c.consume, err = s.consumedBy(cfg, name, after.Deliver); err != nil {
				return nil, fmt.Errorf("queue %s: %w", name, err)
			}
			c.target = before.Deliver != nil && !reflect.DeepEqual(before.Deliver, after.Deliver)
		}
		if c.settings != nil || c.stop || c.consume != nil {
			all = append(all, c)
		}
	}
	return all, nil
}

// usedPolicies is everything that decides about a queue's messages, its breaker included.
func usedPolicies(cfg *config.Config, queue string) any {
	q := orEmpty(cfg.Queues[queue])
	return []any{q.Policy, q.Kinds, q.Rules, q.Classify, q.Breaker, cfg.Policies}
}

// apply puts one change into force.
func (s *Server) apply(c *change) error {
	switch {
	case c.stop:
		s.app.engine.Remove(c.queue)
		s.app.targets.set(c.queue, "")
	case c.consume != nil:
		return s.handle(c.queue, c.consume)
	}
	return nil
}

// retryTime bounds how long a reload looks for retries that can be made at once.
const retryTime = 10 * time.Second

// retryNow lets the messages of a queue that wait for their retry be due at once, as the target
// at which they failed has changed.
func (s *Server) retryNow(ctx context.Context, queue string) error {
	ctx, cancel := context.WithTimeout(ctx, retryTime)
	defer cancel()
	counts, err := s.app.store.Counts(ctx, queue)
	if err != nil || len(counts) == 0 {
		return err
	}
	q := redrive.Query{Queue: queue, State: redrive.StateWaiting, Retrying: true, Limit: redrive.MaxPage}
	for left := counts[0].Waiting[redrive.LaneRetry]; left > 0; {
		page, err := s.app.store.Find(ctx, q)
		if err != nil {
			return err
		}
		var refs []redrive.Ref
		for i := range page.Entries {
			refs = append(refs, page.Entries[i].Ref())
		}
		left -= int64(len(refs))
		if len(refs) > 0 {
			if _, err := s.app.store.Update(ctx, driver.Selection{Refs: refs}, driver.Change{Action: driver.ActDueNow}, len(refs)); err != nil {
				return err
			}
		}
		if q.After = page.Next; q.After == "" {
			return nil
		}
	}
	return nil
}
