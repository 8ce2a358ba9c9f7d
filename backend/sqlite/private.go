package sqlite

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/private"
)

// fileMode is that of all files of a store.
const fileMode = private.File

// fileNames are the files of a store; some are there only while it is open.
var fileNames = []string{FileName, FileName + logSuffix, FileName + "-shm", lockName, syncedName, reserveName}

// makePrivate takes the files from other users. SQLite gives new ones the mode of the
// database. It changes modes by path: see lock for why it opens nothing.
func makePrivate(dir string) {
	for _, name := range fileNames {
		path := filepath.Join(dir, name)
		had, err := private.Take(path)
		if had == 0 {
			continue
		}
		text := "other users could use a file of the store: its mode is 0600 now"
		if err != nil {
			text = "other users can use a file of the store" // it may be another user's
		}
		slog.Warn(text, "file", path, "mode", fmt.Sprintf("%04o", had), "error", err)
	}
}

// probeModes says what other users may do with folder and files.
func (s *Store) probeModes() driver.Finding {
	f := driver.Finding{Level: driver.LevelOK, Setting: "access", Value: "its user only", Promise: "no other user of the machine reads messages or replaces files"}
	for _, name := range append([]string{""}, fileNames...) {
		path := filepath.Join(s.dir, name)
		info, err := os.Stat(path)
		if err != nil || !private.Shared(info) {
			continue
		}
		want := fileMode
		if name == "" {
			want = private.Folder
		}
		f.Level, f.Value = driver.LevelWarn, fmt.Sprintf("%04o", info.Mode().Perm())
		f.Promise = fmt.Sprintf("other users of the machine can get into %s", path)
		f.Hint = fmt.Sprintf("chmod %04o %s", want, path)
		return f
	}
	return f
}
