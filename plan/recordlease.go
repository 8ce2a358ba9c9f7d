package plan

import (
	"context"
	"errors"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// recordLease is a record with an expiry by which one process of many does what must
// be done once.
type recordLease struct {
	store  driver.Store
	key    string
	holder string
	single bool // nobody else can be alive

	version int64 // of the record; 0: not held
	renewAt time.Time
}

const (
	leaseSpace     = "leases"
	recordLeaseTTL = 15 * time.Second
)

// hold takes or renews the lease, and reports whether it is ours.
func (l *recordLease) hold(ctx context.Context) (bool, error) {
	now := time.Now()
	if l.version != 0 && now.Before(l.renewAt) {
		return true, nil
	}
	version := l.version
	l.version = 0
	if version == 0 {
		r, err := l.store.GetRecord(ctx, leaseSpace, l.key)
		switch {
		case err == nil && string(r.Value) != l.holder && !l.single:
			return false, nil
		case err == nil:
			version = r.Version
		case !errors.Is(err, redrive.ErrNotFound):
			return false, err
		}
	}
	_, err := l.store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{{Space: leaseSpace, Key: l.key, Value: []byte(l.holder), Version: version, Expires: recordLeaseTTL}}})
	if errors.Is(err, redrive.ErrVersion) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r, err := l.store.GetRecord(ctx, leaseSpace, l.key)
	if err != nil || string(r.Value) != l.holder {
		return false, err
	}
	l.version, l.renewAt = r.Version, now.Add(recordLeaseTTL/3)
	return true, nil
}

// release gives the lease back, so that another need not wait for it to expire.
func (l *recordLease) release(ctx context.Context) {
	if l.version == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = l.store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{{Space: leaseSpace, Key: l.key, Version: l.version}}}) // else it expires
	l.version = 0
}
