package redisstream

import (
	"errors"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/redistest"
)

func TestAStoreOfAnEarlierBuildIsRefused(t *testing.T) {
	s := open(t)
	for layout, tells := range map[string]bool{"1": true, "2": true, "9": false} {
		noErr(t, s.conn.HSet(t.Context(), s.prefix+":meta", "schema", layout).Err())
		_, err := Open(t.Context(), redistest.Shared(t).URL(), WithPrefix(s.conn.Config.Prefix))
		e, ok := errors.AsType[*redrive.Error](err)
		if !errors.Is(err, redrive.ErrUnsupported) || !ok || e.Hint == "" {
			t.Fatalf("layout %s: %v", layout, err)
		}
		if earlier := e.Hint[:2] == "an"; earlier != tells {
			t.Errorf("layout %s: %s", layout, e.Hint)
		}
	}
}

// A handler has the bytes of the copy that a retry is written from.
func TestWhatAHandlerDidToItsBodyIsNotStored(t *testing.T) {
	s := open(t)
	publishBodies(t, s, 2, nil)
	ds := claim(t, s, ask(2))
	before := ds[0].Body[0]
	ds[0].Body[0] ^= 1
	settle(t, s, redrive.OutcomeRetry, ds...)
	r := ask(2)
	r.Lane = redrive.LaneRetry
	for _, d := range claim(t, s, r) {
		if d.Unfit != 0 || d.Body[0] != before {
			t.Errorf("%s is %q, its body begins with %q", d.ID, d.Unfit, d.Body[0])
		}
	}
}

// What the disk changed in the stream is found at its first claim, and after one that ended
// without a settlement; its dead letter keeps the checksum that it does not match.
func TestAFlippedEntryStaysCorrupt(t *testing.T) {
	s := open(t)
	msgs := publish(t, s, 20)
	settle(t, s, redrive.OutcomeDone, claim(t, s, ask(5))...) // deleted entries stay in the stream's bytes
	flip(t, s, msgs[7].Ref(), false)
	ds := claim(t, s, ask(10))
	flip(t, s, msgs[12].Ref(), false)
	settle(t, s, redrive.OutcomeDead, ds[2], ds[0])
	settle(t, s, redrive.OutcomeRelease, ds[7])
	a, err := s.Verify(t.Context(), "sms")
	noErr(t, err)
	if len(a[0].Problems) != 1 || !strings.Contains(a[0].Problems[0], "2 messages do not match their checksum") {
		t.Errorf("%q", a[0].Problems)
	}
	settle(t, s, redrive.OutcomeRelease, ds[1], ds[3], ds[4], ds[5], ds[6], ds[8], ds[9])
	r := ask(20)
	r.Dead = true
	for _, d := range append(append(claim(t, s, ask(20)), claim(t, s, r)...), ds...) {
		want := d.ID == msgs[7].ID || d.ID == msgs[12].ID && d.Attempt == 1 && d.Receipt.Token > 1
		if got := d.Unfit == redrive.ReasonCorrupt; got != want {
			t.Errorf("%s, attempt %d, token %d: %q", d.ID, d.Attempt, d.Receipt.Token, d.Unfit)
		}
	}
}
