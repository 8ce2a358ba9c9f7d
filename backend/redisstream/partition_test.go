package redisstream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/redistest"
)

// openParts opens a new store with partitions on the shared server.
func openParts(t testing.TB, n int) *Store {
	t.Helper()
	return openAt(t, fmt.Sprintf("%s?partitions=%d", redistest.Shared(t).URL(), n), redistest.Prefix())
}

// apartIDs returns an id and a key that lead to different partitions.
func apartIDs(t testing.TB, s *Store) (id, key string) {
	t.Helper()
	for i := range 1000 {
		if key = fmt.Sprint("key", i); s.hashed(key) != s.leads("chosen") {
			return "chosen", key
		}
	}
	t.Fatal("all keys lead to one partition")
	return "", ""
}

func TestNumberOfPartitionsIsKept(t *testing.T) {
	url, prefix := redistest.Shared(t).URL(), redistest.Prefix()
	s := openAt(t, url+"?partitions=3", prefix)
	publish(t, s, 3)
	for _, other := range []string{"", "?partitions=2", "?partitions=4"} {
		_, err := Open(t.Context(), url+other, WithPrefix(prefix))
		if e, ok := errors.AsType[*redrive.Error](err); !ok || !errors.Is(err, redrive.ErrInvalid) || !strings.Contains(e.Hint, "partitions=3") {
			t.Errorf("opened with %q: %v", other, err)
		}
	}
	openAt(t, url+"?partitions=3", prefix)
	// A store of a program that knew no partitions has one.
	s = open(t)
	noErr(t, s.conn.HDel(t.Context(), s.prefix+":meta", "partitions").Err())
	openAt(t, url, s.conn.Config.Prefix)
	if _, err := Open(t.Context(), url+"?partitions=2", WithPrefix(s.conn.Config.Prefix)); !errors.Is(err, redrive.ErrInvalid) {
		t.Errorf("an old store opened with two: %v", err)
	}
	for _, bad := range []string{"0", "65", "many"} {
		if _, err := Open(t.Context(), url+"?partitions="+bad); !errors.Is(err, redrive.ErrInvalid) {
			t.Errorf("partitions=%s: %v", bad, err)
		}
	}
}

func TestPartitionsAreOnSeveralNodes(t *testing.T) {
	s := openAt(t, redistest.ClusterURL(redistest.Cluster(t, 3))+"?partitions=6", "nodes")
	for i := range 60 {
		m := redrive.Message{Queue: "sms", Body: []byte("b")}
		switch i % 3 {
		case 1:
			m.Key = fmt.Sprint("key", i)
		case 2:
			m.ID = fmt.Sprint("id", i)
		}
		noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{m})))
	}
	m, err := s.Monitor(t.Context(), "sms")
	noErr(t, err)
	nodes := map[string]bool{}
	sum := int64(0)
	for _, p := range m.Partitions {
		if p.Entries+p.Indexed == 0 {
			t.Errorf("partition %d has nothing", p.Number)
		}
		nodes[p.Node] = true
		sum += p.Entries + p.Indexed
	}
	if len(m.Partitions) != 6 || len(nodes) < 2 || sum != 60 || m.Entries+m.Indexed != 60 {
		t.Errorf("on %v: %+v", nodes, m)
	}
	// What users see has one queue.
	counts, err := s.Counts(t.Context())
	noErr(t, err)
	events, err := s.Wait(t.Context(), []driver.Watch{{Queue: "sms"}})
	noErr(t, err)
	if len(counts) != 1 || counts[0].Queue != "sms" || counts[0].AllWaiting() != 60 || len(events) != 1 || events[0].Queue != "sms" {
		t.Errorf("%+v %+v", counts, events)
	}
	ds := claim(t, s, ask(60))
	if len(ds) != 60 {
		t.Fatalf("%d claimed", len(ds))
	}
	settle(t, s, redrive.OutcomeDone, ds[10:]...)
	settle(t, s, redrive.OutcomeDead, ds[:10]...)
	if a := balanced(t, s); a.Dead != 10 || a.Waiting != 0 {
		t.Errorf("%+v", a)
	}
}

