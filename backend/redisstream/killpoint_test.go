package redisstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/childtest"
	"github.com/redrive/redrive/internal/redisconn"
	"github.com/redrive/redrive/internal/redistest"
	"github.com/redrive/redrive/internal/servertest"
)

// scripts are all of them; TestKillAtEveryScript finds that none is missing.
var scripts = []*redisconn.Script{
	scriptIntroduce, scriptReserve, scriptPublish, scriptAdd, scriptStep, scriptDone, scriptClaim, scriptExtend,
	scriptTrim, scriptConsumers, scriptAcknowledge, scriptGet, scriptPage, scriptCounts, scriptRecords, scriptCauses, scriptVerify,
}

// readers change nothing: a process that dies at one of them is as one that dies before the
// next that writes. The proof kills there too.
var readers = []*redisconn.Script{scriptGet, scriptPage, scriptCounts, scriptRecords, scriptCauses, scriptVerify}

func TestMain(m *testing.M) {
	os.Exit(childtest.Main(func() int { return servertest.Main(m.Run) }, killed))
}

// killed is a process that goes once through every script of a store, says what it does,
// and may be killed at a point: address, prefix, and the words of the point.
var killed = childtest.Part{Name: "killed", Run: func(ctx context.Context, words []string) error {
	s, err := Open(ctx, words[0], WithPrefix(words[1]))
	if err != nil {
		return err
	}
	var at redistest.Point
	if len(words) > 2 {
		if at, err = redistest.ParsePoint(words[2:]); err != nil {
			return err
		}
	}
	names := map[string]string{}
	for _, x := range scripts {
		names[s.conn.Digest(x)] = x.Name()
	}
	k := redistest.NewKiller(at, names)
	s.conn.AddHook(k)
	if err := (&pass{s}).run(ctx); err != nil {
		return err
	}
	k.Say()
	return nil
}}

// pass is one way through all that a store does.
type pass struct{ s *Store }

func (p *pass) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{p.open, p.publish, p.settle, p.recover, p.look, p.tend} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) open(ctx context.Context) error {
	for _, part := range p.s.parts {
		if err := part.introduce(ctx, len(p.s.parts)); err != nil {
			return err
		}
	}
	if p.s.parts == nil {
		return p.s.introduce(ctx, 1)
	}
	return nil
}

func (p *pass) publish(ctx context.Context) error {
	plain := make([]redrive.Message, 14)
	for i := range plain {
		plain[i] = redrive.Message{Queue: "sms", Body: fmt.Append(nil, i)}
	}
	named := []redrive.Message{{Queue: "sms", ID: "chosen", Key: "k"}, {Queue: "sms", ID: "second", Key: "k"}, {Queue: "sms", Delay: time.Microsecond}}
	return errors.Join(redistest.PublishAloud(ctx, p.s, plain), redistest.PublishAloud(ctx, p.s, named))
}

// end settles deliveries with one outcome.
func (p *pass) end(ctx context.Context, o redrive.Outcome, ds ...redrive.Delivery) error {
	return redistest.SettleAloud(ctx, p.s, redistest.Outcomes(o, ds...))
}

// passLease may run out during a pass: nobody else claims then. What it leaves is waited for.
const passLease = 200 * time.Millisecond

func (p *pass) claim(ctx context.Context, r driver.ClaimRequest) ([]redrive.Delivery, error) {
	r.Queue, r.Instance = "sms", "child"
	if r.Lease == 0 {
		r.Lease = passLease
	}
	return p.s.Claim(ctx, r)
}

func (p *pass) settle(ctx context.Context) error {
	ds, err := p.claim(ctx, driver.ClaimRequest{Max: 12})
	if err != nil || len(ds) < 12 {
		return errors.Join(err, fmt.Errorf("claimed %d", len(ds)))
	}
	err = driver.FirstError(p.s.Extend(ctx, []redrive.Receipt{ds[0].Receipt, ds[1].Receipt}, passLease))
	if err != nil && !errors.Is(err, redrive.ErrLeaseLost) { // it ran out
		return err
	}
	emit := redistest.Outcomes(redrive.OutcomeDone, ds[5])
	emit[0].Emit = []redrive.Message{{Queue: "other", ID: "emitted"}}
	return errors.Join(
		p.end(ctx, redrive.OutcomeDone, ds[0], ds[2]), // one with a lease of its own, one of the batch
		p.end(ctx, redrive.OutcomeRetry, ds[1]),
		p.end(ctx, redrive.OutcomeRelease, ds[3]),
		p.end(ctx, redrive.OutcomeDead, ds[4], ds[9], ds[10]),
		redistest.SettleAloud(ctx, p.s, emit),
		p.end(ctx, redrive.OutcomeDrop, ds[6]),
		p.end(ctx, redrive.OutcomeRepeat, ds[7]),
		p.end(ctx, redrive.OutcomeDone, ds[8]),
		p.retried(ctx),
	)
}

