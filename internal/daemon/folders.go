package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/daemon/archive"
	"github.com/redrive/redrive/internal/daemon/config"
	"github.com/redrive/redrive/internal/private"
)

// checkFolders refuses folders of messages that other users can get into. What is not there
// yet is made for its user alone.
func checkFolders(cfg *config.Config) error {
	if cfg.AllowSharedDir {
		return nil
	}
	dirs := []string{cfg.StoreDir(), cfg.Spool.Dir}
	beside := []string{cfg.ArchiveDir()}
	if cfg.Backup.Every != 0 {
		beside = append(beside, cfg.BackupDir())
	}
	for _, to := range beside {
		if filepath.Dir(to) != cfg.StoreDir() { // which guards what is in it
			dirs = append(dirs, to)
		}
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || !private.Shared(info) {
			continue // who opens it says what is wrong
		}
		return &redrive.Error{Op: "open", Err: fmt.Errorf("the folder %s has the mode %04o: other users can get into it", dir, info.Mode().Perm()),
			Hint: fmt.Sprintf("chmod 0700 %s, or allow it with --allow-shared-dir (allow_shared_dir: true)", dir)}
	}
	return nil
}

// openArchive opens the archive, and takes what is in it from other users.
func (s *Server) openArchive(ctx context.Context) error {
	to, err := archive.Open(s.cfg.ArchiveDir())
	if err != nil {
		return err
	}
	s.archive = to
	files, err := filepath.Glob(filepath.Join(to.Dir(), "dead-*"))
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	for _, path := range files {
		had, err := private.Take(path)
		if had == 0 {
			continue
		}
		s.log.LogAttrs(ctx, slog.LevelWarn, "other users could read an archived file: its mode is 0600 now", slog.String("file", path), slog.Any("error", err))
	}
	return nil
}
