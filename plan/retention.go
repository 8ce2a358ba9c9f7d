package plan

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/deadletter"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/lease"
)

// RetentionRule says how long dead letters of a queue are kept. The zero value keeps
// them for ever.
type RetentionRule struct {
	Age  time.Duration // those that died longer ago go; 0: none
	Keep int64         // those beyond this number go, the oldest first; 0: none
	// Discard removes them without archiving them first; the ledger then counts them as
	// dropped.
	Discard bool
}

// RetentionOptions configures [NewRetention]. Every field has a default.
type RetentionOptions struct {
	// Rule returns the rule of a queue. It is called for every queue in each round and
	// must be safe for concurrent use. Defaults to keeping everything.
	Rule func(queue string) RetentionRule
	// Archive is where dead letters go before they are removed. Without it only those
	// of rules with Discard are removed.
	Archive deadletter.Archiver
	// Interval is the time between rounds. Defaults to 1 min.
	Interval time.Duration
	// Instance names this process start. Defaults to a new id.
	Instance string
	// Logger gets a line when something was removed, and in trouble. Defaults to
	// [slog.Default].
	Logger *slog.Logger
}

// RetentionRunner removes what is no longer kept: dead letters by their queue's rule,
// and what expired by itself (remembered ids and records).
type RetentionRunner struct {
	store driver.Store
	o     RetentionOptions
}

const (
	defaultRetention = time.Minute
	retentionKey     = "retention"
	trimBatch        = 1000
)

