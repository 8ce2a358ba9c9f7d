package sqlite

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redrive/redrive"
)

// lockName is the file whose lock says that a process owns the folder. Its number in it
// is for the message to another.
const lockName = "redrive.lock"

// lock is what keeps other processes from a store: the lock of its folder, and, for who
// removed that or comes by another name, one of the database file itself.
//
// The system drops all of SQLite's own locks of a file (fcntl) when the process closes any
// descriptor of it. So the database is opened here once, before SQLite does, and closed
// after it; nobody else in this process may open it. The lock taken here (flock) is of
// another kind, and SQLite does not see it.
type lock struct {
	folder *os.File
	data   *os.File
	info   fs.FileInfo // of data
}

// owned are the databases that this process has open, found without opening them.
var owned struct {
	sync.Mutex
	files []fs.FileInfo
}

// lockStore takes the store in a folder for this process; the database is made if create
// is set.
func lockStore(dir string, create bool) (*lock, error) {
	folder, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	l := &lock{folder: folder}
	if err := l.lockData(filepath.Join(dir, FileName), create); err != nil {
		_ = folder.Close()
		return nil, err
	}
	return l, nil
}

// lockFolder takes the lock file, which is made if it is not there.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, fileMode) //nolint:gosec // the store's folder is the caller's choice
	if err != nil {
		return nil, err
	}
	if err := tryLock(f); err != nil {
		owner := ownerOf(f)
		_ = f.Close()
		return nil, inUse(dir, owner)
	}
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
		if err != nil { // the number is only for the other's message
			_ = f.Truncate(0)
		}
	}
	return f, nil
}

func inUse(name, owner string) error {
	return &redrive.Error{Op: "open", Err: fmt.Errorf("store %s: %w", name, redrive.ErrInUse),
		Hint: owner + "talk to it through its server, or stop it first"}
}

// lockData opens and locks the database.
func (l *lock) lockData(path string, create bool) error {
	switch info, err := os.Lstat(path); {
	case err == nil && !info.Mode().IsRegular():
		// SQLite keeps the log beside the file that a link leads to.
		return &redrive.Error{Op: "open", Err: fmt.Errorf("%s is not a file of its own", path), Hint: "name the folder in which the file itself is"}
	case err != nil && (!create || !errors.Is(err, fs.ErrNotExist)):
		return err
	}
	owned.Lock()
	defer owned.Unlock()
	if info, err := os.Stat(path); err == nil && slices.ContainsFunc(owned.files, func(o fs.FileInfo) bool { return os.SameFile(o, info) }) {
		return inUse(path, "this process has it, under this name or another: ")
	}
	flags := os.O_RDWR
	if create {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, fileMode) //nolint:gosec // the store's folder is the caller's choice
	if err != nil {
		return err
	}
	if err := tryLockData(f); err != nil {
		_ = f.Close()
		return inUse(path, "another process has it, though "+lockName+" is free: it was removed, or the file has another name: ")
	}
	if l.info, err = f.Stat(); err != nil {
		return errors.Join(err, f.Close())
	}
	l.data = f
	owned.files = append(owned.files, l.info)
	return nil
}

// renew takes the folder again after its lock file was removed or replaced. It fails while
// another process holds the new one, which the lock of the database refuses.
func (l *lock) renew(dir string) error {
	f, err := lockFolder(dir)
	if err != nil {
		return err
	}
	_ = l.folder.Close()
	l.folder = f
	return nil
}

// ownerOf names the process that wrote its number into the lock file.
func ownerOf(f *os.File) string {
	b, err := io.ReadAll(io.LimitReader(f, 32))
	if pid, bad := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && bad == nil {
		return fmt.Sprintf("process %d has it: ", pid)
	}
	return ""
}

// unlock gives the store up. SQLite must have closed the database.
func (l *lock) unlock() {
	owned.Lock()
	owned.files = slices.DeleteFunc(owned.files, func(o fs.FileInfo) bool { return o == l.info })
	_ = l.data.Close()
	owned.Unlock()
	_ = l.folder.Close()
}

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
