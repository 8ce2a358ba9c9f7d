package daemon

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/daemon/archive"
	"github.com/redrive/redrive/internal/daemon/config"
)

// forOthers are the rights of the group and of all others.
const forOthers = fs.FileMode(0o077)

// checkFolders refuses folders of messages that other users can get into. What is not there
// yet is made for its user alone.
func checkFolders(cfg *config.Config) error {
	if cfg.AllowSharedDir || runtime.GOOS == "windows" {
		return nil
	}
	dirs := []string{cfg.StoreDir(), cfg.Spool.Dir}
	if to := cfg.ArchiveDir(); filepath.Dir(to) != cfg.StoreDir() { // which guards what is in it
		dirs = append(dirs, to)
	}
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || info.Mode()&forOthers == 0 {
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
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&forOthers == 0 || runtime.GOOS == "windows" {
			continue
		}
		err = os.Chmod(path, 0o600)
		s.log.LogAttrs(ctx, slog.LevelWarn, "other users could read an archived file: its mode is 0600 now", slog.String("file", path), slog.Any("error", err))
	}
	return nil
}
