package redislist

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
	"github.com/redrive/redrive/internal/servertest"
)

func TestFullServer(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	s := connect(t, server.URL(), Options{})
	ctx := t.Context()
	noErr(t, driver.FirstError(s.Publish(ctx, []redrive.Message{{Queue: "sms"}, {Queue: "sms"}})))
	noErr(t, server.Client(t).ConfigSet(ctx, "maxmemory", "1").Err())
	for _, m := range []redrive.Message{{Queue: "sms", ID: "now"}, {Queue: "sms", ID: "later", Delay: time.Hour}} {
		if err := driver.FirstError(s.Publish(ctx, []redrive.Message{m})); !errors.Is(err, redrive.ErrFull) {
			t.Errorf("publish on a full server: %v", err)
		}
	}
	ds, err := s.Claim(ctx, driver.ClaimRequest{Queue: "sms", Max: 5, Lease: time.Minute, Instance: "w"})
	noErr(t, err)
	noErr(t, driver.FirstError(s.Extend(ctx, []redrive.Receipt{ds[0].Receipt}, time.Minute)))
	for _, d := range ds {
		noErr(t, driver.FirstError(s.Settle(ctx, []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}})))
	}
	if c, err := s.Counts(ctx, "sms"); err != nil || c != (Counts{}) {
		t.Errorf("left %+v, %v", c, err)
	}
}

// TestRights opens with a user that has just the rights that the documentation names, and
// with one that lacks a command.
func TestRights(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	c := server.Client(t)
	ctx := t.Context()
	rules := []any{"ACL", "SETUSER", "app", "on", ">secret", "~mine:*", "-@all", "+@scripting", "+@list", "+@hash", "+@sortedset", "+@string",
		"+@connection", "+del", "+exists", "+time", "+info", "+blmove"}
	noErr(t, c.Do(ctx, rules...).Err())
	url := "redis://app:secret@" + server.Addr + "/0?prefix=mine"
	s := connect(t, url, Options{})
	noErr(t, driver.FirstError(s.Publish(ctx, []redrive.Message{{Queue: "sms"}})))
	ds, err := s.Claim(ctx, driver.ClaimRequest{Queue: "sms", Max: 5, Lease: time.Minute, Instance: "w"})
	if err != nil || len(ds) != 1 {
		t.Fatal(len(ds), err)
	}
	if _, err := Open(ctx, "redis://app:secret@"+server.Addr+"/0?prefix=theirs", Options{}); err == nil {
		t.Error("opened with keys that the user may not touch")
	}
	noErr(t, c.Do(ctx, "ACL", "SETUSER", "app", "-hset").Err())
	if _, err := Open(ctx, url, Options{}); err == nil {
		t.Error("opened without the right to HSET")
	}
	if _, err := Open(ctx, "redis://app:wrong@"+server.Addr+"/0?prefix=mine", Options{}); err == nil {
		t.Error("opened with a wrong password")
	}
}

// TestTopologies runs the whole way of a message through TLS, a cluster and a sentinel
// pair that fails over.
func TestTopologies(t *testing.T) {
	t.Run("tls", func(t *testing.T) {
		server := redistest.Start(t, redistest.Options{TLS: true})
		wholeWay(t, connect(t, server.URL(), Options{}), "sms")
	})
	t.Run("cluster", func(t *testing.T) {
		servers := redistest.Cluster(t, 3)
		s := connect(t, redistest.ClusterURL(servers), Options{KeepDead: true})
		for i := range 12 { // over all nodes
			wholeWay(t, s, fmt.Sprintf("queue-%d", i))
		}
		used := 0
		for _, server := range servers {
			if n, err := server.Client(t).DBSize(t.Context()).Result(); err == nil && n > 0 {
				used++
			}
		}
		if used != len(servers) {
			t.Errorf("%d of %d nodes hold keys", used, len(servers))
		}
	})
	t.Run("sentinel", func(t *testing.T) {
		pair := redistest.StartPair(t, redistest.Options{})
		s := connect(t, pair.URL()+"?durability=replicated&wait_timeout=5s", Options{})
		ctx := t.Context()
		const n = 50
		for range n {
			noErr(t, driver.FirstError(s.Publish(ctx, []redrive.Message{{Queue: "sms", Body: []byte("b")}})))
		}
		pair.Master.Kill()
		pair.AwaitFailover(t)
		var again *Source // there is no replica to wait for
		servertest.Until(t, "the sentinel to name the new master", func() (ok bool) {
			var err error
			again, err = Open(ctx, pair.URL(), Options{})
			return err == nil
		})
		t.Cleanup(func() { _ = again.Close() })
		seen := 0
		servertest.Until(t, "what was acknowledged before the failover", func() bool {
			ds, err := again.Claim(ctx, driver.ClaimRequest{Queue: "sms", Max: 7, Lease: time.Minute, Instance: "w"})
			seen += len(ds)
			return err == nil && seen == n
		})
		servertest.Until(t, "the first client to find the new master", func() bool {
			_, err := s.Counts(ctx, "sms")
			return err == nil
		})
	})
}

