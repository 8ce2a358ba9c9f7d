package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redrive/redrive/backend/sqlite"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/backups"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/wire"
	"github.com/redrive/redrive/telemetry"
)

// newBackups makes what copies an embedded store, if the configuration asks for it.
func (s *Server) newBackups(a *app) {
	b := &s.cfg.Backup
	if b.Every == 0 {
		return
	}
	a.backups = backups.New(backups.Options{
		Dir: s.cfg.BackupDir(), Every: b.Every.Std(), Keep: cmp.Or(b.Keep, config.DefaultBackups), File: sqlite.FileName,
		Copy: a.store.Backup, Check: checkBackup, Log: s.log,
	})
	a.metrics.Registry().MustRegister(telemetry.NewBackups(func() (time.Time, bool) {
		now := a.backups.Status()
		return now.Newest, now.Failed != nil
	}))
}

// checkBackup opens a copy and reads all of it.
func checkBackup(ctx context.Context, dir string) error {
	r, err := sqlite.Check(ctx, dir, nil)
	if err == nil && len(r.Problems) > 0 {
		err = errors.New(strings.Join(r.Problems[:min(len(r.Problems), 3)], "; "))
	}
	return err
}

// backupFinding says for doctor whether there is a young backup.
func (a *app) backupFinding(now time.Time) []wire.Finding {
	if a.backups == nil {
		return nil
	}
	s := a.backups.Status()
	f := wire.Finding{Level: driver.LevelOK.String(), Setting: "backup", Value: "none yet", Promise: fmt.Sprintf("%d kept, one every %s", s.Copies, s.Every)}
	if !s.Newest.IsZero() {
		f.Value = s.Newest.UTC().Format(time.RFC3339)
	}
	if why := s.Missing(now); why != "" {
		f.Level, f.Promise, f.Hint = driver.LevelWarn.String(), "backups fail since "+s.Since.UTC().Format(time.RFC3339)+": "+why, "look at the folder of backup.dir and its disk; redrive backup FILE makes one by hand"
	}
	return []wire.Finding{f}
}
