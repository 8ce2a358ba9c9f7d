package redislist

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
	"github.com/redrive/redrive/internal/servertest"
)

// existing opens a list that others push to.
func existing(t *testing.T, list, more string, o Options) *Source {
	t.Helper()
	return connect(t, redistest.Shared(t).URL()+"?list="+list+more, o)
}

// A list of others is read from the end that the address names, its elements are bodies whatever
// they look like, and nothing is pushed to it.
func TestAnExistingListIsTakenAsItIs(t *testing.T) {
	c := redistest.Shared(t).Client(t)
	ctx := t.Context()
	elements := []any{"1", magic + "c0000000000000000003abc", `{"id":"x"}`, "\xff\x00", magic}
	for _, from := range []string{"", "&from=right", "&from=left"} {
		list := "jobs-" + redistest.Prefix()
		push := c.LPush
		if from == "&from=left" {
			push = c.RPush
		}
		noErr(t, push(ctx, list, elements...).Err())
		s := existing(t, list, from, Options{KeepDead: true})
		if caps := s.Caps(); !caps.ReadOnly || caps.Remembers {
			t.Errorf("%+v", caps)
		}
		if err := driver.FirstError(s.Publish(ctx, []redrive.Message{{Queue: "sms", Body: []byte("x")}})); !errors.Is(err, redrive.ErrUnsupported) {
			t.Error("published:", err)
		}
		ids := make(map[string]bool)
		for _, want := range elements {
			ds, err := s.Claim(ctx, driver.ClaimRequest{Queue: "sms", Max: 1, Lease: time.Minute, Instance: "w"})
			if err != nil || len(ds) != 1 || string(ds[0].Body) != want || ds[0].Unfit != 0 || ds[0].Kind != "" || ids[ds[0].ID] || !strings.HasPrefix(ds[0].ID, "f") {
				t.Fatalf("%s: %+v, %v, want %q", from, ds, err, want)
			}
			ids[ds[0].ID] = true
			noErr(t, driver.FirstError(s.Settle(ctx, []driver.Settlement{{Receipt: ds[0].Receipt, Outcome: redrive.OutcomeDead, Reason: redrive.ReasonPermanent}})))
		}
		dead, err := s.DeadLetters(ctx, "sms", 10)
		noErr(t, err)
		for i := range dead {
			if string(dead[i].Body) != elements[i] || !ids[dead[i].ID] {
				t.Errorf("%d: %+v", i, dead[i])
			}
			noErr(t, driver.FirstError(s.Drop(ctx, "sms", dead[i].ID)))
		}
		if n, err := c.Exists(ctx, list).Result(); n != 0 || err != nil || len(dead) != len(elements) {
			t.Error(n, err, len(dead))
		}
	}
}

// With an engine: what fails is retried and parked, producers go on pushing, and each element is
// handled.
func TestAnExistingListFeedsAnEngine(t *testing.T) {
	c := redistest.Shared(t).Client(t)
	list := "jobs-" + redistest.Prefix()
	store, s := memory.New(), existing(t, list, "", Options{})
	var done sync.Map
	run(t, store, s, func(_ context.Context, d *redrive.Delivery) error {
		if body := string(d.Body); strings.HasPrefix(body, "bad") || d.Attempt == 1 && strings.HasSuffix(body, "0") {
			return errSick
		}
		done.Store(string(d.Body), true)
		return nil
	}, redrive.Policy{MaxAttempts: 2})
	const n = 50
	for i := range n {
		noErr(t, c.LPush(t.Context(), list, fmt.Sprint("good", i)).Err())
	}
	noErr(t, c.LPush(t.Context(), list, "bad").Err())
	servertest.Until(t, "everything to be handled", func() bool {
		handled := 0
		done.Range(func(any, any) bool { handled++; return true })
		c := counts(t, store)
		return handled == n && c.AllDead() == 1
	})
	isEmpty(t, s)
	if n, err := c.Exists(t.Context(), list).Result(); n != 0 || err != nil {
		t.Error(n, err)
	}
}

// A claim that broke off puts back where it took from.
func TestAnExistingListKeepsItsOrder(t *testing.T) {
	c := redistest.Shared(t).Client(t)
	ctx := t.Context()
	for _, from := range []string{left, right} {
		list := "jobs-" + redistest.Prefix()
		s := existing(t, list, "&from="+from, Options{})
		k := newKeys(list)
		noErr(t, c.RPush(ctx, list, "a", "b", "c").Err())
		noErr(t, c.SetBit(ctx, k.body, 3, 1).Err())
		request := driver.ClaimRequest{Queue: "sms", Max: 3, Lease: time.Minute, Instance: "w"}
		if _, err := s.Claim(ctx, request); err == nil {
			t.Fatal("the claim did not break off")
		}
		noErr(t, c.Del(ctx, k.body).Err())
		request.Lane = redrive.LaneRetry
		_, err := s.Claim(ctx, request)
		noErr(t, err)
		if got, err := c.LRange(ctx, list, 0, -1).Result(); err != nil || !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("%s: %q %v", from, got, err)
		}
	}
}

func TestAddressesOfExistingListsAreChecked(t *testing.T) {
	server := redistest.Shared(t)
	name := "stream-" + redistest.Prefix()
	noErr(t, server.Client(t).Do(t.Context(), "XADD", name, "*", "a", "b").Err())
	for _, query := range []string{"list=", "list=a&from=top", "from=left", "list=a&from=", "list=a&prefix=b", "list=" + name} {
		if _, err := Open(t.Context(), server.URL()+"?"+query, Options{}); !errors.Is(err, redrive.ErrInvalid) && (err == nil || !strings.Contains(err.Error(), "invalid")) {
			t.Errorf("%s: %v", query, err)
		}
	}
	if _, err := Open(t.Context(), server.URL()+"?list=a", constant("b")); !errors.Is(err, redrive.ErrInvalid) {
		t.Error(err)
	}
}
