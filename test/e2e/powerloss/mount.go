package powerloss

import (
	"os"
	"testing"
)

// Mount mounts a disk for a test, and unmounts it at its end. A laptop may not be able to, and
// then skips the test; CI must.
func Mount(t testing.TB, seed uint64) (disk *Disk, dir string) {
	t.Helper()
	unable := t.Skipf
	if os.Getenv("CI") == "true" {
		unable = t.Fatalf
	}
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		unable("no disk can fail here: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if disk, err = New(dir, seed); err != nil {
		unable("no disk can fail here: %v", err)
	}
	t.Cleanup(func() {
		if err := disk.Close(); err != nil {
			t.Error(err)
		}
	})
	return disk, dir
}
