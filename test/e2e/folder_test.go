package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/redistest"
)

// exitAfterFatal is the status with which a process ends that must not write its store
// any more: after a failed sync, and without its folder.
const exitAfterFatal = 70

// endsWithoutFolder fails the test unless the daemon ends by itself and says why.
func (d *daemon) endsWithoutFolder(dir, what string) {
	d.t.Helper()
	if code := d.wait(30 * time.Second); code != exitAfterFatal {
		d.t.Errorf("exit code %d, want %d", code, exitAfterFatal)
	}
	for _, says := range []string{"exiting", dir, what, "restore a backup"} {
		if !strings.Contains(d.log.String(), says) {
			d.t.Errorf("it does not say %q:\n%s", says, tail(d.log.String(), 20))
		}
	}
}

// TestTheFolderOfTheDataGoesAway while the daemon runs: it acknowledges nothing any more,
// and ends. What was acknowledged is where the folder is.
func TestTheFolderOfTheDataGoesAway(t *testing.T) {
	t.Parallel()
	const n = 50
	for name, c := range map[string]struct {
		displace, replace func(dir string) error
		says              string
		left              int
	}{
		"deleted": {
			displace: os.RemoveAll,
			replace:  func(string) error { return nil },
			says:     "is gone", left: 0,
		},
		"moved": {
			displace: func(dir string) error { return os.Rename(dir, dir+"-moved") },
			replace:  func(dir string) error { return os.Rename(dir+"-moved", dir) },
			says:     "is gone", left: n,
		},
		"replaced by a copy": {
			displace: func(dir string) error {
				if err := exec.Command("cp", "-a", dir, dir+"-copy").Run(); err != nil {
					return err
				}
				if err := os.Rename(dir, dir+"-moved"); err != nil {
					return err
				}
				return os.Rename(dir+"-copy", dir)
			},
			replace: func(string) error { return nil },
			says:    "is another file now", left: n,
		},
	} {
		for _, idle := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, idle=%v", name, idle), func(t *testing.T) {
				d := newDaemon(t, waiting)
				d.publishMany("hooks", "k", n, func(int) string { return `"body":1` })
				if err := c.displace(d.dir); err != nil {
					t.Fatal(err)
				}
				for i := 0; i < 3 && !idle; i++ {
					if r := d.redrive("publish", "hooks", "x", "--id", fmt.Sprintf("late-%d", i)); r.code == 0 {
						t.Errorf("a message was acknowledged into a folder that was %s", name)
					}
				}
				d.endsWithoutFolder(d.dir, c.says)
				if err := c.replace(d.dir); err != nil {
					t.Fatal(err)
				}
				d.start()
				d.redrive("verify", "--scan").fails(t, 0, "the ledger balances")
				if got := int(d.queue("hooks").Waiting.All); got < c.left || c.left == 0 && got > 0 { // what was refused may be there
					t.Errorf("%d messages are there, want %d", got, c.left)
				}
			})
		}
	}
}

// TestTheFolderOfTheSpoolGoesAway: what the spool acknowledged is nowhere else.
func TestTheFolderOfTheSpoolGoesAway(t *testing.T) {
	server := redistest.Start(t, redistest.Options{AppendOnly: true})
	dir := filepath.Join(t.TempDir(), "spool")
	d := newDaemonOn(t, server.URL(), fmt.Sprintf("spool: {dir: %q}\n%s", dir, waiting))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	d.endsWithoutFolder(dir, "is gone")
}
