//go:build !linux

package sqlite

import "os"

// locksData: the lock file alone keeps others out.
const locksData = false

// tryLockData does nothing: here flock and SQLite's fcntl exclude each other, or a locked
// range cannot be read.
func tryLockData(*os.File) error { return nil }