// TestClusterPublishesWhatIsEmittedFirst settles and applies over nodes that no script
// reaches at once.
func TestClusterPublishesWhatIsEmittedFirst(t *testing.T) {
	s := openAt(t, redistest.ClusterURL(redistest.Cluster(t, 3))+"?partitions=6", "emits")
	if s.Caps().Emits {
		t.Error("it says that it emits in the same step")
	}
	publish(t, s, 2)
	ds := claim(t, s, ask(2))
	emits := make([]redrive.Message, 20)
	for i := range emits {
		emits[i] = redrive.Message{Queue: "out", ID: fmt.Sprint("out", i), Key: fmt.Sprint("key", i%3)}
	}
	settlement := driver.Settlement{Receipt: ds[0].Receipt, Outcome: redrive.OutcomeDone, Emit: emits}
	noErr(t, driver.FirstError(s.Settle(t.Context(), []driver.Settlement{settlement})))
	// Repeated after an unknown outcome, it emits nothing twice.
	if err := driver.FirstError(s.Settle(t.Context(), []driver.Settlement{settlement})); !errors.Is(err, redrive.ErrNotFound) && !errors.Is(err, redrive.ErrLeaseLost) {
		t.Error(err)
	}
	bad := redrive.Message{Queue: "out", ID: "out1", Key: "key1", Body: []byte("other")}
	errs := s.Settle(t.Context(), []driver.Settlement{{Receipt: ds[1].Receipt, Outcome: redrive.OutcomeDone, Emit: []redrive.Message{bad}}})
	if !errors.Is(driver.FirstError(errs), redrive.ErrConflict) {
		t.Errorf("an emit in conflict: %v", errs)
	}
	batch := driver.Batch{
		Publish: []redrive.Message{{Queue: "out"}, {Queue: "out", Key: "key7"}},
		Put:     []redrive.Entry{{Message: redrive.Message{Queue: "out", ID: "put"}, State: redrive.StateDead, Reason: redrive.ReasonManual}},
		Records: []driver.RecordWrite{{Space: "s", Key: "k", Value: []byte("v")}},
	}
	_, err := s.Apply(t.Context(), batch)
	noErr(t, err)
	if _, err = s.Apply(t.Context(), batch); !errors.Is(err, redrive.ErrVersion) {
		t.Errorf("repeated: %v", err)
	}
	counts, err := s.Counts(t.Context(), "out", "sms")
	noErr(t, err)
	if counts[0].AllWaiting() != 22 || counts[0].AllDead() != 1 || counts[1].AllWaiting() != 1 {
		t.Errorf("%+v", counts)
	}
	// A key of another partition is refused; one of the same is taken.
	key := "other"
	for i := 0; s.hashed(key) == s.leads("put"); i++ {
		key = fmt.Sprint("other", i)
	}
	got, err := s.Update(t.Context(), driver.Selection{Refs: []redrive.Ref{{Queue: "out", ID: "put"}}}, driver.Change{Action: driver.ActEdit, Edit: &redrive.Edit{Key: &key}}, 1)
	noErr(t, err)
	if !errors.Is(got[0].Err, redrive.ErrUnsupported) {
		t.Errorf("a key of another partition: %v", got[0].Err)
	}
}

func TestIDsAndKeysLeadToPartitions(t *testing.T) {
	s := openParts(t, 3)
	id, key := apartIDs(t, s)
	m := []redrive.Message{{Queue: "sms", ID: id, Key: key, Body: []byte("b")}}
	noErr(t, driver.FirstError(s.Publish(t.Context(), m)))
	if err := driver.FirstError(s.Publish(t.Context(), m)); !errors.Is(err, redrive.ErrDuplicate) {
		t.Errorf("published again: %v", err)
	}
	for _, other := range []redrive.Message{
		{Queue: "sms", ID: id, Body: []byte("b")}, {Queue: "sms", ID: id, Key: key, Body: []byte("other")}, {Queue: "sms", ID: id, Key: key + "!", Body: []byte("b")},
	} {
		if err := driver.FirstError(s.Publish(t.Context(), []redrive.Message{other})); !errors.Is(err, redrive.ErrConflict) {
			t.Errorf("the id with key %q and body %q: %v", other.Key, other.Body, err)
		}
	}
	got, err := s.Get(t.Context(), []redrive.Ref{m[0].Ref(), {Queue: "sms", ID: "never-was"}})
	noErr(t, err)
	if got[0] == nil || got[0].Key != key || got[1] != nil {
		t.Fatalf("%+v", got)
	}
	recalled, err := s.Recall(t.Context(), []redrive.Ref{m[0].Ref()})
	noErr(t, err)
	if recalled[0] == nil || recalled[0].Hash != driver.BodyHash(&m[0]) {
		t.Errorf("%+v", recalled[0])
	}
	// Ids that are made lead to where the message is, also in another queue.
	many := publish(t, s, 3)
	many = append(many, redrive.Message{Queue: "sms", Key: key}, redrive.Message{Queue: "sms", Delay: time.Hour})
	noErr(t, driver.FirstError(s.Publish(t.Context(), many[3:])))
	for i := range many {
		refs := []redrive.Ref{many[i].Ref()}
		if found, _, err := s.parts[s.leads(many[i].ID)].lookup(t.Context(), refs); err != nil || found[0] == nil {
			t.Errorf("%s does not lead to its message: %v", many[i].ID, err)
		}
	}
	settle(t, s, redrive.OutcomeDead, claim(t, s, ask(3))[0])
	page, err := s.Find(t.Context(), redrive.Query{State: redrive.StateDead})
	noErr(t, err)
	moved, err := s.Update(t.Context(), driver.Selection{Refs: []redrive.Ref{page.Entries[0].Ref()}}, driver.Change{Action: driver.ActRedrive, To: "other", NewID: true}, 1)
	noErr(t, err)
	noErr(t, moved[0].Err)
	ref := moved[0].New
	found, _, err := s.parts[s.home(page.Entries[0].Key, ref.ID).part].lookup(t.Context(), []redrive.Ref{ref})
	if err != nil || ref.Queue != "other" || found[0] == nil {
		t.Errorf("moved to %s: %v", ref, err)
	}
}

