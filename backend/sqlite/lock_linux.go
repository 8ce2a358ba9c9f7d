package sqlite

import "os"

// locksData: the lock of the database keeps others out without the lock file.
const locksData = true

// tryLockData locks the database. Here flock and SQLite's fcntl know nothing of each other.
func tryLockData(f *os.File) error { return tryLock(f) }
