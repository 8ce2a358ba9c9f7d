package redisstream

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
)

func TestAStoreOfAnEarlierBuildIsRefused(t *testing.T) {
	s := open(t)
	for layout, tells := range map[string]bool{"1": true, "2": true, "3": true, "4": true, "9": false} {
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

// TestADamagedEnvelopeIsCorrupt flips each byte of an envelope in turn: its queue goes on, and what
// is not as it was published is not claimed as if it were.
func TestADamagedEnvelopeIsCorrupt(t *testing.T) {
	s := open(t)
	ctx, q := t.Context(), s.queue("sms")
	published := redrive.Message{Queue: "sms", Kind: "kind", Body: []byte("body"), ReplyTo: "mail"}
	published.Headers.Add("a", "1")
	corrupt := 0
	for at := 0; ; at++ {
		m := published
		m.ID = fmt.Sprintf("m%d", at)
		noErr(t, driver.FirstError(s.Publish(ctx, []redrive.Message{m, {Queue: "sms", ID: "beside-" + m.ID}})))
		blob := []byte(s.conn.HGet(ctx, q.keys[keyWaiting], m.ID).Val())
		if headLength+at >= len(blob) {
			break
		}
		blob[headLength+at] ^= 1
		noErr(t, s.conn.HSet(ctx, q.keys[keyWaiting], m.ID, blob).Err())
		ds := claim(t, s, ask(10))
		if len(ds) != 2 || ds[1].Unfit != 0 {
			t.Fatalf("byte %d flipped: %+v", at, ds)
		}
		d := &ds[0]
		if same := d.Kind == m.Kind && string(d.Body) == "body" && reflect.DeepEqual(d.Headers, m.Headers); !same && d.Unfit != redrive.ReasonCorrupt {
			t.Errorf("byte %d flipped: %q is claimed as %q", at, d.Body, d.Unfit)
		}
		if d.Unfit == 0 {
			settle(t, s, redrive.OutcomeDone, ds...)
			continue
		}
		corrupt++
		noErr(t, driver.FirstError(s.Settle(ctx, []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDead, Reason: redrive.ReasonCorrupt}, {Receipt: ds[1].Receipt, Outcome: redrive.OutcomeDone}})))
		got, err := s.Update(ctx, driver.Selection{Refs: []redrive.Ref{d.Ref()}}, driver.Change{Action: driver.ActRedrive}, 1)
		if noErr(t, err); !errors.Is(got[0].Err, redrive.ErrBodyCorrupt) {
			t.Errorf("byte %d flipped: redriven, %v", at, got[0].Err)
		}
	}
	if n, err := s.Count(ctx, redrive.Query{Reason: redrive.ReasonCorrupt}); err != nil || n.N != int64(corrupt) || corrupt < 10 {
		t.Errorf("%d are dead, want %d (%v)", n.N, corrupt, err)
	}
}
