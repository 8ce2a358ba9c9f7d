package sqlite

import (
	"errors"
	"os"
	"syscall"
)

// copying are the file systems that write nothing in place.
var copying = map[int64]string{0x9123683e: "btrfs", 0x2fc12fc1: "zfs", 0xca451a4e: "bcachefs"}

// room returns how many bytes a file system has and how many are free for this process, and
// its name if it copies what it writes.
func room(dir string) (total, free int64, copies string, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, 0, "", err
	}
	return int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize, copying[st.Type], nil //nolint:gosec // no disk is so large
}

// allocate makes a file that has its room.
func allocate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode) //nolint:gosec // in the store's folder
	if err != nil {
		return err
	}
	err = syscall.Fallocate(int(f.Fd()), 0, 0, size)
	if errors.Is(err, syscall.ENOTSUP) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EOPNOTSUPP) {
		err = errNoReserve
	}
	return errors.Join(err, f.Close())
}