// retried takes what is due again.
func (p *pass) retried(ctx context.Context) error {
	ds, err := p.claim(ctx, driver.ClaimRequest{Max: 5, Lane: redrive.LaneRetry})
	if err != nil || len(ds) == 0 {
		return errors.Join(err, fmt.Errorf("no retry"))
	}
	return p.end(ctx, redrive.OutcomeDone, ds...)
}

// recover takes over from a holder that is gone.
func (p *pass) recover(ctx context.Context) error {
	gone, err := p.claim(ctx, driver.ClaimRequest{Max: 1, Lease: minLease})
	if err != nil || len(gone) == 0 {
		return errors.Join(err, fmt.Errorf("nothing to claim"))
	}
	for end := gone[0].LeasedAt.Add(minLease); ; {
		now, err := p.s.Now(ctx)
		if err != nil {
			return err
		}
		if now.After(end) {
			break
		}
	}
	ds, err := p.claim(ctx, driver.ClaimRequest{Max: 1, Isolated: true})
	if err != nil || len(ds) == 0 {
		return errors.Join(err, fmt.Errorf("nothing to recover"))
	}
	return p.end(ctx, redrive.OutcomeRelease, ds...)
}

func (p *pass) look(ctx context.Context) error {
	_, err := p.s.Counts(ctx)
	_, err2 := p.s.Get(ctx, []redrive.Ref{{Queue: "sms", ID: "chosen"}})
	_, err3 := p.s.Find(ctx, redrive.Query{Queue: "sms"})
	_, err4 := p.s.Verify(ctx)
	_, err5 := p.s.ListRecords(ctx, "s", "", 5)
	_, _, err6 := p.s.Causes(ctx, redrive.Query{Queue: "sms"})
	return errors.Join(err, err2, err3, err4, err5, err6)
}

// tend changes what is dead, and clears away.
func (p *pass) tend(ctx context.Context) error {
	page, err := p.s.Find(ctx, redrive.Query{Queue: "sms", State: redrive.StateDead})
	if err != nil || len(page.Entries) < 3 {
		return errors.Join(err, fmt.Errorf("%d dead", len(page.Entries)))
	}
	change := func(e *redrive.Entry, c driver.Change) error {
		got, err := p.s.Update(ctx, driver.Selection{Refs: []redrive.Ref{e.Ref()}}, c, 1)
		if err == nil {
			err = got[0].Err
		}
		return err
	}
	if err := change(&page.Entries[0], driver.Change{Action: driver.ActRedrive}); err != nil {
		return err
	}
	dropped := &page.Entries[1]
	fmt.Println("ending", dropped.ID)
	if err := change(dropped, driver.Change{Action: driver.ActDrop}); err != nil {
		return err
	}
	fmt.Println("ended", dropped.ID)
	_, err = p.s.Apply(ctx, driver.Batch{Records: []driver.RecordWrite{{Space: "s", Key: "k", Value: []byte("v")}}})
	_, err2 := p.s.Trim(ctx, driver.Retention{}, 10)
	for _, q := range p.s.everywhere("sms") {
		_, err3 := p.s.conn.Write(ctx, scriptConsumers, q.keys[:1], 0)
		_, err4 := p.s.conn.Write(ctx, scriptAcknowledge, []string{q.keys[keyCounters]}, 0, 0, 0)
		err2 = errors.Join(err2, err3, err4)
	}
	return errors.Join(err, err2)
}

