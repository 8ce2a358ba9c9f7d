package onequeue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

func TestWaitReturnsWhatChanged(t *testing.T) {
	look := func() State { return State{Version: 4, NextDueIn: time.Second, Suspects: true} }
	got, err := Wait(t.Context(), "sms", []driver.Watch{{Queue: "sms", Since: 3}, {Queue: "mail"}, {Queue: "fax", Since: 1}}, look)
	want := []driver.Event{{Queue: "sms", Version: 4, NextDueIn: time.Second, Suspects: true}, {Queue: "mail", Version: 1, NextDueIn: driver.Never}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Error(err, d)
	}
}

func TestWaitBlocksUntilAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changed := make(chan struct{})
		now := State{Version: 1, Changed: changed}
		ended := make(chan []driver.Event, 1)
		go func() {
			got, err := Wait(t.Context(), "sms", []driver.Watch{{Queue: "sms", Since: 1}}, func() State { return now })
			if err != nil {
				t.Error(err)
			}
			ended <- got
		}()
		synctest.Wait()
		select {
		case got := <-ended:
			t.Fatal("it returned before anything changed:", got)
		default:
		}
		now = State{Version: 2}
		close(changed)
		if got := <-ended; len(got) != 1 || got[0].Version != 2 {
			t.Error(got)
		}
	})
}

func TestWaitEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Wait(ctx, "sms", []driver.Watch{{Queue: "sms", Since: 1}}, func() State { return State{Version: 1} }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := Wait(t.Context(), "sms", nil, func() State { return State{Closed: true} }); !errors.Is(err, redrive.ErrClosed) {
		t.Error(err)
	}
}

func TestExtendTellsWhatIsNotOurs(t *testing.T) {
	held := func(r *redrive.Receipt) error {
		if r.Token == 2 {
			return redrive.ErrLeaseLost
		}
		return nil
	}
	if errs := Extend([]redrive.Receipt{{Token: 1}, {Token: 2}}, held); errs[0] != nil || !errors.Is(errs[1], redrive.ErrLeaseLost) {
		t.Error(errs)
	}
	if errs := Extend([]redrive.Receipt{{Token: 1}}, held); errs != nil {
		t.Error(errs)
	}
}

func TestRefuse(t *testing.T) {
	if refused, err := Refuse(true, "a", redrive.LaneFresh, &driver.ClaimRequest{Queue: "a"}); !refused || !errors.Is(err, redrive.ErrClosed) {
		t.Error(refused, err)
	}
	for _, c := range []struct {
		req     driver.ClaimRequest
		refused bool
	}{
		{driver.ClaimRequest{Queue: "a"}, false},
		{driver.ClaimRequest{Queue: "a", Lane: redrive.LaneRetry}, false},
		{driver.ClaimRequest{Queue: "a", Lane: redrive.LaneRedrive}, true},
		{driver.ClaimRequest{Queue: "b"}, true},
		{driver.ClaimRequest{Queue: "a", Isolated: true}, true},
		{driver.ClaimRequest{Queue: "a", Dead: true}, true},
		{driver.ClaimRequest{Queue: "a", Expired: true}, true},
	} {
		if refused, err := Refuse(false, "a", redrive.LaneRetry, &c.req); refused != c.refused || err != nil {
			t.Errorf("%+v: %v, %v", c.req, refused, err)
		}
	}
}
