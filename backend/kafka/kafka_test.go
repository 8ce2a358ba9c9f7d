package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
	"github.com/redrive/redrive/internal/brokertest"
	"github.com/redrive/redrive/internal/servertest"
)

// cases are run on a fake cluster and on a real broker.
var cases = map[string]func(t *testing.T, c *cluster){
	"OutOfOrderIsNotRepeated": outOfOrder,
	"RevokedIsRefused":        revokedIsRefused,
	"RevokedIsCancelled":      revokedIsCancelled,
	"OrderByKey":              orderByKey,
	"RecordsOfOthers":         recordsOfOthers,
	"SlowRecordHoldsNobody":   slowRecord,
	"SlowRecordIsReported":    slowRecordIsReported,
	"FullWindowPausesItsOwn":  fullWindow,
	"RebalanceStorm":          func(t *testing.T, c *cluster) { rebalanceStorm(t, c, kgo.CooperativeStickyBalancer(), 6000, 5) },
	"RebalanceStormEager":     func(t *testing.T, c *cluster) { rebalanceStorm(t, c, kgo.RangeBalancer(), 6000, 5) },
	"NativeRetries":           nativeRetries,
	"NativeDeadByTransaction": func(t *testing.T, c *cluster) { nativeDeadLetters(t, c, byTransaction) },
	"NativeDeadByPublish":     func(t *testing.T, c *cluster) { nativeDeadLetters(t, c, byPublish) },
	"CrashedIsDeadNatively":   crashedIsDeadNatively,
	"MissingTopics":           missingTopics,
	"FencedChangesNothing":    fencedChangesNothing,
	"CutsLoseNothing":         cutsLoseNothing,
}

// publishN publishes messages with the ids m0, m1 and so on, with keys that spread them.
func publishN(t testing.TB, s *Source, n int) {
	t.Helper()
	publishRange(t, s, 0, n)
}

func publishRange(t testing.TB, s *Source, from, to int) {
	t.Helper()
	msgs := make([]redrive.Message, to-from)
	for at := range msgs {
		i := from + at
		msgs[at] = redrive.Message{Queue: s.o.Queue, ID: fmt.Sprintf("m%d", i), Key: fmt.Sprintf("k%d", i%97), Body: fmt.Appendf(nil, "body %d", i)}
	}
	if err := driver.FirstError(s.Publish(t.Context(), msgs)); err != nil {
		t.Fatal(err)
	}
}

// claimN claims until it has n.
func claimN(t testing.TB, s *Source, n int) (ds []redrive.Delivery) {
	t.Helper()
	servertest.Until(t, fmt.Sprintf("%d are claimed", n), func() bool {
		got, err := s.Claim(t.Context(), driver.ClaimRequest{Queue: s.o.Queue, Max: n - len(ds), Lease: time.Minute, Instance: "test"})
		if err != nil {
			t.Fatal(err)
		}
		ds = append(ds, got...)
		return len(ds) == n
	})
	return ds
}

func done(ds ...redrive.Delivery) []driver.Settlement {
	batch := make([]driver.Settlement, len(ds))
	for i := range ds {
		batch[i] = driver.Settlement{Receipt: ds[i].Receipt, Outcome: redrive.OutcomeDone}
	}
	return batch
}

