package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/alerts"
	"github.com/redrive/redrive/internal/wire"
)

// What doctor warns of on the daemon's machine.
const (
	clockApart = 5 * time.Second // between the daemon and the store, beyond how long the answer took
	fewInodes  = 100             // less than one of so many is free
	filesOwn   = 1_000           // for the store, targets and sources, beside the clients' connections
)

// machineFindings tells how the machine of a daemon stands: its clock against that of the
// store, its limit of open files, and the disk of an embedded store.
func (a *app) machineFindings(ctx context.Context) []wire.Finding {
	cfg := a.conf()
	if cfg == nil {
		return nil
	}
	var all []wire.Finding
	asked := time.Now()
	if now, err := a.store.Now(ctx); err == nil { // a store that is away is said elsewhere
		all = append(all, clockFinding(now.Sub(asked), time.Since(asked)))
	}
	if limit, err := openFiles(); err == nil {
		all = append(all, filesFinding(limit))
	}
	if of, ok := driver.As[driver.RoomyStore](a.store); ok {
		if free, size, err := of.Room(); err == nil {
			all = append(all, roomFinding(free, size))
		}
	}
	if dir := cfg.StoreDir(); dir != "" {
		if free, total, err := inodes(dir); err == nil && total > 0 { // some file systems have no bound
			all = append(all, inodesFinding(free, total))
		}
	}
	return all
}

// clockFinding compares clocks: the store's was so far ahead of the daemon's when it was asked,
// and the answer took so long.
func clockFinding(ahead, took time.Duration) wire.Finding {
	f := wire.Finding{Level: driver.LevelOK.String(), Setting: "store clock", Value: ahead.Round(time.Millisecond).String() + " ahead of the daemon's",
		Promise: "the store's, which decides when messages are due, and the daemon's agree"}
	if ahead < 0 {
		f.Value = (-ahead).Round(time.Millisecond).String() + " behind the daemon's"
	}
	if ahead < -clockApart || ahead > clockApart+took {
		f.Level, f.Promise = driver.LevelWarn.String(), "the store's decides when messages are due and expire, the daemon's dates signatures and log lines: receivers may refuse requests, and times do not fit each other"
		f.Hint = "let both machines follow the same time servers: timedatectl status"
	}
	return f
}

// filesFinding compares the limit of open files with what the daemon may need.
func filesFinding(limit uint64) wire.Finding {
	f := wire.Finding{Level: driver.LevelOK.String(), Setting: "open files", Value: fmt.Sprint(limit),
		Promise: fmt.Sprintf("room for %d connections of clients and for what the daemon opens itself", maxConnections)}
	if limit < maxConnections+filesOwn {
		f.Level, f.Promise = driver.LevelWarn.String(), fmt.Sprintf("with %d connections of clients no file or target can be opened: deliveries fail then, and are repeated", maxConnections)
		f.Hint = fmt.Sprintf("raise the limit to %d: LimitNOFILE= of the unit, or ulimit -n", maxConnections+filesOwn)
	}
	return f
}

// roomFinding warns of a disk where disk_low is alerted.
func roomFinding(free, size int64) wire.Finding {
	f := wire.Finding{Level: driver.LevelOK.String(), Setting: "disk", Value: fmt.Sprintf("%d of %d MiB free", free>>20, size>>20),
		Promise: "messages are taken while there is room"}
	if low, _ := (&alerts.Here{Free: free, Total: size}).Low(); low {
		f.Level, f.Promise = driver.LevelWarn.String(), "it is nearly full: when it is full the store takes no messages"
		f.Hint = "free some room on the store's disk; redrive queues shows what waits, redrive dead causes what is dead"
	}
	return f
}

// inodesFinding warns of a file system that soon can make no file although it has room.
func inodesFinding(free, total uint64) wire.Finding {
	f := wire.Finding{Level: driver.LevelOK.String(), Setting: "inodes", Value: fmt.Sprintf("%d of %d free", free, total),
		Promise: "files can be made on the store's disk"}
	if free < total/fewInodes {
		f.Level, f.Promise = driver.LevelWarn.String(), "the store's disk has room, but soon no file can be made: backups and the archive fail then"
		f.Hint = "remove files that nobody needs; df -i shows the file systems"
	}
	return f
}
