package e2e

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redrive/redrive/internal/wire"
)

// TestHangup sends SIGHUP to the program: a good file is put into force, a broken one is
// refused with its reason.
func TestHangup(t *testing.T) {
	d := newDaemon(t, "queues: {one: {}}\n")
	type config struct {
		wire.ConfigStatus
		Queues map[string]any
	}
	shown := func() config { return get[config](t, d.url+"/v1/config") }
	good, err := os.ReadFile(d.config)
	if err != nil {
		t.Fatal(err)
	}
	hangup := func(text string) {
		t.Helper()
		if err := os.WriteFile(d.config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	before := shown()
	if before.Hash == "" || len(before.Queues) != 1 {
		t.Fatalf("%+v", before)
	}
	hangup(strings.Replace(string(good), "{one: {}}", "{one: {}, two: {}}", 1))
	until(t, "the new configuration is in force", 30*time.Second, func() bool { return len(shown().Queues) == 2 })
	after := shown()
	if after.Hash == before.Hash || after.Refused != "" {
		t.Errorf("the hash was %s and is %s; refused: %q", before.Hash, after.Hash, after.Refused)
	}
	hangup(strings.Replace(string(good), "{one: {}}", "{one: {polcy: {}}}", 1))
	until(t, "the reason is shown", 30*time.Second, func() bool { return strings.Contains(shown().Refused, "did you mean policy?") })
	if c := shown(); c.Hash != after.Hash || len(c.Queues) != 2 {
		t.Errorf("a refused file changed the configuration: %s, %d queues", c.Hash, len(c.Queues))
	}
	until(t, "the log tells", 30*time.Second, func() bool {
		log := d.log.String()
		return strings.Contains(log, "previous configuration stays active") && (strings.Contains(log, "on=SIGHUP") || strings.Contains(log, `"on":"SIGHUP"`))
	})
	hangup(string(good))
	until(t, "the first one is in force again", 30*time.Second, func() bool { c := shown(); return c.Hash == before.Hash && c.Refused == "" })
}
