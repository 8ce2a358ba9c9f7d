package daemon

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive/driver"
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
	hash  func() string // of the configuration in force

	count  atomic.Int32
	warned string // of the hashes, as they were last warned about
}

func newInstances(store driver.Store, log *slog.Logger, id, version string, hash func() string) *instances {
	host, _ := os.Hostname()
	i := &instances{store: store, log: log, hash: hash, self: wire.Instance{ID: id, Host: cmp.Or(host, "localhost"), PID: os.Getpid(), Version: version, StartedAt: time.Now().UTC()}}
	i.count.Store(1)
	return i
}

// live returns how many daemons there are, this one included.
func (i *instances) live() int { return int(i.count.Load()) }

// announce writes our record and looks at the others.
func (i *instances) announce(ctx context.Context) error {
	self := i.self
	self.Hash = i.hash()
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
	var hashes string
	differ := false
	for _, one := range all {
		differ = differ || one.Hash != i.hash()
		hashes += one.ID + one.Hash
	}
	if !differ {
		i.warned = ""
		return
	}
	if hashes == i.warned {
		return
	}
	i.warned = hashes
	attrs := []slog.Attr{slog.String("hash", i.hash())}
	for _, one := range all {
		if one.Hash != i.hash() {
			attrs = append(attrs, slog.String("other", one.Host), slog.String("other_hash", one.Hash))
		}
	}
	i.log.LogAttrs(ctx, slog.LevelWarn, "daemons on this store have different configurations", attrs...)
}

// list returns the daemons that live, in order of their start.
func (i *instances) list(ctx context.Context) ([]wire.Instance, error) {
	records, err := i.store.ListRecords(ctx, instanceSpace, "", maxInstances)
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
