package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql" // registers itself

	"github.com/redrive/redrive/internal/mariadbtest"
	"github.com/redrive/redrive/internal/pgtest"
	"github.com/redrive/redrive/internal/redistest"
	"github.com/redrive/redrive/internal/wire"
)

// storeServer is a private server of a store.
type storeServer interface {
	URL() string
	Kill()         // with all of its processes, as a crash would
	Resume() error // after a Kill
}

// storeServers starts the servers that several daemons can share.
var storeServers = map[string]func(t *testing.T) storeServer{
	"postgres": func(t *testing.T) storeServer { return pgtest.Start(t, nil) },
	"mysql":    func(t *testing.T) storeServer { return mariadbServer{mariadbtest.Start(t, nil)} },
	"redis": func(t *testing.T) storeServer {
		return redistest.Start(t, redistest.Options{AppendOnly: true})
	},
}

type mariadbServer struct{ *mariadbtest.Server }

func (s mariadbServer) URL() string { return s.Server.URL(mariadbtest.Database) }

// TestSharedStoreKillNine has two daemons on one store. They are killed in turn, and so is
// the store's server, while messages are published to both, delivered and retried.
func TestSharedStoreKillNine(t *testing.T) {
	for name, begin := range storeServers {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // mostly waits for leases of the dead to run out
			random := seeded(t)
			s := begin(t)
			target := newReceiver(t, "--fail", "20%")
			both := []*daemon{newDaemonOn(t, s.URL(), proofConfig(target)), newDaemonOn(t, s.URL(), proofConfig(target))}
			h := newHistory(t, both...)
			stop := h.publish(4, random)
			t.Cleanup(stop)
			n := rounds(t, 6)
			for i := range n {
				pause(t.Context(), time.Duration(100+random.IntN(900))*time.Millisecond)
				if i%3 == 2 {
					s.Kill()
					h.note("kill -9 of the store")
					pause(t.Context(), time.Duration(random.IntN(1000))*time.Millisecond)
					if err := s.Resume(); err != nil {
						t.Fatal(err)
					}
					continue
				}
				d := both[i%2]
				d.kill()
				h.note("kill -9 of a daemon")
				d.start()
			}
			stop()
			for _, d := range both {
				until(t, "the daemon is ready", 30*time.Second, d.ready)
			}
			heal(t, target)
			h.check(both[0], target, false)
			t.Logf("%d times kill -9", n)
		})
	}
}

// TestSharedStoreFromTheCommandLine works on a store that daemons share, through one of
// them and without any.
func TestSharedStoreFromTheCommandLine(t *testing.T) {
	t.Parallel()
	for name, begin := range storeServers {
		t.Run(name, func(t *testing.T) {
			s := begin(t)
			target := newReceiver(t, "--fail", "100%", "--status", "400")
			yaml := fmt.Sprintf("queues: {hooks: {deliver: {url: %q, allow_private: true}}}\n", target)
			one, other := newDaemonOn(t, s.URL(), yaml), newDaemonOn(t, s.URL(), yaml)
			const n = 15 // fewer than a breaker needs to open
			one.publishMany("hooks", "order", n, func(i int) string { return fmt.Sprintf(`"body":{"n":%d}`, i) })
			until(t, "all are dead", time.Minute, func() bool { return other.queue("hooks").Dead == n })
			heal(t, target)
			other.redrive("dead", "redrive", "--queue", "hooks", "--yes", "--wait").ok(t)
			until(t, "all are delivered", time.Minute, func() bool { return one.queue("hooks").Ledger.Done == n })
			for _, d := range []*daemon{one, other} {
				if code := d.terminate(30 * time.Second); code != 0 {
					t.Errorf("the daemon ended with %d\n%s", code, tail(d.log.String(), 20))
				}
				if strings.Contains(d.log.String(), "panic") {
					t.Error(tail(d.log.String(), 40))
				}
			}
			v := decode[wire.Verified](t, command(t, nil, "verify", "--scan", "--data", s.URL(), "--json").ok(t))
			if !v.Balanced {
				t.Errorf("the ledger does not balance: %+v", v)
			}
		})
	}
}
