package sqlite

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/redrive/redrive"
)

// lockName is the file whose lock says that a process owns the store. It is not
// the store itself: closing any handle of that would drop SQLite's own locks.
const lockName = "redrive.lock"

type lockFile struct{ f *os.File }

// lockDir takes the folder for this process.
func lockDir(dir string) (*lockFile, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the store's folder is the caller's choice
	if err != nil {
		return nil, err
	}
	if err := tryLock(f); err != nil {
		owner := ownerOf(f)
		_ = f.Close()
		return nil, &redrive.Error{Op: "open", Err: fmt.Errorf("store %s: %w", dir, redrive.ErrInUse),
			Hint: owner + "talk to it through its server, or stop it first"}
	}
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		if err != nil { // the number is only for the other's message
			_ = f.Truncate(0)
		}
	}
	return &lockFile{f: f}, nil
}

// ownerOf names the process that wrote its number into the lock file.
func ownerOf(f *os.File) string {
	b, err := io.ReadAll(io.LimitReader(f, 32))
	if pid, bad := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && bad == nil {
		return fmt.Sprintf("process %d has it: ", pid)
	}
	return ""
}

func (l *lockFile) unlock() { _ = l.f.Close() }

// makeDir makes a folder, and those above it, and its name durable: a folder whose
// name is lost with the power takes every synced file in it along. One that is there
// already may have been made just before another power cut.
func makeDir(dir string) error {
	above := filepath.Dir(dir)
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(above); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := syncDir(above); !errors.Is(err, fs.ErrPermission) { // who may not read it did not make the folder
		return err
	}
	return nil
}

// syncDir makes the names of new files durable.
func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the store's folder is the caller's choice
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	return syncHandle(d)
}