// TestAnEditedKeyMovesItsMessage keeps the order by key over an edit.
func TestAnEditedKeyMovesItsMessage(t *testing.T) {
	s := openParts(t, 3)
	noErr(t, s.Configure(t.Context(), "sms", driver.QueueSettings{OrderByKey: true}))
	id, key := apartIDs(t, s)
	noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "sms", ID: id, Body: []byte("b")}, {Queue: "sms", ID: "first", Key: key}})))
	edit := driver.Change{Action: driver.ActEdit, Edit: &redrive.Edit{Key: &key}}
	got, err := s.Update(t.Context(), driver.Selection{Refs: []redrive.Ref{{Queue: "sms", ID: id}}}, edit, 1)
	noErr(t, err)
	noErr(t, got[0].Err)
	ds := claim(t, s, ask(5))
	if len(ds) != 1 || ds[0].ID != "first" {
		t.Fatalf("claimed %+v", ds)
	}
	settle(t, s, redrive.OutcomeDone, ds...)
	if ds = claim(t, s, ask(5)); len(ds) != 1 || ds[0].ID != id || string(ds[0].Body) != "b" {
		t.Fatalf("claimed %+v", ds)
	}
	balanced(t, s)
}

func TestFindMergesPartitions(t *testing.T) {
	s := openParts(t, 3)
	var want []string
	for i := range 300 {
		m := []redrive.Message{{Queue: []string{"a", "b"}[i%2], ID: fmt.Sprintf("m%03d", i)}}
		if i%5 == 0 {
			m[0].Key = fmt.Sprint("key", i%7)
		}
		noErr(t, driver.FirstError(s.Publish(t.Context(), m)))
		if i%2 == 0 {
			want = append(want, m[0].ID)
		}
	}
	for i := 1; i < 300; i += 2 {
		want = append(want, fmt.Sprintf("m%03d", i))
	}
	var all []string
	after := ""
	for {
		page, err := s.Find(t.Context(), redrive.Query{Limit: 7, After: after})
		noErr(t, err)
		for i := range page.Entries {
			all = append(all, page.Entries[i].ID)
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if !slices.Equal(all, want) {
		t.Errorf("found %d in the order %v", len(all), all)
	}
	for _, bad := range []string{"sms/w1/x", "p!a.b", "p!!!", "p!" + strings.Repeat(".", 3), formatPlaces([]string{"", "what", ""})} {
		if _, err := s.Find(t.Context(), redrive.Query{After: bad}); !errors.Is(err, redrive.ErrInvalid) {
			t.Errorf("place %q: %v", bad, err)
		}
	}
}

func TestClaimsServeAllPartitions(t *testing.T) {
	s := openParts(t, 4)
	for range 4 {
		publish(t, s, 100)
	}
	for i := range 10 { // each partition has had its turn at least twice
		ds := claim(t, s, ask(10))
		if len(ds) != 10 {
			t.Fatalf("claim %d: %d", i, len(ds))
		}
		settle(t, s, redrive.OutcomeDone, ds...)
	}
	m, err := s.Monitor(t.Context(), "sms")
	noErr(t, err)
	for _, p := range m.Partitions {
		if left := p.Entries; left > 80 || left < 70 {
			t.Errorf("partition %d has %d left of 100 after 100 of 400 were claimed", p.Number, left)
		}
	}
	// What one partition lacks others give, also one by one.
	if ds := claim(t, s, ask(250)); len(ds) != 250 {
		t.Errorf("%d of 250 at once", len(ds))
	}
	for i := range 50 {
		if ds := claim(t, s, ask(1)); len(ds) != 1 {
			t.Fatalf("nothing after %d", i)
		}
	}
	if ds := claim(t, s, ask(1)); len(ds) != 0 {
		t.Errorf("%d too many", len(ds))
	}
}
