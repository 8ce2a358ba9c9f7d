// Package browsertest opens pages in a real browser, for tests.
package browsertest

import (
	"bytes"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// Open opens a page in a headless Chromium of its own until the test ends. Without
// Chromium the test is skipped; in CI it fails.
func Open(t *testing.T, page string) {
	t.Helper()
	program := need(t, "chromium", "chromium")
	// Without a sandbox, as tests run as root too; the pages are our own.
	args := []string{
		"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--disable-background-networking", "--user-data-dir=" + t.TempDir(), page,
	}
	cmd := exec.CommandContext(t.Context(), program, args...) //nolint:gosec // the page is a test's own
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.Env = append(os.Environ(), "NO_PROXY=*")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it is many processes
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may be gone already
		_ = cmd.Wait()                                      // it was killed
		if t.Failed() {
			t.Logf("chromium wrote:\n%s", log.Bytes())
		}
	})
}
