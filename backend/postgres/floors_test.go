package postgres

import (
	"testing"
	"time"

	"github.com/redrive/redrive"
)

// A message that a lane gets late must be found although the lane was found to begin
// later.
func TestFreedHeadsAreNotBelowTheFloor(t *testing.T) {
	s := open(t)
	noErr(t, s.Configure(t.Context(), "a", redrive.QueueSettings{OrderByKey: true}))
	noErr(t, redrive.FirstError(s.Publish(t.Context(), []redrive.Message{
		{Queue: "a", ID: "head", Key: "k", Delay: 2 * floorMargin}, {Queue: "a", ID: "behind", Key: "k"},
	})))
	var got []redrive.Delivery
	for deadline := time.Now().Add(20 * time.Second); len(got) == 0 && time.Now().Before(deadline); {
		got = claim(t, s, "a")
	}
	if len(got) != 1 || got[0].ID != "head" {
		t.Fatalf("claimed %+v", got)
	}
	// As if reading the whole lane had been dear.
	req := redrive.ClaimRequest{Queue: "a", Max: 1}
	s.floors.learn(&req, true, time.Minute, []claimed{{due: got[0].LeasedAt}})
	noErr(t, redrive.FirstError(s.Settle(t.Context(), []redrive.Settlement{{Receipt: got[0].Receipt, Outcome: redrive.OutcomeDone}})))
	if next := claim(t, s, "a"); len(next) != 1 || next[0].ID != "behind" {
		t.Errorf("claimed %+v, want what was behind the head", next)
	}
}

func TestFloorsMoveOnAndAreReadAnew(t *testing.T) {
	var f floors
	req := redrive.ClaimRequest{Queue: "a", Max: 2}
	due := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	row := func(d time.Duration) claimed { return claimed{due: due.Add(d)} }
	f.learn(&req, true, floorWorth/2, []claimed{row(0)})
	if _, whole := f.from(&req); !whole {
		t.Errorf("a lane that is cheap to read is not read as a whole")
	}
	f.learn(&req, true, time.Minute, []claimed{row(0), row(time.Second)})
	if from, whole := f.from(&req); whole || !from.Equal(due.Add(-floorMargin)) {
		t.Errorf("from %s, whole %t", from, whole)
	}
	f.learn(&req, false, time.Millisecond, []claimed{row(time.Hour), row(2 * time.Hour)})
	if from, _ := f.from(&req); !from.Equal(due.Add(time.Hour - floorMargin)) {
		t.Errorf("it did not move: %s", from)
	}
	f.learn(&req, false, time.Millisecond, []claimed{row(time.Minute), row(time.Hour)})
	if from, _ := f.from(&req); !from.Equal(due.Add(time.Hour - floorMargin)) {
		t.Errorf("it moved back: %s", from)
	}
	kinds := req
	kinds.Kinds = []string{"k"}
	if _, whole := f.from(&kinds); !whole {
		t.Errorf("a filter hides rows from the floor")
	}
	f.forget("a")
	if _, whole := f.from(&req); !whole {
		t.Errorf("it was not forgotten")
	}
}
