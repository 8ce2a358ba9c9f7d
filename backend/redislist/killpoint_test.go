package redislist

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
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
	publishScript, claimScript, suspectScript, settleScript, extendScript, lookScript, orderScript, pageScript, raiseScript, rightsScript,
}

// killed is a process that goes once through every script of a source, says what it does,
// and may be killed at a point: address, and the words of the point.
var killed = childtest.Part{Name: "killed", Run: func(ctx context.Context, words []string) error {
	s, err := Open(ctx, words[0], Options{KeepDead: true})
	if err != nil {
		return err
	}
	var at redistest.Point
	if len(words) > 1 {
		if at, err = redistest.ParsePoint(words[1:]); err != nil {
			return err
		}
	}
	names := map[string]string{}
	for _, x := range scripts {
		names[s.conn.Digest(x)] = x.Name()
	}
	k := redistest.NewKiller(at, names)
	s.conn.AddHook(k)
	p := &pass{s}
	for _, step := range []func(context.Context) error{s.checkRights, p.publish, p.settle, p.recover, p.tend} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	k.Say()
	return nil
}}

// pass is one way through all that a source does.
type pass struct{ s *Source }

func (p *pass) publish(ctx context.Context) error {
	msgs := make([]redrive.Message, 12)
	for i := range msgs {
		msgs[i] = redrive.Message{Queue: "sms", Body: []byte("same")}
	}
	msgs[0].ID, msgs[11].Delay = "chosen", time.Microsecond
	return redistest.PublishAloud(ctx, p.s, msgs)
}

// passLease may run out during a pass: nobody else claims then. What it leaves is waited for.
const passLease = 200 * time.Millisecond

func (p *pass) claim(ctx context.Context, r driver.ClaimRequest) ([]redrive.Delivery, error) {
	r.Queue, r.Instance = "sms", "child"
	if r.Lease == 0 {
		r.Lease = passLease
	}
	ds, err := p.s.Claim(ctx, r)
	if err == nil && len(ds) == 0 {
		err = errors.New("nothing to claim")
	}
	return ds, err
}

func (p *pass) end(ctx context.Context, o redrive.Outcome, ds ...redrive.Delivery) error {
	return redistest.SettleAloud(ctx, p.s, redistest.Outcomes(o, ds...))
}

func (p *pass) settle(ctx context.Context) error {
	ds, err := p.claim(ctx, driver.ClaimRequest{Max: 10})
	if err != nil {
		return err
	}
	err = driver.FirstError(p.s.Extend(ctx, []redrive.Receipt{ds[0].Receipt}, passLease))
	if err != nil && !errors.Is(err, redrive.ErrLeaseLost) { // it ran out
		return err
	}
	err = errors.Join(
		p.end(ctx, redrive.OutcomeDone, ds[0], ds[1]),
		p.end(ctx, redrive.OutcomeRetry, ds[2]),
		p.end(ctx, redrive.OutcomeRelease, ds[3]),
		p.end(ctx, redrive.OutcomeDead, ds[4:7]...),
		p.end(ctx, redrive.OutcomeDrop, ds[7]),
		p.end(ctx, redrive.OutcomeRepeat, ds[8]),
	)
	if err != nil {
		return err
	}
	retries, err := p.claim(ctx, driver.ClaimRequest{Max: 5, Lane: redrive.LaneRetry})
	if err != nil {
		return err
	}
	return p.end(ctx, redrive.OutcomeDone, retries...)
}

// recover takes over from a holder that is gone.
func (p *pass) recover(ctx context.Context) error {
	gone, err := p.claim(ctx, driver.ClaimRequest{Max: 1, Lease: minLease})
	if err != nil {
		return err
	}
	for end := gone[0].LeasedAt.Add(minLease); ; {
		now, err := p.s.conn.Time(ctx).Result()
		if err != nil {
			return err
		}
		if now.After(end) {
			break
		}
	}
	ds, err := p.claim(ctx, driver.ClaimRequest{Max: 1, Isolated: true})
	if err != nil {
		return err
	}
	return p.end(ctx, redrive.OutcomeRelease, ds...)
}