// drain delivers and ends all that waits, by several at once, and returns how often each
// message was claimed, and who is dead.
func drain(t *testing.T, s *Store) (drained map[string]int, dead []string) {
	drained = map[string]int{}
	var mu sync.Mutex
	servertest.Until(t, "everything is claimed", func() bool {
		var wg sync.WaitGroup
		for i := range 2 {
			wg.Go(func() {
				for _, name := range []string{"sms", "other"} {
					for lane := range driver.Lanes + 1 {
						r := driver.ClaimRequest{Queue: name, Lane: redrive.Lane(lane), Max: 10, Lease: time.Hour, Instance: fmt.Sprint("drain", i)}
						if lane == driver.Lanes {
							r.Lane, r.Isolated = 0, true
						}
						ds, err := s.Claim(t.Context(), r)
						if err != nil {
							t.Error(err)
						}
						for j := range ds {
							mu.Lock()
							drained[ds[j].ID]++
							mu.Unlock()
							if err := driver.FirstError(s.Settle(t.Context(), []driver.Settlement{{Receipt: ds[j].Receipt, Outcome: redrive.OutcomeDone}})); err != nil {
								t.Errorf("%s: %v", ds[j].ID, err)
							}
						}
					}
				}
			})
		}
		wg.Wait()
		counts, err := s.Counts(t.Context())
		noErr(t, err)
		left := int64(0)
		for _, c := range counts {
			left += c.Waiting[0] + c.Waiting[1] + c.Waiting[2]
		}
		return left == 0 || t.Failed()
	})
	page, err := s.Find(t.Context(), redrive.Query{Queue: "sms", State: redrive.StateDead, Limit: 100})
	noErr(t, err)
	for i := range page.Entries {
		dead = append(dead, page.Entries[i].ID)
	}
	return drained, dead
}

// TestKillAtEveryScript kills a process before and after it calls each script: of every
// script one call, drawn by lot, and in a proof of every call. Then each message that was
// acknowledged is found exactly once, and none is held twice.
func TestKillAtEveryScript(t *testing.T) {
	src, err := os.ReadFile("script.go")
	noErr(t, err)
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`redisconn\.New(?:Script|Reader)\("(\w+)"`).FindAllStringSubmatch(string(src), -1) {
		names[m[1]] = true
	}
	for _, x := range scripts {
		delete(names, x.Name())
	}
	if len(names) > 0 {
		t.Fatalf("not in the list of scripts: %v", slices.Collect(maps.Keys(names)))
	}
	_, rng := seeded(t)
	url := redistest.Shared(t).URL()
	s := open(t)
	whole := redistest.Child(t, killed, url, redistest.Prefix())
	parted := redistest.Child(t, killed, url+"?partitions=2", redistest.Prefix())
	if whole.Killed || parted.Calls["reserve"] == 0 {
		t.Fatalf("a pass that nobody kills: %v, %v", whole.Calls, parted.Calls)
	}
	for _, x := range scripts {
		where, calls := url, whole.Calls[x.Name()]
		if x == scriptReserve {
			where, calls = url+"?partitions=2", parted.Calls[x.Name()]
		}
		if calls == 0 {
			if x != scriptAdd || s.conn.Version.AtLeast(7, 0) { // before, it is the same script as step
				t.Errorf("no call of %s in a pass: add one", x.Name())
			}
			continue
		}
		if rounds(0) == 0 && slices.Contains(readers, x) {
			continue
		}
		for _, call := range which(rng, calls) {
			for _, after := range []bool{false, true} {
				p := redistest.Point{Script: x.Name(), Call: call, After: after}
				t.Run(strings.ReplaceAll(p.String(), " ", "-"), func(t *testing.T) {
					t.Parallel()
					prefix := redistest.Prefix()
					said := redistest.Child(t, killed, append([]string{where, prefix}, strings.Fields(p.String())...)...)
					s := openAt(t, where, prefix)
					drained, dead := drain(t, s)
					said.Account(t, drained, dead)
					if !said.Killed {
						t.Errorf("the child was not killed; its calls: %v", said.Calls)
					}
					audits, err := s.Verify(t.Context())
					noErr(t, err)
					for _, a := range audits {
						if a.Imbalance() != 0 || len(a.Problems) > 0 {
							t.Errorf("%+v", a)
						}
					}
				})
			}
		}
	}
}

// which are the calls of a pass at which to kill: one, or in a proof all.
func which(rng *rand.Rand, calls int) []int {
	if rounds(0) == 0 {
		return []int{1 + rng.IntN(calls)}
	}
	all := make([]int, calls)
	for i := range all {
		all[i] = i + 1
	}
	return all
}
