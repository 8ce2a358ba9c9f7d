package redisstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/backendtest"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
)

// rounds is how often a fault is repeated: usually few times, many in a proof.
func rounds(few int) int {
	if n, err := strconv.Atoi(os.Getenv("REDRIVE_PROOF_ROUNDS")); err == nil && n > 0 {
		return n
	}
	return few
}

// traffic publishes, handles, retries and kills until it is stopped, through whatever
// happens to the server. What was acknowledged is known.
type traffic struct {
	s        *Store
	mu       sync.Mutex
	accepted map[string]bool // acknowledged publishes
	ended    map[string]int  // acknowledged settlements as done
	stop     chan struct{}
	wg       sync.WaitGroup
}

func startTraffic(s *Store, seed uint64) *traffic {
	f := &traffic{s: s, accepted: map[string]bool{}, ended: map[string]int{}, stop: make(chan struct{})}
	for i := range uint64(3) {
		f.wg.Go(func() { f.publish(rand.New(rand.NewPCG(seed, i))) })
		f.wg.Go(func() { f.handle(rand.New(rand.NewPCG(seed, 10+i))) })
	}
	return f
}

func (f *traffic) going() bool {
	select {
	case <-f.stop:
		return false
	default:
		return true
	}
}

func (f *traffic) publish(rng *rand.Rand) {
	for f.going() {
		msgs := make([]redrive.Message, 1+rng.IntN(5))
		for i := range msgs {
			msgs[i] = redrive.Message{Queue: "sms", Body: fmt.Append(nil, rng.Uint64())}
			if rng.IntN(3) == 0 {
				msgs[i].ID = redrive.NewID()
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		errs := f.s.Publish(ctx, msgs)
		cancel()
		f.mu.Lock()
		for i := range msgs {
			if errs == nil || errs[i] == nil {
				f.accepted[msgs[i].ID] = true
			}
		}
		f.mu.Unlock()
	}
}

func (f *traffic) handle(rng *rand.Rand) {
	for f.going() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		r := driver.ClaimRequest{Queue: "sms", Lane: redrive.Lane(rng.IntN(2)), Max: 5, Lease: time.Minute, Instance: "worker"}
		ds, err := f.s.Claim(ctx, r)
		if err != nil {
			cancel()
			continue
		}
		list := make([]driver.Settlement, len(ds))
		for i := range ds {
			list[i] = driver.Settlement{Receipt: ds[i].Receipt, Outcome: redrive.OutcomeDone}
			switch rng.IntN(5) {
			case 0:
				list[i].Outcome, list[i].Failure = redrive.OutcomeRetry, &redrive.Failure{Message: "again"}
			case 1:
				list[i].Outcome, list[i].Reason = redrive.OutcomeDead, redrive.ReasonPermanent
			}
		}
		errs := f.s.Settle(ctx, list)
		cancel()
		f.mu.Lock()
		for i := range list {
			if list[i].Outcome == redrive.OutcomeDone && (errs == nil || errs[i] == nil) {
				f.ended[ds[i].ID]++
			}
		}
		f.mu.Unlock()
	}
}

// check finds every accepted message done, waiting or dead, and none done twice.
func (f *traffic) check(t *testing.T) {
	t.Helper()
	close(f.stop)
	f.wg.Wait()
	lost, twice, unknown := 0, 0, 0
	var refs []redrive.Ref
	for id := range f.accepted {
		refs = append(refs, redrive.Ref{Queue: "sms", ID: id})
	}
	entries, err := f.s.Get(t.Context(), refs)
	noErr(t, err)
	for i, ref := range refs {
		switch n := f.ended[ref.ID]; {
		case n > 1:
			twice++
		case n == 0 && entries[i] == nil:
			unknown++ // its settlement may have happened without an answer
		case n == 1 && entries[i] != nil:
			lost++ // an acknowledged settlement was undone
		}
	}
	a := balanced(t, f.s)
	// What is neither there nor known to be done must be in the ledger as done.
	if int64(len(f.ended)+unknown) > a.Ledger.Done {
		t.Errorf("%d messages are gone without being done: done %d, known %d, gone %d", int64(len(f.ended)+unknown)-a.Ledger.Done, a.Ledger.Done, len(f.ended), unknown)
	}
	if twice+lost > 0 {
		t.Errorf("%d done twice, %d settlements undone", twice, lost)
	}
	t.Logf("%d accepted, %d done, %d without an answer, waiting %d, dead %d", len(f.accepted), len(f.ended), unknown, a.Waiting, a.Dead)
}

func seeded(t *testing.T) (uint64, *rand.Rand) {
	seed := rand.Uint64()
	if n, err := strconv.ParseUint(os.Getenv("REDRIVE_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("seed %d", seed)
	return seed, rand.New(rand.NewPCG(seed, 99))
}

func TestKillOfTheServerLosesNothing(t *testing.T) {
	seed, rng := seeded(t)
	server := redistest.Start(t, redistest.Options{AppendOnly: true, Fsync: "always"})
	for i := range rounds(3) {
		f := startTraffic(openAt(t, server.URL(), fmt.Sprint("kill", i)), seed+uint64(i))
		for range 2 {
			<-time.After(time.Duration(50+rng.IntN(150)) * time.Millisecond)
			server.Kill()
			noErr(t, server.Resume())
		}
		<-time.After(100 * time.Millisecond)
		f.check(t)
	}
}

func TestKillFailoverOfReplicated(t *testing.T) {
	seed, rng := seeded(t)
	for i := range rounds(1) {
		pair := redistest.StartPair(t, redistest.Options{})
		s := openAt(t, pair.URL()+"?durability=replicated&wait_timeout=500ms", "failover")
		f := startTraffic(s, seed+uint64(i))
		<-time.After(time.Duration(200+rng.IntN(200)) * time.Millisecond)
		pair.Master.Kill()
		pair.AwaitFailover(t)
		// The one that is left has no replica, so nothing more is acknowledged; but all
		// that was is there, and is claimed.
		<-time.After(200 * time.Millisecond)
		f.s = openAt(t, strings.Replace(pair.URL(), "?durability=replicated", "", 1), "failover")
		f.check(t)
	}
}

func TestScriptsFlushedUnderLoad(t *testing.T) {
	seed, _ := seeded(t)
	s := open(t)
	f := startTraffic(s, seed)
	for range 20 {
		<-time.After(10 * time.Millisecond)
		noErr(t, s.conn.ScriptFlush(t.Context()).Err())
		_ = s.conn.XGroupDestroy(t.Context(), s.queue("sms").keys[keyStream], GroupName).Err()
	}
	f.check(t)
}

// TestKillFreeClusterConformance runs the whole suite on a cluster: each store's tag puts it on
// another node.
func TestKillFreeClusterConformance(t *testing.T) {
	if rounds(0) == 0 {
		t.Skip("not offered: a minute; REDRIVE_PROOF_ROUNDS=1 runs it")
	}
	backendtest.Run(t, factory(redistest.ClusterURL(redistest.Cluster(t, 3))))
}

func TestClusterHoldsEveryVerb(t *testing.T) {
	servers := redistest.Cluster(t, 3)
	for i := range 6 { // on all nodes
		s := openAt(t, redistest.ClusterURL(servers), fmt.Sprint("p", i))
		publish(t, s, 3)
		m := []redrive.Message{{Queue: "sms", ID: "chosen", Key: "k", Delay: time.Millisecond}}
		noErr(t, driver.FirstError(s.Publish(t.Context(), m)))
		ds := claim(t, s, ask(3))
		settle(t, s, redrive.OutcomeDone, ds[0])
		settle(t, s, redrive.OutcomeDead, ds[1])
		noErr(t, driver.FirstError(s.Settle(t.Context(), []driver.Settlement{{Receipt: ds[2].Receipt, Outcome: redrive.OutcomeDone, Emit: []redrive.Message{{Queue: "other", ID: "emitted"}}}})))
		got, err := s.Update(t.Context(), driver.Selection{Refs: []redrive.Ref{ds[1].Ref()}}, driver.Change{Action: driver.ActRedrive, To: "third"}, 1)
		noErr(t, err)
		noErr(t, got[0].Err)
		_, err = s.Apply(t.Context(), driver.Batch{Publish: []redrive.Message{{Queue: "fourth"}}, Records: []driver.RecordWrite{{Space: "s", Key: "k", Value: []byte("v")}}})
		noErr(t, err)
		events, err := s.Wait(t.Context(), []driver.Watch{{Queue: "sms"}, {Queue: "other"}, {Queue: "fourth"}})
		noErr(t, err)
		counts, err := s.Counts(t.Context())
		noErr(t, err)
		if len(events) != 3 || len(counts) != 4 || len(s.Probe(t.Context())) < 3*3 {
			t.Fatalf("%d events, %d queues", len(events), len(counts))
		}
		balanced(t, s)
	}
}

func TestRefusesAnUnreachableServer(t *testing.T) {
	_, err := Open(t.Context(), "redis://user:hidden@127.0.0.1:1/0")
	if err == nil || strings.Contains(err.Error(), "hidden") {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), "redis://:hidden@"); !errors.Is(err, redrive.ErrInvalid) || strings.Contains(err.Error(), "hidden") {
		t.Fatal(err)
	}
}

// TestLeastRights runs under the user that docs/redis.md names, over TLS.
func TestLeastRights(t *testing.T) {
	server := redistest.Start(t, redistest.Options{TLS: true, Config: []string{
		"user default off",
		"user redrive on >secret ~{least}:* +@read +@write +@scripting +@connection +@transaction +info +time +wait +config|get +cluster",
	}})
	s := openAt(t, strings.Replace(server.URL(), "rediss://", "rediss://redrive:secret@", 1), "least")
	noErr(t, s.Configure(t.Context(), "sms", driver.QueueSettings{OrderByKey: true}))
	publish(t, s, 4)
	ds := claim(t, s, ask(3))
	settle(t, s, redrive.OutcomeDone, ds[0])
	settle(t, s, redrive.OutcomeDead, ds[1])
	settle(t, s, redrive.OutcomeRetry, ds[2])
	_, err := s.Wait(t.Context(), []driver.Watch{{Queue: "sms"}})
	noErr(t, err)
	_, err = s.Monitor(t.Context(), "sms")
	noErr(t, err)
	_, err = s.Trim(t.Context(), driver.Retention{DeadKeep: 1}, 10)
	noErr(t, err)
	for _, v := range s.Probe(t.Context()) {
		if v.Value == "unknown" {
			t.Errorf("%s is unknown", v.Setting)
		}
	}
	balanced(t, s)
}
