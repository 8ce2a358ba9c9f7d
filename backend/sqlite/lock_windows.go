package sqlite

import (
	"os"

	"golang.org/x/sys/windows"
)

func tryLock(f *os.File) error {
	// Beyond the end of the file, so that others can read the number in it.
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
		0, 1, 0, &windows.Overlapped{Offset: 1 << 30})
}

// syncHandle does nothing: Windows has no sync of folders.
func syncHandle(*os.File) error { return nil }
