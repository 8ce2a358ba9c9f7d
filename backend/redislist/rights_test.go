package redislist

import (
	"errors"
	"maps"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
)

// constant names one list, whatever it is asked for.
func constant(list string) Options {
	return Options{List: func(string) string { return list }, KeepDead: true}
}

// TestOpenDoesNotTouchTheList opens a list that is there, by a function that names it for
// every queue, also for the one of the check of rights.
func TestOpenDoesNotTouchTheList(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	c := server.Client(t)
	for _, list := range []string{"old", "tag:{old}", "rights:RIGHTS"} {
		noErr(t, c.LPush(t.Context(), list, "a", "b", "c").Err())
	}
	before := redistest.Contents(t, c, "*")
	for _, list := range []string{"old", "tag:{old}", "rights:RIGHTS"} {
		s := connect(t, server.URL(), constant(list))
		if len(s.Probe(t.Context())) == 0 {
			t.Error("the probe says nothing")
		}
	}
	connect(t, server.URL(), Options{List: func(queue string) string { return "rights:" + queue }})
	if after := redistest.Contents(t, c, "*"); !maps.Equal(before, after) {
		t.Errorf("it held %q, and after an open %q", before, after)
	}
}

// TestOpenLeavesWhatIsInFlight has processes start while others have messages in flight,
// waiting for a retry and dead.
func TestOpenLeavesWhatIsInFlight(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	ctx := t.Context()
	first := connect(t, server.URL(), constant("old"))
	const n = 60
	for range n {
		noErr(t, driver.FirstError(first.Publish(ctx, []redrive.Message{{Queue: "sms", Body: []byte("b")}})))
	}
	ask := driver.ClaimRequest{Queue: "sms", Max: 44, Lease: time.Minute, Instance: "w"}
	held, err := first.Claim(ctx, ask)
	noErr(t, err)
	noErr(t, driver.FirstError(first.Settle(ctx, []driver.Settlement{
		{Receipt: held[0].Receipt, Outcome: redrive.OutcomeRetry, After: time.Hour, Failure: &redrive.Failure{Message: "f"}},
		{Receipt: held[1].Receipt, Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent, Failure: &redrive.Failure{Message: "f"}},
	})))
	before := redistest.Contents(t, server.Client(t), "*")
	var started sync.WaitGroup
	for range 8 {
		started.Go(func() {
			s, err := Open(ctx, server.URL(), constant("old"))
			if err != nil {
				t.Error(err)
				return
			}
			s.Probe(ctx)
			_ = s.Close()
		})
	}
	started.Wait()
	if after := redistest.Contents(t, server.Client(t), "*"); !maps.Equal(before, after) {
		t.Errorf("it held %q, and after an open %q", before, after)
	}
	for _, d := range held[2:] {
		noErr(t, driver.FirstError(first.Settle(ctx, []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDone}})))
	}
	rest, err := first.Claim(ctx, ask)
	noErr(t, err)
	if c, err := first.Counts(ctx, "sms"); err != nil || len(held)+len(rest) != n || c.Retries != 1 || c.Dead != 1 || c.Processing != int64(len(rest)) {
		t.Errorf("%d and %d of %d were claimed, %+v, %v", len(held), len(rest), n, c, err)
	}
}

// TestRefusedCheckLeavesNothing takes each command of the check away from a user.
func TestRefusedCheckLeavesNothing(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	c := server.Client(t)
	ctx := t.Context()
	noErr(t, c.Do(ctx, "ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all").Err())
	noErr(t, c.LPush(ctx, "old", "a").Err())
	before := redistest.Contents(t, c, "*")
	tried := map[string]bool{}
	for _, m := range regexp.MustCompile(`redis\.call\('([A-Z]+)'`).FindAllStringSubmatch(rightsLua, -1) {
		name := strings.ToLower(m[1])
		if tried[name] {
			continue
		}
		tried[name] = true
		noErr(t, c.Do(ctx, "ACL", "SETUSER", "app", "-"+name).Err())
		refused(t, "redis://app:secret@"+server.Addr, constant("old"), "can't run this command")
		noErr(t, c.Do(ctx, "ACL", "SETUSER", "app", "+"+name).Err())
	}
	if len(tried) < 15 {
		t.Errorf("only %v were tried", tried)
	}
	if after := redistest.Contents(t, c, "*"); !maps.Equal(before, after) {
		t.Errorf("it held %q, and after checks that were refused %q", before, after)
	}
}

// TestRightsToTheList has a user who may touch what stands beside a list, and not the list.
func TestRightsToTheList(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	c := server.Client(t)
	ctx := t.Context()
	url := "redis://app:secret@" + server.Addr
	for patterns, want := range map[string]string{
		"~old ~{old}:*":   "",
		"~{old}:*":        "permissions to access",
		"%R~old ~{old}:*": "permissions to access",
		"%W~old ~{old}:*": "permissions to access",
		"~old":            "permissions to access",
	} {
		rules := []any{"ACL", "SETUSER", "app", "reset", "on", ">secret", "+@all", "-@dangerous", "+info"}
		for p := range strings.FieldsSeq(patterns) {
			rules = append(rules, p)
		}
		noErr(t, c.Do(ctx, rules...).Err())
		if want != "" {
			refused(t, url, constant("old"), want)
			continue
		}
		s := connect(t, url, constant("old"))
		noErr(t, driver.FirstError(s.Publish(ctx, []redrive.Message{{Queue: "sms"}})))
		noErr(t, s.Close())
	}
}

// refused opens in vain, and looks for what the error says.
func refused(t *testing.T, url string, o Options, want string) {
	t.Helper()
	s, err := Open(t.Context(), url, o)
	if err == nil {
		_ = s.Close()
		t.Errorf("opened, though %q", want)
		return
	}
	e, ok := errors.AsType[*redrive.Error](err)
	if !ok || !strings.Contains(err.Error(), want) || !strings.Contains(e.Hint, "docs/redis-lists.md") {
		t.Errorf("%v, want %q and a hint", err, want)
	}
}