// tend looks at what there is, and changes what is dead.
func (p *pass) tend(ctx context.Context) error {
	_, err := p.s.Counts(ctx, "sms")
	_, err2 := p.s.Processing(ctx, "sms", 5)
	dead, err3 := p.s.DeadLetters(ctx, "sms", 5)
	if err := errors.Join(err, err2, err3); err != nil || len(dead) < 3 {
		return errors.Join(err, fmt.Errorf("%d dead", len(dead)))
	}
	if err := driver.FirstError(p.s.Redrive(ctx, "sms", dead[0].ID)); err != nil {
		return err
	}
	fmt.Println("ending", dead[1].ID)
	err = driver.FirstError(p.s.Drop(ctx, "sms", dead[1].ID))
	if err == nil {
		fmt.Println("ended", dead[1].ID)
	}
	return err
}

// drain delivers and ends all that waits, by several at once, and returns how often each
// message was claimed, and who is dead.
func drain(t *testing.T, s *Source) (drained map[string]int, dead []string) {
	drained = map[string]int{}
	var mu sync.Mutex
	work := func(instance string) {
		for lane := range driver.Lanes + 1 {
			r := driver.ClaimRequest{Queue: "sms", Lane: redrive.Lane(lane), Max: 10, Lease: time.Hour, Instance: instance}
			if lane == driver.Lanes {
				r.Lane, r.Isolated = 0, true
			}
			ds, err := s.Claim(t.Context(), r)
			if err != nil {
				t.Error(err)
			}
			for i := range ds {
				mu.Lock()
				drained[ds[i].ID]++
				mu.Unlock()
			}
			if err := driver.FirstError(s.Settle(t.Context(), redistest.Outcomes(redrive.OutcomeDone, ds...))); err != nil {
				t.Error(err)
			}
		}
	}
	servertest.Until(t, "everything is claimed", func() bool {
		var wg sync.WaitGroup
		wg.Go(func() { work("one") })
		wg.Go(func() { work("two") })
		wg.Wait()
		c, err := s.Counts(t.Context(), "sms")
		noErr(t, err)
		c.Dead = 0
		return c == Counts{} || t.Failed()
	})
	list, err := s.DeadLetters(t.Context(), "sms", 100)
	noErr(t, err)
	for i := range list {
		dead = append(dead, list[i].ID)
	}
	return drained, dead
}

// TestKillAtEveryScript kills a process before and after it calls each script: of every
// script one call, drawn by lot, and in a proof of every call. Then each message that was
// acknowledged is found exactly once, and none is held twice.
func TestKillAtEveryScript(t *testing.T) {
	src, err := os.ReadFile("script.go")
	noErr(t, err)
	if made := regexp.MustCompile(`redisconn\.New(Script|Reader)\(`).FindAllIndex(src, -1); len(made) != len(scripts) {
		t.Fatalf("script.go makes %d scripts, the list has %d", len(made), len(scripts))
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	address := func() string { return redistest.Shared(t).URL() + "?prefix=" + redistest.Prefix() }
	whole := redistest.Child(t, killed, address())
	if whole.Killed {
		t.Fatal("the child that nobody kills was killed")
	}
	for _, x := range scripts {
		calls := whole.Calls[x.Name()]
		if calls == 0 {
			t.Errorf("no call of %s in a pass: add one", x.Name())
			continue
		}
		first, last := 1, calls
		if os.Getenv("REDRIVE_PROOF_ROUNDS") == "" {
			first = 1 + rng.IntN(calls)
			last = first
		}
		for call := first; call <= last; call++ {
			for _, after := range []bool{false, true} {
				p := redistest.Point{Script: x.Name(), Call: call, After: after}
				t.Run(strings.ReplaceAll(p.String(), " ", "-"), func(t *testing.T) {
					t.Parallel()
					url := address()
					said := redistest.Child(t, killed, append([]string{url}, strings.Fields(p.String())...)...)
					drained, dead := drain(t, connect(t, url, Options{KeepDead: true}))
					said.Account(t, drained, dead)
					if !said.Killed {
						t.Errorf("the child was not killed; its calls: %v", said.Calls)
					}
				})
			}
		}
	}
}
