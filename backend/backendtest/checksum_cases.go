package backendtest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Messages that the disk changed are found before they are delivered.
var checksumCases = []testCase{
	{name: "ChecksumOfWhatWaits", run: checksumWaiting, needs: []need{flip}},
	{name: "ChecksumOfADeadLetter", run: checksumDead, needs: []need{flip}},
	{name: "ChecksumOfAnOriginal", run: checksumOriginal, needs: []need{flip}},
	{name: "ChecksumRefusesARedrive", run: checksumRefuses, needs: []need{flip}},
	{name: "ChecksumEveryWayIn", run: checksumWaysIn, needs: []need{flip}},
	{name: "ChecksumARedriveHidesNothing", run: checksumRedriveHidesNothing, needs: []need{flip}},
	{name: "ChecksumAnEditHidesNothing", run: checksumEditHidesNothing, needs: []need{flip}},
	{name: "ChecksumVerifyNamesThem", run: checksumVerify, needs: []need{flip}},
	{name: "ChecksumKnownIsNoProblem", run: checksumKnown, needs: []need{flip}},
	{name: "ChecksumGoesWithAnEntry", run: checksumGoesAlong},
	{name: "ChecksumFollowsEdits", run: checksumEdits},
	{name: "ChecksumFitsWhateverHappens", run: checksumFits},
	{name: "ChecksumFitsInOrderByKey", run: checksumOrdered, needs: []need{ordered}},
	{name: "CorruptIsAReason", run: corruptIsAReason},
}

// FlipShared is a Factory's Flip for a store that shares its bodies with callers.
func FlipShared(t testing.TB, s driver.Store, ref redrive.Ref, original bool) {
	t.Helper()
	found, err := s.Get(t.Context(), []redrive.Ref{ref})
	if err != nil || found[0] == nil {
		t.Fatalf("get %s: %v", ref, err)
	}
	m := &found[0].Message
	if original {
		m = found[0].Original
	}
	m.Body[0] ^= 1
}

// flip changes a byte of stored messages.
func (c *C) flip(refs ...redrive.Ref) {
	c.Helper()
	for _, ref := range refs {
		c.f.Flip(c, c.store, ref, false)
	}
}

func (c *C) ref(id string) redrive.Ref { return redrive.Ref{Queue: c.q, ID: id} }

// whole is a message with all that a checksum covers.
func whole(id string) redrive.Message {
	m := redrive.Message{ID: id, Kind: "send", Key: "key-" + id, Body: []byte("body of " + id)}
	m.Headers.Add("a", "1")
	m.Headers.Add("a", "")
	m.Headers.Add("b", string([]byte{0, 255}))
	return m
}

// flipped checks that deliveries are reported as corrupt, with one byte that is not as it was.
func (c *C) flipped(ds ...redrive.Delivery) {
	c.Helper()
	for i := range ds {
		d := &ds[i]
		if d.Unfit != redrive.ReasonCorrupt {
			c.Errorf("%s was flipped and is claimed as %q", d.ID, d.Unfit)
		}
	}
}

