// Package private keeps files that hold messages from other users of the machine, and their names on
// the disk. On Windows, where modes say nothing of others, it takes nothing from them.
package private

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
)

// Modes of what is its user's alone.
const (
	File   fs.FileMode = 0o600
	Folder fs.FileMode = 0o700

	others fs.FileMode = 0o077 // the rights of the group and of all others
)

// Shared reports that other users have rights to a file or folder.
func Shared(info fs.FileInfo) bool { return runtime.GOOS != "windows" && info.Mode()&others != 0 }

// Take takes a file from other users, by its path: it opens nothing. It returns the mode that it
// had; zero if there is nothing to take, as the file is not there, no regular one, or its user's
// alone.
func Take(path string) (had fs.FileMode, err error) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || !Shared(info) {
		return 0, nil //nolint:nilerr // who opens it says what is wrong
	}
	return info.Mode().Perm(), os.Chmod(path, File)
}

// SyncNames makes new names in a folder durable, where the system can.
func SyncNames(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the folder is the caller's choice
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, os.ErrInvalid) || errors.Is(err, os.ErrPermission) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
