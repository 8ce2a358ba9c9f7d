package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/sqlstore"
)

// foldRows is how many differences one transaction folds.
const foldRows = 20_000

// FoldLedger implements sqlstore.Server.
func (d dialect) FoldLedger(ctx context.Context) (more bool, err error) {
	var n int64
	err = d.one(ctx, "fold", nil, func(r row) error { return r.Scan(&n) }, foldRows)
	return n == foldRows, err
}

// Ahead implements sqlstore.Server.
func (d dialect) Ahead(ctx context.Context) (parts []sqlstore.Part, err error) {
	err = d.read(ctx, "ahead", func() { parts = nil }, func(r row) error {
		var p sqlstore.Part
		err := r.Scan(&p.Queue, &p.Class)
		parts = append(parts, p)
		return err
	}, sqlstore.AheadMargin.Microseconds(), sqlstore.AheadLooked, sqlstore.ClassDied)
	return parts, err
}

// Pull implements sqlstore.Server.
func (d dialect) Pull(ctx context.Context, p sqlstore.Part, limit int) (n int64, err error) {
	name, args := "pull", []any{p.Queue, p.Class, sqlstore.AheadMargin.Microseconds(), limit}
	if p.Class == sqlstore.ClassDied {
		name, args = "pull_dead", []any{p.Queue, sqlstore.AheadMargin.Microseconds(), limit}
	}
	err = d.one(ctx, name, func() { n = 0 }, func(row) error { n++; return nil }, args...)
	return n, err
}

// Horizon is what keeps the server from removing dead rows.
type Horizon struct {
	Age      int64         // transactions since the oldest snapshot was taken
	Longest  time.Duration // how long the longest transaction of the database has run
	DeadRows int64         // in our tables, as the server estimates
}

// What an oldest snapshot may be before Probe warns: a transaction that runs so long,
// or one of a replica, a slot or a prepared transaction that lies so far back.
const (
	horizonTime = 5 * time.Minute
	horizonAge  = 1_000_000
)

// Horizon returns what keeps dead rows from being removed, for metrics and alarms. A
// long transaction anywhere in the database slows down what changes tables often.
func (s *Store) Horizon(ctx context.Context) (Horizon, error) {
	var h Horizon
	var seconds float64
	err := s.read(ctx, "horizon", nil, func(r row) error { return r.Scan(&h.Age, &seconds, &h.DeadRows) }, s.sql.schema)
	h.Longest = time.Duration(seconds * float64(time.Second))
	return h, err
}

// Probe implements driver.Source.
func (s *Store) Probe(ctx context.Context) []driver.Finding {
	values := make(map[string]string)
	names := []string{"server_version", "fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names", "autovacuum",
		"default_transaction_isolation", "track_counts"}
	err := s.read(ctx, "setting", nil, func(r row) error {
		var name, value string
		err := r.Scan(&name, &value)
		values[name] = value
		return err
	}, names)
	if err != nil {
		return []driver.Finding{{Level: driver.LevelRefused, Setting: "store", Value: s.sql.schema,
			Promise: fmt.Sprintf("it cannot be read: %v", err), Hint: "is the server running, and may this user log in?"}}
	}
	list := durability(values)
	list = append(list, upkeepFindings(values)...)
	list = append(list, horizonFinding(s.Horizon(ctx)), s.indexFinding(ctx))
	var used, limit int64
	err = s.read(ctx, "room", nil, func(r row) error { return r.Scan(&used, &limit) })
	return append(list, roomFinding(used, limit, int64(s.pool.Stat().MaxConns()), err))
}

// indexFinding names the indexes that the server does not use.
func (s *Store) indexFinding(ctx context.Context) driver.Finding {
	var broken []string
	err := s.read(ctx, "broken_indexes", func() { broken = nil }, func(r row) error {
		var name string
		err := r.Scan(&name)
		broken = append(broken, name)
		return err
	}, s.sql.schema)
	v := driver.Finding{Level: driver.LevelOK, Setting: "indexes", Value: "valid", Promise: "the server uses all of them"}
	switch {
	case err != nil:
		v = unreadable(v.Setting)
	case len(broken) > 0:
		v.Level, v.Value, v.Promise = driver.LevelWarn, strings.Join(broken, ", ")+" not valid", "without it statements read whole tables, and what must be unique may not be"
		v.Hint = "REINDEX INDEX CONCURRENTLY " + broken[0]
	}
	return v
}

