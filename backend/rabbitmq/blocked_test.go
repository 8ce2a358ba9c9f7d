package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/rabbittest"
	"github.com/redrive/redrive/internal/servertest"
)

// TestAMemoryAlarmPushesBack has a node run out of memory: what is published is not known
// or refused as backlogged, what is in flight is settled all the same, and when the alarm is
// over everything goes on, with nothing lost.
func TestAMemoryAlarmPushesBack(t *testing.T) {
	t.Parallel()
	node := rabbittest.Start(t, rabbittest.Options{})
	s := connect(t, addressOf(node), Options{})
	accepted := map[string]bool{"before": true}
	publish(t, s, redrive.Message{ID: "before"})
	d := claim(t, s, redrive.LaneFresh, 1)
	if _, err := node.Control("set_vm_memory_high_watermark", "0"); err != nil {
		t.Fatal(err)
	}
	offered, unknown := 0, 0
	servertest.Until(t, "a message is refused as backlogged", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		id := fmt.Sprintf("during-%d", offered)
		offered++
		err := driver.FirstError(s.Publish(ctx, []redrive.Message{{Queue: s.o.Queue, ID: id}}))
		switch {
		case err == nil: // the node has not noticed yet
			accepted[id] = true
		case errors.Is(err, redrive.ErrUnknown):
			unknown++
		case !errors.Is(err, redrive.ErrBacklogged):
			t.Error(err)
		}
		return errors.Is(err, redrive.ErrBacklogged)
	})
	if err := settle(s, settled(&d[0], redrive.OutcomeDone)); err != nil {
		t.Error("what is in flight cannot be settled:", err)
	}
	delete(accepted, "before")
	if _, err := node.Control("set_vm_memory_high_watermark", "absolute", "1GB"); err != nil {
		t.Fatal(err)
	}
	servertest.Until(t, "messages are taken again", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := driver.FirstError(s.Publish(ctx, []redrive.Message{{Queue: s.o.Queue, ID: "after"}}))
		return err == nil
	})
	accepted["after"] = true
	servertest.Until(t, "all that was accepted comes", func() bool {
		ds, err := s.Claim(t.Context(), driver.ClaimRequest{Queue: s.o.Queue, Max: 100, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for i := range ds {
			delete(accepted, ds[i].ID)
		}
		return len(accepted) == 0
	})
	t.Logf("%d offered during the alarm, of %d nothing is known", offered, unknown)
}