// wholeWay takes messages of a queue through every outcome.
func wholeWay(t *testing.T, s *Source, queue string) {
	t.Helper()
	ctx := t.Context()
	noErr(t, s.conn.LPush(ctx, s.o.List(queue), "foreign").Err())
	noErr(t, driver.FirstError(s.Publish(ctx, []redrive.Message{{Queue: queue, ID: "chosen"}, {Queue: queue}, {Queue: queue, Delay: time.Millisecond}})))
	ask := driver.ClaimRequest{Queue: queue, Max: 10, Lease: time.Minute, Instance: "w"}
	var ds []redrive.Delivery
	servertest.Until(t, "four messages", func() bool {
		got, err := s.Claim(ctx, ask)
		noErr(t, err)
		ds = append(ds, got...)
		return len(ds) == 4
	})
	if p, err := s.Processing(ctx, queue, 10); err != nil || len(p) != 4 {
		t.Errorf("%d in process, %v", len(p), err)
	}
	outcomes := []driver.Settlement{{Outcome: redrive.OutcomeRetry, Failure: &redrive.Failure{Message: "f"}}, {Outcome: redrive.OutcomeRelease},
		{Outcome: redrive.OutcomeRepeat}, {Outcome: redrive.OutcomeDone}}
	for i := range ds {
		outcomes[i].Receipt = ds[i].Receipt
	}
	noErr(t, driver.FirstError(s.Extend(ctx, []redrive.Receipt{ds[0].Receipt}, time.Minute)))
	noErr(t, driver.FirstError(s.Settle(ctx, outcomes)))
	for _, lane := range []redrive.Lane{redrive.LaneFresh, redrive.LaneRetry} {
		ask.Lane = lane
		got, err := s.Claim(ctx, ask)
		noErr(t, err)
		if want := 2 - int(lane); len(got) != want {
			t.Errorf("%d in lane %s, want %d", len(got), lane, want)
		}
		for _, d := range got {
			noErr(t, driver.FirstError(s.Settle(ctx, []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}})))
		}
	}
	if c, err := s.Counts(ctx, queue); err != nil || c != (Counts{}) {
		t.Errorf("left %+v, %v", c, err)
	}
	if v := s.Probe(ctx); len(v) == 0 {
		t.Error("the probe says nothing")
	}
}

// TestWrongType meets a key of another kind where a queue should be.
func TestWrongType(t *testing.T) {
	s := open(t, Options{})
	ctx := t.Context()
	noErr(t, s.conn.Set(ctx, s.o.List("sms"), "not a list", 0).Err())
	if err := driver.FirstError(s.Publish(ctx, []redrive.Message{{Queue: "sms"}})); !redis.HasErrorPrefix(err, "WRONGTYPE") && err == nil {
		t.Errorf("publish: %v", err)
	}
	if _, err := s.Claim(ctx, driver.ClaimRequest{Queue: "sms", Max: 1, Lease: time.Minute, Instance: "w"}); err == nil {
		t.Error("claimed from what is no list")
	}
}

// TestOwnList takes over a list that exists already, with a name of its own.
func TestOwnList(t *testing.T) {
	name := redistest.Prefix() + "-old"
	s := open(t, Options{List: func(queue string) string { return name + "-" + queue }})
	ctx := t.Context()
	noErr(t, s.conn.LPush(ctx, name+"-sms", "a", "b").Err())
	ds, err := s.Claim(ctx, driver.ClaimRequest{Queue: "sms", Max: 5, Lease: time.Minute, Instance: "w"})
	noErr(t, err)
	if len(ds) != 2 || string(ds[0].Body) != "a" || string(ds[1].Body) != "b" || ds[0].ID == ds[1].ID {
		t.Errorf("%+v", ds)
	}
}