// changedBytes reports how many bytes of two bodies are not the same.
func changedBytes(a, b []byte) (n int) {
	if len(a) != len(b) {
		return max(len(a), len(b))
	}
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

// fit checks that nothing is wrong with deliveries.
func (c *C) fit(ds ...redrive.Delivery) {
	c.Helper()
	for i := range ds {
		if ds[i].Unfit != 0 {
			c.Errorf("%s is claimed as %q", ds[i].ID, ds[i].Unfit)
		}
	}
}

// dropAll drops what is left, so that the last look at the ledger finds nothing corrupt.
func (c *C) dropAll() {
	c.Helper()
	for {
		got, err := c.store.Update(c.ctx, driver.Selection{Query: &redrive.Query{Limit: 100}}, driver.Change{Action: driver.ActDrop}, 100)
		c.noError(err, "drop")
		if !slices.ContainsFunc(got, func(u driver.Updated) bool { return u.Err == nil }) {
			return
		}
	}
}

func checksumWaiting(c *C) {
	c.publish(whole("a"), whole("b"), whole("c"))
	c.flip(c.ref("b"))
	got := c.get(3, c.ask(3))
	for _, d := range got {
		if d.ID != "b" {
			c.fit(d)
			c.done(d)
			continue
		}
		c.flipped(d)
		if n := changedBytes(d.Body, whole("b").Body); n != 1 {
			c.Errorf("%d bytes are not as they were published, want 1: the body is shown as it is", n)
		}
		c.noError(c.settle(deadly(d, redrive.ReasonCorrupt)), "dead")
	}
	n := c.counts()
	if n.Dead[redrive.ReasonCorrupt] != 1 || n.AllDead() != 1 || n.AllWaiting() != 0 {
		c.Errorf("counts %+v", n)
	}
	if e := c.entry("b"); e.Reason != redrive.ReasonCorrupt || changedBytes(e.Body, whole("b").Body) != 1 || e.Kind != "send" {
		c.Errorf("the dead letter: reason %s, body %q", e.Reason, e.Body)
	}
	if found := c.find(redrive.Query{Queue: c.q, Reason: redrive.ReasonCorrupt}); len(found) != 1 {
		c.Errorf("%d are found by the reason, want 1", len(found))
	}
	c.dropAll()
}

func checksumDead(c *C) {
	c.publish(whole("a"), whole("b"))
	c.kill(2, redrive.ReasonPermanent)
	c.flip(c.ref("b"))
	for _, d := range c.get(2, dead(c.ask(2))) {
		if d.Dead != redrive.ReasonPermanent {
			c.Errorf("%s is dead as %q", d.ID, d.Dead)
		}
		if d.ID == "a" {
			c.fit(d)
		} else {
			c.flipped(d)
		}
		c.noError(c.settle(release(d, 0)), "release")
	}
	c.dropAll()
}

// An original that the disk changed keeps nothing from being delivered.
func checksumOriginal(c *C) {
	c.publish(whole("a"))
	c.noError(c.update(driver.Change{Action: driver.ActEdit, Edit: &redrive.Edit{Body: []byte("edited")}}, "a")[0].Err, "edit")
	c.f.Flip(c, c.store, c.ref("a"), true)
	if found := c.unsound(); !strings.Contains(found, "a") {
		c.Errorf("verify says %q, want it to name a", found)
	}
	d := c.one(c.ask(1))
	c.fit(d)
	c.done(d)
}

func checksumRefuses(c *C) {
	ids := []string{"refused", "confirmed", "edited", "new-id", "moved"}
	for _, id := range ids {
		c.publish(whole(id))
		c.flip(c.ref(id))
	}
	for _, d := range c.get(len(ids), c.ask(len(ids))) {
		c.flipped(d)
		c.noError(c.settle(deadly(d, redrive.ReasonCorrupt)), "dead")
	}
	kind, body := "other", []byte("mended")
	for _, ch := range []driver.Change{{}, {NewID: true}, {To: "other"}, {ConfirmUncertain: true}, {Edit: &redrive.Edit{Kind: &kind}}} {
		ch.Action = driver.ActRedrive
		c.is(c.update(ch, "refused")[0].Err, "redrive of what is corrupt", redrive.ErrBodyCorrupt)
	}
	c.inState("refused", redrive.StateDead)
	if n := c.counts(); n.Dead[redrive.ReasonCorrupt] != int64(len(ids)) {
		c.Errorf("after the refusals: %+v", n)
	}
	var moved []redrive.Ref
	for id, ch := range map[string]driver.Change{
		"confirmed": {ConfirmCorrupt: true},
		"edited":    {Edit: &redrive.Edit{Body: body}},
		"new-id":    {ConfirmCorrupt: true, NewID: true},
		"moved":     {ConfirmCorrupt: true, To: "other"},
	} {
		ch.Action = driver.ActRedrive
		got := c.update(ch, id)
		c.noError(got[0].Err, "redrive of %s", id)
		moved = append(moved, got[0].New)
	}
	got := c.get(3, c.lane(5, redrive.LaneRedrive))
	c.q = "other"
	got = append(got, c.one(c.lane(1, redrive.LaneRedrive)))
	c.fit(got...)
	for _, d := range got {
		if id := string(whole("edited").Body); d.ID == "edited" && string(d.Body) != "mended" || d.ID == "confirmed" && changedBytes(d.Body, []byte("body of confirmed")) != 1 {
			c.Errorf("%s is delivered as %q (published as %q)", d.ID, d.Body, id)
		}
		c.done(d)
	}
	if len(moved) != 4 {
		c.Errorf("redriven: %v", moved)
	}
	c.dropAll()
}

// checksumWaysIn publishes through each way in and flips each.
func checksumWaysIn(c *C) {
	c.publish(whole("published"))
	apply := whole("applied")
	apply.Queue = c.q
	put := whole("put")
	put.Queue = c.q
	lane := put
	lane.ID, lane.Body = "put-retry", []byte("of another lane")
	grave := whole("put-dead")
	grave.Queue = c.q
	_, err := c.store.Apply(c.ctx, driver.Batch{
		Publish: []redrive.Message{apply},
		Put: []redrive.Entry{
			{Message: put, State: redrive.StateWaiting},
			{Message: lane, State: redrive.StateWaiting, Lane: redrive.LaneRetry},
			{Message: grave, State: redrive.StateDead, Reason: redrive.ReasonPermanent},
		},
	})
	c.noError(err, "apply")
	want := []string{"published", "applied", "put", "put-retry", "put-dead"}
	if c.caps.Emits {
		c.publish(redrive.Message{ID: "first", Queue: "emitter"})
		r := c.ask(1)
		r.Queue = "emitter"
		emitted := whole("emitted")
		emitted.Queue = c.q
		s := settled(c.one(r), redrive.OutcomeDone)
		s.Emit = []redrive.Message{emitted}
		c.noError(c.settle(s), "emit")
		want = append(want, "emitted")
	}
	if c.caps.Repeats {
		repeated := whole("repeated")
		repeated.Queue = "repeats"
		c.publish(repeated)
		r := c.ask(1)
		r.Queue = "repeats"
		c.noError(c.settle(settled(c.one(r), redrive.OutcomeRepeat)), "repeat")
		c.flip(redrive.Ref{Queue: "repeats", ID: "repeated"})
		d := c.one(r)
		c.flipped(d)
		c.done(d)
	}
	for _, id := range want {
		c.flip(c.ref(id))
	}
	got := c.claim(c.ask(10))
	got = append(got, c.claim(c.lane(10, redrive.LaneRetry))...)
	got = append(got, c.claim(dead(c.ask(10)))...)
	c.flipped(got...)
	c.sameSet("claimed", ids(got), want)
	c.done(got...)
}

// checksumRedriveHidesNothing redrives what was flipped among the dead letters: whoever redrove it did
// not know.
func checksumRedriveHidesNothing(c *C) {
	ids := []string{"here", "new-id", "moved", "kind", "confirmed-uncertain"}
	for _, id := range ids {
		c.publish(whole(id))
	}
	if c.caps.Repeats {
		c.publish(whole("claimed"))
	}
	waiting := c.counts().AllWaiting()
	c.kill(int(waiting), redrive.ReasonPermanent)
	for _, e := range c.find(redrive.Query{Queue: c.q}) {
		c.flip(e.Ref())
	}
	if c.caps.Repeats {
		for _, d := range c.get(int(waiting), dead(c.ask(10))) {
			c.flipped(d)
			s := settled(d, redrive.OutcomeRelease)
			if d.ID == "claimed" {
				s = settled(d, redrive.OutcomeRepeat)
			}
			c.noError(c.settle(s), "settle")
		}
	}
	kind := "other"
	for id, ch := range map[string]driver.Change{
		"here": {}, "new-id": {NewID: true}, "moved": {To: "other"}, "kind": {Edit: &redrive.Edit{Kind: &kind}}, "confirmed-uncertain": {ConfirmUncertain: true},
	} {
		ch.Action = driver.ActRedrive
		c.noError(c.update(ch, id)[0].Err, "redrive of %s", id)
	}
	got := c.get(int(waiting)-1, c.lane(10, redrive.LaneRedrive))
	c.q = "other"
	got = append(got, c.one(c.lane(1, redrive.LaneRedrive)))
	c.flipped(got...)
	c.done(got...)
}

// checksumEditHidesNothing edits what was flipped: another kind, key or headers do not mend
// a body, a new body does.
func checksumEditHidesNothing(c *C) {
	kind, key, headers := "other", "another", redrive.Headers{{Name: "x", Value: []byte("y")}}
	edits := map[string]*redrive.Edit{"kind": {Kind: &kind}, "key": {Key: &key}, "headers": {Headers: &headers}, "body": {Body: []byte("mended")}}
	for id := range edits {
		c.publish(whole(id))
		c.flip(c.ref(id))
		c.noError(c.update(driver.Change{Action: driver.ActEdit, Edit: edits[id]}, id)[0].Err, "edit of %s", id)
	}
	for _, d := range c.get(4, c.ask(4)) {
		if d.ID == "body" {
			c.fit(d)
		} else {
			c.flipped(d)
		}
		c.done(d)
	}
}

// unsound is what Verify says of checksums.
func (c *C) unsound() string {
	c.Helper()
	audits, err := c.store.Verify(c.ctx, c.q)
	c.noError(err, "verify")
	var found []string
	for i := range audits {
		for _, p := range audits[i].Problems {
			if strings.Contains(p, "checksum") {
				found = append(found, p)
			}
		}
	}
	return strings.Join(found, "; ")
}

func checksumVerify(c *C) {
	for i := range 7 {
		c.publish(whole(fmt.Sprintf("dead-%d", i)))
	}
	c.kill(7, redrive.ReasonPermanent)
	for i := range 7 {
		c.publish(whole(fmt.Sprintf("waiting-%d", i)))
	}
	if found := c.unsound(); found != "" {
		c.Errorf("verify says %q of sound messages", found)
	}
	for _, id := range []string{"dead-5", "waiting-2", "waiting-6"} {
		c.flip(c.ref(id))
	}
	found := c.unsound()
	if !strings.Contains(found, "dead-5") && !strings.Contains(found, "waiting-2") && !strings.Contains(found, "waiting-6") {
		c.Errorf("verify says %q, want one of the flipped messages named", found)
	}
	c.dropAll()
	if found := c.unsound(); found != "" {
		c.Errorf("verify says %q after they are gone", found)
	}
}

// checksumKnown has dead letters that were found to be corrupt, and one that was not.
func checksumKnown(c *C) {
	c.publish(whole("known"), whole("sound"))
	c.flip(c.ref("known"))
	for _, d := range c.get(2, c.ask(2)) {
		c.noError(c.settle(deadly(d, cmp.Or(d.Unfit, redrive.ReasonPermanent))), "dead")
	}
	known := func(want int64) {
		c.Helper()
		audits, err := c.store.Verify(c.ctx, c.q)
		c.noError(err, "verify")
		if audits[0].Corrupt != want {
			c.Errorf("%d are known to be corrupt, want %d", audits[0].Corrupt, want)
		}
	}
	if found := c.unsound(); found != "" {
		c.Errorf("verify says %q of what is dead as corrupt", found)
	}
	known(1)
	c.flip(c.ref("sound"))
	if found := c.unsound(); !strings.Contains(found, "sound") {
		c.Errorf("verify says %q, want the flipped message named", found)
	}
	known(1)
	c.dropAll()
	known(0)
}

// checksumEdits edits each part of what waits, of what is dead, and with a redrive.
func checksumEdits(c *C) {
	kind, none, key, headers := "other", "", "another", redrive.Headers{{Name: "x", Value: []byte("y")}}
	for name, e := range map[string]*redrive.Edit{
		"kind": {Kind: &kind}, "no-kind": {Kind: &none}, "key": {Key: &key}, "no-key": {Key: &none},
		"headers": {Headers: &headers}, "no-headers": {Headers: &redrive.Headers{}},
		"body": {Body: []byte("new")}, "no-body": {Body: []byte{}},
		"all": {Kind: &kind, Key: &key, Headers: &headers, Body: []byte("new")},
	} {
		grave, redriven, renamed, waiting := name+"-dead", name+"-redriven", name+"-renamed", name+"-waiting"
		c.publish(whole(grave), whole(redriven), whole(renamed))
		c.kill(3, redrive.ReasonPermanent)
		c.publish(whole(waiting))
		ch := driver.Change{Action: driver.ActEdit, Edit: e}
		for _, u := range c.update(ch, grave, waiting) {
			c.noError(u.Err, "edit of %s", u.ID)
		}
		c.redrive(grave)
		ch.Action = driver.ActRedrive
		c.noError(c.update(ch, redriven)[0].Err, "redrive with an edit of %s", name)
		ch.NewID = true
		c.noError(c.update(ch, renamed)[0].Err, "redrive with an edit of %s under a new id", name)
		got := append(c.get(1, c.ask(1)), c.get(3, c.lane(3, redrive.LaneRedrive))...)
		c.fit(got...)
		for i := range got {
			if e.Kind != nil && got[i].Kind != *e.Kind {
				c.Errorf("%s: the kind of %s is %q", name, got[i].ID, got[i].Kind)
			}
		}
		c.done(got...)
	}
}

// checksumFits lets everything else happen to messages.
func checksumFits(c *C) {
	c.publish(whole("retried"), whole("killed"), whole("moved"), whole("renamed"), whole("redriven"))
	for _, d := range c.get(5, c.ask(5)) {
		s := retry(d, 0)
		if d.ID != "retried" {
			s = deadly(d, redrive.ReasonPermanent)
		}
		c.noError(c.settle(s), "settle")
	}
	d := c.one(c.lane(1, redrive.LaneRetry))
	c.fit(d)
	c.noError(c.settle(release(d, 0)), "release")
	c.noError(c.update(driver.Change{Action: driver.ActKill}, "retried")[0].Err, "kill")
	for _, d := range c.get(5, dead(c.ask(5))) {
		c.fit(d)
		c.noError(c.settle(release(d, 0)), "release")
	}
	for id, ch := range map[string]driver.Change{"retried": {}, "killed": {}, "redriven": {}, "moved": {To: "other"}, "renamed": {NewID: true}} {
		ch.Action = driver.ActRedrive
		c.noError(c.update(ch, id)[0].Err, "redrive of %s", id)
	}
	got := c.get(4, c.lane(5, redrive.LaneRedrive))
	r := c.lane(1, redrive.LaneRedrive)
	r.Queue = "other"
	got = append(got, c.one(r))
	c.fit(got...)
	c.done(got...)

	if c.caps.Repeats {
		c.publish(whole("repeated"))
		c.noError(c.settle(settled(c.one(c.ask(1)), redrive.OutcomeRepeat)), "repeat")
		d := c.one(c.ask(1))
		c.fit(d)
		c.done(d)
	}
	put := whole("put")
	put.Queue = c.q
	grave := whole("put-dead")
	grave.Queue = c.q
	first := whole("put-dead")
	_, err := c.store.Apply(c.ctx, driver.Batch{Put: []redrive.Entry{
		{Message: put, State: redrive.StateWaiting},
		{Message: grave, State: redrive.StateDead, Reason: redrive.ReasonPermanent, Original: &first},
	}, Entered: driver.EnteredImported})
	c.noError(err, "put")
	d = c.one(c.ask(1))
	c.fit(d)
	c.done(d)
	d = c.one(dead(c.ask(1)))
	c.fit(d)
	c.done(d)
}

// checksumOrdered moves messages of one key, in order, with edits of the key.
func checksumOrdered(c *C) {
	c.configure(driver.QueueSettings{OrderByKey: true})
	msgs := []redrive.Message{whole("a"), whole("b"), whole("c"), whole("d")}
	for i := range msgs {
		msgs[i].Key = "one"
	}
	c.publish(msgs...)
	key := "two"
	c.noError(c.update(driver.Change{Action: driver.ActEdit, Edit: &redrive.Edit{Key: &key}}, "c")[0].Err, "edit")
	c.fit(c.claimAndKill(2)...)
	c.redrive("c")
	c.redrive("a")
	seen := 0
	for range 4 {
		for _, l := range []redrive.Lane{redrive.LaneFresh, redrive.LaneRedrive} {
			got := c.claim(c.lane(5, l))
			seen += len(got)
			c.fit(got...)
			c.done(got...)
		}
	}
	if seen != 4 {
		c.Errorf("%d were delivered, want 4", seen)
	}
}

// claimAndKill dead-letters n messages and returns how they were delivered.
func (c *C) claimAndKill(n int) []redrive.Delivery {
	c.Helper()
	got := c.get(n, c.ask(n))
	for _, d := range got {
		c.noError(c.settle(deadly(d, redrive.ReasonPermanent)), "dead")
	}
	return got
}

// corruptIsAReason goes through what knows the reasons, without a disk that changes anything.
func corruptIsAReason(c *C) {
	c.publish(redrive.Message{ID: "settled", Body: []byte("b")})
	c.noError(c.settle(deadly(c.one(c.ask(1)), redrive.ReasonCorrupt)), "dead")
	c.publish(redrive.Message{ID: "killed", Body: []byte("b")})
	c.noError(c.update(driver.Change{Action: driver.ActKill, Reason: redrive.ReasonCorrupt}, "killed")[0].Err, "kill")
	put := redrive.Entry{Message: redrive.Message{Queue: c.q, ID: "put", Body: []byte("b")}, State: redrive.StateDead, Reason: redrive.ReasonCorrupt}
	errs, err := c.store.Apply(c.ctx, driver.Batch{Put: []redrive.Entry{put}})
	c.noError(err, "apply")
	c.noError(driver.FirstError(errs), "put")
	if n := c.counts(); n.Dead[redrive.ReasonCorrupt] != 3 || n.AllDead() != 3 {
		c.Errorf("counts %+v", n)
	}
	if found := c.find(redrive.Query{Queue: c.q, Reason: redrive.ReasonCorrupt}); len(found) != 3 {
		c.Errorf("%d are found, want 3", len(found))
	}
	if u := c.update(driver.Change{Action: driver.ActRedrive}, "settled", "killed", "put"); u[0].Err == nil || u[1].Err == nil || u[2].Err == nil {
		c.Errorf("redriven unasked: %+v", u)
	}
	for _, u := range c.update(driver.Change{Action: driver.ActRedrive, ConfirmCorrupt: true}, "settled", "killed", "put") {
		c.noError(u.Err, "confirmed redrive")
	}
	got := c.get(3, c.lane(3, redrive.LaneRedrive))
	c.fit(got...)
	c.done(got...)
}