// NewRetention returns the retention of a store, which works while [RetentionRunner.Run]
// does.
func NewRetention(store driver.Store, o RetentionOptions) *RetentionRunner {
	if o.Interval <= 0 {
		o.Interval = defaultRetention
	}
	if o.Instance == "" {
		o.Instance = redrive.NewID()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Rule == nil {
		o.Rule = func(string) RetentionRule { return RetentionRule{} }
	}
	return &RetentionRunner{store: store, o: o}
}

// Run removes what is no longer kept until ctx ends, and then returns nil. Of several
// processes one does so at a time. It may be called once.
func (r *RetentionRunner) Run(ctx context.Context) error {
	held := lease.Lease{Store: r.store, Key: retentionKey, Holder: r.o.Instance, Single: r.store.Caps().Exclusive}
	defer held.Release(ctx)
	tick := time.NewTicker(r.o.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := r.round(ctx, &held); err != nil && ctx.Err() == nil {
			r.o.Logger.LogAttrs(ctx, slog.LevelWarn, "retention", slog.Any("error", err))
		}
	}
}

// round goes through all queues once.
func (r *RetentionRunner) round(ctx context.Context, held *lease.Lease) error {
	if mine, err := held.Hold(ctx); err != nil || !mine {
		return err
	}
	if err := r.trim(ctx); err != nil {
		return err
	}
	counts, err := r.store.Counts(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for i := range counts {
		c := &counts[i]
		rule := r.o.Rule(c.Queue)
		if c.AllDead() == 0 || rule.Age <= 0 && (rule.Keep <= 0 || c.AllDead() <= rule.Keep) {
			continue
		}
		if mine, err := held.Hold(ctx); err != nil || !mine {
			return errors.Join(append(errs, err)...)
		}
		n, err := r.apply(ctx, c, &rule, held)
		if n > 0 {
			r.o.Logger.LogAttrs(ctx, slog.LevelInfo, "retention: dead letters removed", slog.String("queue", c.Queue), slog.Int64("count", n), slog.Bool("archived", !rule.Discard))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("queue %s: %w", c.Queue, err))
		}
	}
	return errors.Join(errs...)
}

// apply removes what a rule no longer keeps.
func (r *RetentionRunner) apply(ctx context.Context, c *driver.Counts, rule *RetentionRule, held *lease.Lease) (int64, error) {
	if rule.Discard {
		return r.discard(ctx, driver.Retention{Queue: c.Queue, DeadAge: rule.Age, DeadKeep: rule.Keep})
	}
	if r.o.Archive == nil {
		return 0, &redrive.Error{Op: "retention", Err: errors.New("there is no archive"), Hint: "set one, or let the queue discard"}
	}
	return r.archive(ctx, c, rule, held)
}

// trim repeats Trim until nothing is left.
func (r *RetentionRunner) trim(ctx context.Context) error {
	for ctx.Err() == nil {
		n, err := r.store.Trim(ctx, driver.Retention{}, trimBatch)
		if err != nil || n == (driver.Trimmed{}) {
			return err
		}
	}
	return ctx.Err()
}

// discard removes dead letters, and notes those of plans.
func (r *RetentionRunner) discard(ctx context.Context, what driver.Retention) (removed int64, err error) {
	for ctx.Err() == nil {
		oldest, err := r.store.Find(ctx, redrive.Query{Queue: what.Queue, State: redrive.StateDead, Limit: trimBatch})
		if err != nil {
			return removed, err
		}
		n, err := r.store.Trim(ctx, what, trimBatch)
		removed += n.Dead
		if err != nil || n == (driver.Trimmed{}) {
			return removed, err
		}
		if err := r.noteGone(ctx, oldest.Entries[:min(int64(len(oldest.Entries)), n.Dead)]); err != nil {
			return removed, err
		}
	}
	return removed, ctx.Err()
}

// noteGone notes for plans what they redrove of dead letters that are gone.
func (r *RetentionRunner) noteGone(ctx context.Context, removed []redrive.Entry) error {
	removed = slices.DeleteFunc(removed, func(e redrive.Entry) bool { return e.Plan == "" })
	for part := range slices.Chunk(removed, planLook) {
		refs := make([]redrive.Ref, len(part))
		for i := range part {
			refs[i] = part[i].Ref()
		}
		there, err := r.store.Get(ctx, refs)
		if err != nil {
			return err
		}
		var gone []redrive.Entry
		for i, e := range there {
			if e == nil {
				gone = append(gone, part[i])
			}
		}
		if err := NoteTaken(ctx, r.store, gone...); err != nil {
			return err
		}
	}
	return nil
}

// archive archives the oldest dead letters and then removes them.
func (r *RetentionRunner) archive(ctx context.Context, c *driver.Counts, rule *RetentionRule, held *lease.Lease) (removed int64, err error) {
	now, err := r.store.Now(ctx)
	if err != nil {
		return 0, err
	}
	excess := int64(0)
	if rule.Keep > 0 {
		excess = c.AllDead() - rule.Keep
	}
	for q := (redrive.Query{Queue: c.Queue, State: redrive.StateDead, Bodies: true, Limit: planLook}); ; {
		if mine, err := held.Hold(ctx); err != nil || !mine {
			return removed, err
		}
		page, err := r.store.Find(ctx, q)
		if err != nil {
			return removed, err
		}
		n := 0
		for n < len(page.Entries) && (int64(n) < excess || rule.Age > 0 && page.Entries[n].DiedAt.Before(now.Add(-rule.Age))) {
			n++
		}
		done, err := archiveAndRemove(ctx, r.store, r.o.Archive, page.Entries[:n])
		removed += done
		excess -= int64(n)
		if err != nil || n < len(page.Entries) || page.Next == "" {
			return removed, err
		}
		q.After = page.Next
	}
}

// archiveAndRemove archives dead letters, removes them, and counts those that are gone.
// One that is claimed by a processor stays.
func archiveAndRemove(ctx context.Context, store driver.Store, to deadletter.Archiver, entries []redrive.Entry) (removed int64, err error) {
	if len(entries) == 0 {
		return 0, nil
	}
	if err := to.Archive(ctx, entries); err != nil {
		return 0, err
	}
	refs := make([]redrive.Ref, len(entries))
	for i := range entries {
		refs[i] = entries[i].Ref()
	}
	results, err := store.Update(ctx, driver.Selection{Refs: refs}, driver.Change{Action: driver.ActArchive}, len(refs))
	gone := make(map[redrive.Ref]bool, len(refs))
	for i := range results {
		if results[i].Err == nil {
			removed++
			gone[results[i].Ref] = true
		}
	}
	if err != nil {
		return removed, err
	}
	entries = slices.DeleteFunc(entries, func(e redrive.Entry) bool { return !gone[e.Ref()] })
	return removed, NoteTaken(ctx, store, entries...)
}
