package daemon

import (
	"fmt"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/wire"
)

// Of more causes than listeners hear of those stay that they know, and they hear that there are more.
func TestListenersKeepTheCausesThatTheyKnow(t *testing.T) {
	a := &app{store: memory.New()}
	die := func(signatures ...string) {
		for _, s := range signatures {
			e := redrive.Entry{Message: redrive.Message{Queue: "sms", ID: s}, State: redrive.StateDead, Reason: redrive.ReasonPermanent}
			e.History.Record(&redrive.Failure{Message: "m", Signature: s}, true)
			if _, err := a.store.Apply(t.Context(), driver.Batch{Put: []redrive.Entry{e}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	look := func() map[string]any {
		all, err := a.watchCauses(t.Context(), time.Now(), 3)
		if err != nil {
			t.Fatal(err)
		}
		items := make(map[string]any)
		all.show(a, &everyone, items)
		return items
	}
	wants := func(more int, signatures ...string) {
		t.Helper()
		items := look()
		said, _ := items[moreKey].(wire.MoreCauses)
		delete(items, moreKey)
		for _, s := range signatures {
			if _, ok := items["sms/permanent/"+s]; !ok {
				t.Errorf("%s is missing in %v", s, items)
			}
		}
		if len(items) != len(signatures) || said.More != more {
			t.Errorf("%d items and %d more, want %q and %d", len(items), said.More, signatures, more)
		}
	}
	die("m", "n")
	wants(0, "m", "n")
	die("a", "b") // which come before them
	items := look()
	if items["sms/permanent/m"] == nil || items["sms/permanent/n"] == nil || len(items) != 4 || fmt.Sprint(items[moreKey]) != "{1}" {
		t.Errorf("%v", items)
	}
	ref := []redrive.Ref{{Queue: "sms", ID: "m"}}
	if _, err := a.store.Update(t.Context(), driver.Selection{Refs: ref}, driver.Change{Action: driver.ActDrop}, 1); err != nil {
		t.Fatal(err)
	}
	wants(0, "a", "b", "n")
}
