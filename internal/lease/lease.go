// Package lease lets one process of many do what must be done once: it holds a record of the
// store that expires.
package lease

import (
	"context"
	"errors"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Lease is a record with an expiry, held by one process. It is not safe for concurrent use.
type Lease struct {
	Store  driver.Store
	Key    string
	Holder string // names this process
	Single bool   // nobody else can be alive

	version int64 // of the record; 0: not held
	renewAt time.Time
}

const space = "leases"

// TTL is how long a lease lasts that is not renewed. [Lease.Hold] renews it after a third of that.
const TTL = 15 * time.Second

// Hold takes or renews the lease, and reports whether it is ours: for two thirds of TTL from now
// on at least. An error means that it is not known.
func (l *Lease) Hold(ctx context.Context) (bool, error) {
	now := time.Now()
	if l.version != 0 && now.Before(l.renewAt) {
		return true, nil
	}
	version := l.version
	l.version = 0
	if version == 0 {
		r, err := l.Store.GetRecord(ctx, space, l.Key)
		switch {
		case err == nil && string(r.Value) != l.Holder && !l.Single:
			return false, nil
		case err == nil:
			version = r.Version
		case !errors.Is(err, redrive.ErrNotFound):
			return false, err
		}
	}
	_, err := l.Store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{{Space: space, Key: l.Key, Value: []byte(l.Holder), Version: version, Expires: TTL}}})
	if errors.Is(err, redrive.ErrVersion) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	r, err := l.Store.GetRecord(ctx, space, l.Key)
	if err != nil || string(r.Value) != l.Holder {
		return false, err
	}
	l.version, l.renewAt = r.Version, now.Add(TTL/3)
	return true, nil
}

// Release gives the lease back, so that another need not wait for it to expire.
func (l *Lease) Release(ctx context.Context) {
	if l.version == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = l.Store.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{{Space: space, Key: l.Key, Version: l.version}}}) // else it expires
	l.version = 0
}
