package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
)

const (
	instanceSpace = "instances"
	instanceTTL   = 15 * time.Second
	maxInstances  = 1000
)

// instances knows the daemons that work on the store. Each keeps a record of itself
// while it runs.
type instances struct {
	store driver.Store
	log   *slog.Logger
	self  wire.Instance
	hash  func() string     // of the configuration in force
	since func() *time.Time // since when its file is refused; nil: it is not

	count  atomic.Int32
	warned string // of the hashes, as they were last warned about
}

func newInstances(store driver.Store, log *slog.Logger, id, version string, hash func() string, since func() *time.Time) *instances {
	host, _ := os.Hostname()
	i := &instances{store: store, log: log, hash: hash, since: since, self: wire.Instance{ID: id, Host: cmp.Or(host, "localhost"), PID: os.Getpid(), Version: version, StartedAt: time.Now().UTC()}}
	i.count.Store(1)
	return i
}

// live returns how many daemons there are, this one included.
func (i *instances) live() int { return int(i.count.Load()) }

// announce writes our record and looks at the others.
func (i *instances) announce(ctx context.Context) error {
	self := i.self
	self.Hash, self.RefusedSince = i.hash(), i.since()
	value, err := json.Marshal(self)
	if err != nil {
		return err
	}
	_, err = i.store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{
		{Space: instanceSpace, Key: self.ID, Value: value, Version: driver.AnyVersion, Expires: instanceTTL}}})
	if err != nil {
		return err
	}
	all, err := i.list(ctx)
	if err != nil {
		return err
	}
	i.count.Store(int32(max(len(all), 1))) //nolint:gosec // at most maxInstances
	i.compare(ctx, all)
	return nil
}

// compare warns, once for each change, about daemons with another configuration.
func (i *instances) compare(ctx context.Context, all []wire.Instance) {
	var hashes strings.Builder
	differ := false
	for _, one := range all {
		differ = differ || one.Hash != i.hash()
		hashes.WriteString(one.ID + one.Hash)
	}
	if !differ {
		i.warned = ""
		return
	}
	if hashes.String() == i.warned {
		return
	}
	i.warned = hashes.String()
	attrs := []slog.Attr{slog.String("hash", i.hash())}
	for _, one := range all {
		if one.Hash != i.hash() {
			attrs = append(attrs, slog.String("other", one.Host), slog.String("other_hash", one.Hash))
		}
	}
	i.log.LogAttrs(ctx, slog.LevelWarn, "daemons on this store have different configurations", attrs...)
}

func (i *instances) list(ctx context.Context) ([]wire.Instance, error) {
	return listInstances(ctx, i.store)
}

// listInstances returns the daemons that live, in order of their start.
func listInstances(ctx context.Context, store driver.Store) ([]wire.Instance, error) {
	records, err := store.ListRecords(ctx, instanceSpace, "", maxInstances)
	if err != nil {
		return nil, err
	}
	all := make([]wire.Instance, 0, len(records))
	for _, r := range records {
		var one wire.Instance
		if json.Unmarshal(r.Value, &one) == nil { // one that cannot be read is of another version
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b wire.Instance) int { return a.StartedAt.Compare(b.StartedAt) })
	return all, nil
}

// run announces this daemon until ctx ends, and then takes its record back.
func (i *instances) run(ctx context.Context) {
	tick := time.NewTicker(instanceTTL / 3)
	defer tick.Stop()
	for {
		if err := i.announce(ctx); err != nil && ctx.Err() == nil {
			i.log.LogAttrs(ctx, slog.LevelWarn, "cannot register this daemon in the store", slog.Any("error", err))
		}
		select {
		case <-tick.C:
			continue
		case <-ctx.Done():
		}
		break
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, err := i.store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{{Space: instanceSpace, Key: i.self.ID, Version: driver.AnyVersion}}})
	if err != nil {
		i.log.LogAttrs(ctx, slog.LevelDebug, "cannot remove the record of this daemon: left to expire", slog.Any("error", err))
	}
}

// refusedConfigurations tells which daemons of the store go on with the configuration from before
// a change that they refused. Why is for who may see the configuration.
func (a *app) refusedConfigurations(ctx context.Context, who *caller) (all []wire.Finding, err error) {
	add := func(d *wire.Instance, since time.Time, why, hint string) {
		all = append(all, wire.Finding{Level: driver.LevelWarn.String(), Setting: fmt.Sprintf("the configuration file of %s (process %d)", d.Host, d.PID),
			Value: "refused since " + since.UTC().Format(time.RFC3339), Promise: "the daemon goes on with the one before" + why, Hint: hint})
	}
	if r := a.refused.Load(); r != nil {
		why, hint := "", "its log says why, and GET /v1/config (scope admin)"
		if who.may(config.ScopeAdmin) {
			why, hint = ": "+r.why, "mend the file: it is read when it changes, and on SIGHUP"
		}
		add(&a.instances.self, r.since, why, hint)
	}
	others, err := listInstances(ctx, a.store)
	if errors.Is(err, redrive.ErrUnavailable) { // which the probe has said
		return all, nil
	}
	for i := range others {
		if d := &others[i]; d.ID != a.instance && d.RefusedSince != nil {
			add(d, *d.RefusedSince, "", "its log says why")
		}
	}
	return all, err
}

// refusedSince returns since when the configuration file of this process is refused, or nil.
func (a *app) refusedSince() *time.Time {
	if r := a.refused.Load(); r != nil {
		return &r.since
	}
	return nil
}