// roomFinding warns if the connections of one daemon more do not fit.
func roomFinding(used, limit, own int64, err error) driver.Finding {
	if err != nil {
		return unreadable("max_connections")
	}
	v := driver.Finding{Level: driver.LevelOK, Setting: "max_connections", Value: fmt.Sprintf("%d of %d for users are taken", used, limit),
		Promise: fmt.Sprintf("room for the %d of one daemon more", own)}
	if limit-used < own {
		v.Level, v.Promise = driver.LevelWarn, fmt.Sprintf("the server has no room for the %d of one daemon more: it may answer too_many_connections, and deliveries wait then", own)
		v.Hint = "raise max_connections, or say pool_max_conns=N in the store's address"
	}
	return v
}

// unreadable is said of what the server did not answer.
func unreadable(setting string) driver.Finding {
	return driver.Finding{Level: driver.LevelWarn, Setting: setting, Value: "unknown", Promise: "it could not be read", Hint: "see the server's log"}
}

// durability tells what the server's settings promise of what was acknowledged.
func durability(values map[string]string) []driver.Finding {
	ok := func(name, promise string) driver.Finding {
		return driver.Finding{Level: driver.LevelOK, Setting: name, Value: values[name], Promise: promise}
	}
	list := []driver.Finding{ok("server_version", "the server's version")}
	for name, promise := range map[string]string{
		"fsync":            "what was written may be lost or damaged by a loss of power",
		"full_page_writes": "a loss of power in the middle of a write may damage pages",
	} {
		if values[name] == "on" {
			list = append(list, ok(name, "pages survive a loss of power"))
		} else {
			list = append(list, driver.Finding{Level: driver.LevelRefused, Setting: name, Value: values[name], Promise: promise, Hint: "set " + name + " = on"})
		}
	}
	commit := ok("synchronous_commit", "what was acknowledged survives a loss of power, if the disk keeps what it says it has written")
	switch {
	case values["synchronous_commit"] == "off":
		commit.Level, commit.Promise = driver.LevelWarn, "what was acknowledged in the last moments is lost in a crash of the server"
		commit.Hint = "set synchronous_commit = on, for the database or the user"
	case values["synchronous_standby_names"] == "":
		commit.Promise += "; a fail-over to an asynchronous replica may lose the last moments"
	case values["synchronous_commit"] == "local":
		commit.Level, commit.Promise = driver.LevelWarn, "a fail-over may lose what was acknowledged in the last moments"
		commit.Hint = "set synchronous_commit = on, so that the standby is waited for"
	default:
		commit.Promise += "; the standbys are waited for"
	}
	return append(list, commit)
}

// upkeepFindings tells what the settings mean for the tables' health.
func upkeepFindings(values map[string]string) []driver.Finding {
	vacuum := driver.Finding{Level: driver.LevelOK, Setting: "autovacuum", Value: values["autovacuum"], Promise: "dead rows are removed by themselves"}
	if values["autovacuum"] != "on" || values["track_counts"] != "on" {
		vacuum.Level, vacuum.Promise = driver.LevelWarn, "nothing removes dead rows: claims become slower and slower"
		vacuum.Hint = "set autovacuum = on and track_counts = on"
	}
	isolation := driver.Finding{Level: driver.LevelOK, Setting: "default_transaction_isolation", Value: values["default_transaction_isolation"],
		Promise: "concurrent claims do not disturb one another"}
	if isolation.Value != "read committed" {
		isolation.Level, isolation.Promise = driver.LevelWarn, "concurrent claims and settlements must be repeated"
		isolation.Hint = "set default_transaction_isolation = 'read committed' for this user"
	}
	return []driver.Finding{vacuum, isolation}
}

// horizonFinding warns of what keeps dead rows from being removed.
func horizonFinding(h Horizon, err error) driver.Finding {
	v := driver.Finding{Level: driver.LevelOK, Setting: "oldest snapshot", Promise: "dead rows can be removed",
		Value: fmt.Sprintf("%d transactions, %s, %d dead rows", h.Age, h.Longest.Round(time.Second), h.DeadRows)}
	switch {
	case err != nil:
		v = unreadable(v.Setting)
	case h.Longest > horizonTime:
		v.Level, v.Promise = driver.LevelWarn, "a long transaction keeps dead rows from being removed: tables grow and claims become slower"
		v.Hint = "end the oldest transaction in pg_stat_activity, and set idle_in_transaction_session_timeout"
	case h.Age > horizonAge:
		v.Level, v.Promise = driver.LevelWarn, "an old snapshot keeps dead rows from being removed: tables grow and claims become slower"
		v.Hint = "look for the oldest backend_xmin in pg_stat_activity, for forgotten pg_prepared_xacts, and for xmin in pg_replication_slots"
	}
	return v
}
