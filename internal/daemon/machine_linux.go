package daemon

import "syscall"

// openFiles returns how many files this process may have open. Go has raised the limit to the
// hard one at the start.
func openFiles() (uint64, error) {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	return limit.Cur, err
}

// inodes returns how many files can still be made where a folder is, of how many; 0 of 0:
// there is no bound.
func inodes(dir string) (free, total uint64, err error) {
	var st syscall.Statfs_t
	err = syscall.Statfs(dir, &st)
	return st.Ffree, st.Files, err
}
