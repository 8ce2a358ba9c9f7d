package sqlite

import (
	"os"
	"syscall"
)

// syncData makes a file's content durable, and of its metadata what reading needs.
func syncData(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return err
		}
	}
}
