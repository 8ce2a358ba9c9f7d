//go:build unix

package sqlite

import (
	"os"
	"syscall"
)

func tryLock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

func syncHandle(d *os.File) error { return d.Sync() }
