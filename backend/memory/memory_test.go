package memory_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
)

func TestWaitNeedsNoWakeUpForDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		ctx := context.Background()
		if err := driver.FirstError(s.Publish(ctx, []redrive.Message{{Queue: "q", Delay: time.Hour}})); err != nil {
			t.Fatal(err)
		}
		events, err := s.Wait(ctx, []driver.Watch{{Queue: "q"}})
		if err != nil || len(events) != 1 || events[0].NextDueIn != time.Hour || events[0].Lanes != 0 {
			t.Fatalf("got %+v, %v", events, err)
		}
		done := make(chan error)
		go func() {
			_, err := s.Wait(ctx, []driver.Watch{{Queue: "q", Since: events[0].Version}})
			done <- err
		}()
		advance(2 * time.Hour)
		select {
		case err := <-done:
			t.Fatalf("Wait returned %v although nothing was done", err)
		default:
		}
		if got, _ := s.Claim(ctx, driver.ClaimRequest{Queue: "q", Max: 1, Lease: time.Second}); len(got) != 1 {
			t.Fatalf("claimed %d", len(got))
		}
		if err := <-done; err != nil { // the lease's end is earlier than what was known
			t.Fatal(err)
		}
		go func() {
			_, err := s.Wait(ctx, []driver.Watch{{Queue: "other", Since: 1}})
			done <- err
		}()
		synctest.Wait()
		_ = s.Close()
		if err := <-done; err != redrive.ErrClosed { //nolint:errorlint // it is documented bare
			t.Fatalf("Wait after Close: %v", err)
		}
	})
}