func outOfOrder(t *testing.T, c *cluster) {
	address := c.topic(t, 1)
	s := connect(t, address, Options{})
	publishN(t, s, 200)
	ds := claimN(t, s, 200)
	var finished []redrive.Delivery
	open := map[string]bool{}
	for i := range ds {
		if i%7 == 3 {
			open[ds[i].ID] = true
		} else {
			finished = append(finished, ds[i])
		}
	}
	rand.Shuffle(len(finished), func(i, j int) { finished[i], finished[j] = finished[j], finished[i] })
	for i := 0; i < len(finished); i += 20 {
		if err := driver.FirstError(s.Settle(t.Context(), done(finished[i:min(i+20, len(finished))]...))); err != nil {
			t.Fatal(err)
		}
	}
	stats, err := s.SourceStats(t.Context())
	if want := (driver.SourceStats{Lag: 197, Unacked: int64(len(open)), Uncommitted: 197 - int64(len(open)), Dead: driver.Unknown, Reconnects: driver.Unknown, OldestUnacked: stats.OldestUnacked}); err != nil || stats != want || stats.OldestUnacked <= 0 {
		t.Errorf("%+v, %v, want %+v", stats, err, want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := driver.FirstError(s.Settle(t.Context(), done(ds[3]))); !errors.Is(err, redrive.ErrLeaseLost) {
		t.Errorf("a settlement after Close: %v", err)
	}
	s = connect(t, address, Options{})
	again := claimN(t, s, len(open))
	for i := range again {
		if !open[again[i].ID] {
			t.Errorf("%s was done and came again", again[i].ID)
		}
		if !again[i].Suspect {
			t.Errorf("%s may have been claimed before", again[i].ID)
		}
	}
	publishN(t, s, 1)
	if last := claimN(t, s, 1); last[0].ID != "m0" {
		t.Errorf("%s came, want what was published last", last[0].ID)
	}
}

func revokedIsRefused(t *testing.T, c *cluster) {
	address := c.topic(t, 4)
	s := connect(t, address, Options{Drain: time.Millisecond})
	publishN(t, s, 400)
	ds := claimN(t, s, 400)
	other := connect(t, address, Options{})
	servertest.Until(t, "the other has partitions", func() bool {
		other.mu.Lock()
		defer other.mu.Unlock()
		return len(other.main.partitions) > 0
	})
	servertest.Until(t, "the first knows", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.main.partitions) < 4
	})
	errs := s.Settle(t.Context(), done(ds...))
	refused := 0
	for i := range ds {
		switch {
		case errors.Is(errs[i], redrive.ErrLeaseLost):
			refused++
		case errs[i] != nil:
			t.Errorf("%s: %v", ds[i].ID, errs[i])
		}
	}
	again := claimN(t, other, refused)
	if refused == 0 || refused == 400 {
		t.Errorf("%d of 400 were refused", refused)
	}
	for i := range again {
		if !again[i].Suspect {
			t.Errorf("%s was in flight at another member", again[i].ID)
		}
	}
}

func recordsOfOthers(t *testing.T, c *cluster) {
	address := c.topic(t, 1)
	s := connect(t, address, Options{Queue: "sms"})
	header := kgo.RecordHeader{Key: "h", Value: []byte{0, 0xff}}
	records := []*kgo.Record{
		{Topic: s.topic, Key: []byte("customer"), Value: []byte(`{"a":1}`), Headers: []kgo.RecordHeader{header, header}},
		{Topic: s.topic, Key: []byte{0xff, 0xfe}, Value: nil},
		{Topic: s.topic, Value: []byte("x"), Headers: []kgo.RecordHeader{{Key: "redrive-id", Value: []byte("not an id!")}}},
	}
	if err := s.main.client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	ds := claimN(t, s, 3)
	if d := ds[0]; d.Key != "customer" || string(d.Body) != `{"a":1}` || len(d.Headers) != 2 || string(d.Headers[1].Value) != "\x00\xff" ||
		d.Identity != redrive.IdentityPosition || !strings.HasSuffix(d.Origin, "/0/0") {
		t.Errorf("%+v", d)
	}
	if v, ok := ds[1].Headers.Get("redrive-native-key"); !ok || v != "\xff\xfe" || ds[1].Key != "" || len(ds[1].Body) != 0 {
		t.Errorf("%+v", ds[1])
	}
	if driver.CheckID(ds[2].ID) != nil || len(ds[2].Headers) != 1 {
		t.Errorf("%+v", ds[2])
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for i, d := range claimN(t, connect(t, address, Options{Queue: "sms"}), 3) {
		if d.ID != ds[i].ID {
			t.Errorf("the id of record %d was %s and is %s", i, ds[i].ID, d.ID)
		}
	}
}

func slowRecord(t *testing.T, c *cluster) {
	s := connect(t, c.topic(t, 1), Options{Queue: brokertest.Queue})
	const n = 2000
	publishN(t, s, n)
	var mu sync.Mutex
	seen := map[string]int{}
	others := make(chan struct{})
	stop := brokertest.Consume(t, memory.New(), 0, func(ctx context.Context, d *redrive.Delivery) error {
		if d.ID == "m0" {
			select {
			case <-others: // ends after all that stand behind it
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		mu.Lock()
		defer mu.Unlock()
		seen[d.ID]++
		if len(seen) == n-1 && seen["m0"] == 0 {
			close(others)
		}
		return nil
	}, engine.QueueOptions{Sources: []driver.Source{s}})
	defer stop()
	servertest.Until(t, "all are handled", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(seen) == n
	})
	stop()
	offsets, err := c.admin.FetchOffsets(t.Context(), s.group)
	if err != nil {
		t.Fatal(err)
	}
	if at, _ := offsets.Lookup(s.topic, 0); at.At != n || at.Metadata != "" {
		t.Errorf("committed %d with metadata %q, want %d", at.At, at.Metadata, n)
	}
}
