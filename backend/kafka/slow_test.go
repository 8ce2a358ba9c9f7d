package kafka

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/brokertest"
)

// lines is a log whose lines can be read.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(l, nil)) }

// warnings returns what was warned of.
func (l *lines) warnings(t *testing.T) (all []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for d := json.NewDecoder(bytes.NewReader(l.text.Bytes())); d.More(); {
		var line map[string]any
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if line["level"] == "WARN" {
			all = append(all, line)
		}
	}
	return all
}

// slowRecordIsReported holds one record back: it is warned of once, and its age is reported.
func slowRecordIsReported(t *testing.T, c *cluster) {
	log := new(lines)
	s := connect(t, c.topic(t, 1), Options{Log: log.logger()})
	publishN(t, s, 50)
	ds := claimN(t, s, 50)
	s.reportSlow(time.Now().Add(time.Hour)) // nothing waits for any of them
	if err := driver.FirstError(s.Settle(t.Context(), done(append(ds[:3:3], ds[5:]...)...))); err != nil {
		t.Fatal(err)
	}
	s.reportSlow(time.Now().Add(slowAfter - time.Minute))
	if all := log.warnings(t); len(all) != 0 {
		t.Errorf("too early: %v", all)
	}
	for range 3 {
		s.reportSlow(time.Now().Add(slowAfter))
	}
	all := log.warnings(t)
	if len(all) != 1 {
		t.Fatalf("%d warnings, want 1: %v", len(all), all)
	}
	want := map[string]any{"queue": s.o.Queue, "topic": s.topic, "partition": 0.0, "offset": 3.0, "id": "m3", "acked_above": 45.0, "window_nearly_full": false}
	for name, v := range want {
		if all[0][name] != v {
			t.Errorf("%s is %v, want %v", name, all[0][name], v)
		}
	}
	if took, _ := all[0]["in_flight"].(float64); time.Duration(took) < slowAfter || time.Duration(took) > slowAfter+time.Hour {
		t.Errorf("in_flight is %v", all[0]["in_flight"])
	}
	if stats, err := s.SourceStats(t.Context()); err != nil || stats.OldestUnacked <= 0 || stats.Uncommitted != 45 {
		t.Errorf("%+v, %v", stats, err)
	}
	if err := driver.FirstError(s.Settle(t.Context(), done(ds[3]))); err != nil {
		t.Fatal(err)
	}
	s.reportSlow(time.Now().Add(slowAfter))
	if all := log.warnings(t); len(all) != 2 || all[1]["offset"] != 4.0 {
		t.Errorf("the next one: %v", all)
	}
	if err := driver.FirstError(s.Settle(t.Context(), done(ds[4]))); err != nil {
		t.Fatal(err)
	}
	if stats, err := s.SourceStats(t.Context()); err != nil || stats.OldestUnacked != 0 {
		t.Errorf("with nothing in flight: %+v, %v", stats, err)
	}
}

func slowShareIsReported(t *testing.T, c *cluster) {
	log := new(lines)
	s := join(t, c.shared(t, 1))
	brokertest.Publish(t, s, 2)
	ds := claimed(t, s, 2)
	s.mu.Lock()
	s.o.Log = log.logger()
	s.newest[place{s.topic, 0}] = shareAhead + 1 // as if so many had come
	s.mu.Unlock()
	for range 3 {
		s.reportSlow(time.Now().Add(slowAfter))
	}
	all := log.warnings(t)
	if len(all) != 1 || all[0]["offset"] != 0.0 || all[0]["newer_records"] != shareAhead+1.0 {
		t.Errorf("%v", all)
	}
	settled(t, s, redrive.OutcomeDone, ds...)
}

func TestWhatIsReportedAsSlow(t *testing.T) {
	now := time.Now()
	old, young := flight{token: 1, since: now.Add(-time.Hour)}, flight{token: 1, since: now}
	for name, p := range map[string]struct {
		window   window
		inflight map[int64]flight
		want     bool
	}{
		"nothing is finished above":  {window{committed: 5}, map[int64]flight{5: old}, false},
		"it holds others back":       {window{committed: 5, ranges: []span{{6, 9}}}, map[int64]flight{5: old, 9: old}, true},
		"it is young":                {window{committed: 5, ranges: []span{{6, 20_000}}}, map[int64]flight{5: young}, false},
		"the window is nearly full":  {window{committed: 5, ranges: []span{{7, 95_000}}}, map[int64]flight{5: young, 6: young}, true},
		"the first is not in flight": {window{committed: 5, ranges: []span{{7, 95_000}}}, map[int64]flight{6: old}, false},
		"it was published elsewhere": {window{committed: 5, ranges: []span{{6, 9}}}, map[int64]flight{5: {since: old.since, moved: true}}, false},
	} {
		if _, got := (&partition{window: p.window, inflight: p.inflight}).slowLocked(now); got != p.want {
			t.Errorf("%s: reported %v, want %v", name, got, p.want)
		}
	}
}

// fullWindow lets one partition's window fill up with what is in flight, and more than the
// buffer holds wait behind it: the other partition goes on, and nothing of either is lost or
// comes twice.
func fullWindow(t *testing.T, c *cluster) {
	const inFlight, behind, others = maxBits, 3 * bufferRecords, 100
	s := connect(t, c.topic(t, 2), Options{})
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	produce := func(partition int32, n int) {
		records := make([]*kgo.Record, n)
		for i := range records {
			records[i] = &kgo.Record{Topic: s.topic, Partition: partition, Value: []byte("x")}
		}
		if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	produce(0, inFlight+behind)
	first := claimN(t, s, inFlight)
	if ds, err := s.Claim(t.Context(), driver.ClaimRequest{Queue: s.o.Queue, Max: 1, Lease: time.Minute}); len(ds) != 0 || err != nil {
		t.Fatalf("a full window delivers %d, %v", len(ds), err)
	}
	produce(1, others)
	seen := make(map[string]int)
	count := func(ds []redrive.Delivery) {
		for i := range ds {
			seen[ds[i].Origin]++
		}
		if err := driver.FirstError(s.Settle(t.Context(), done(ds...))); err != nil {
			t.Fatal(err)
		}
	}
	count(claimN(t, s, others))
	count(first)
	for rest := behind; rest > 0; {
		ds := claimN(t, s, min(rest, 2000))
		count(ds)
		rest -= len(ds)
	}
	for partition, n := range map[int]int{0: inFlight + behind, 1: others} {
		for offset := range n {
			if at := fmt.Sprintf("%s/%d/%d", s.topic, partition, offset); seen[at] != 1 {
				t.Fatalf("%s was claimed %d times", at, seen[at])
			}
		}
	}
	offsets, err := c.admin.FetchOffsets(t.Context(), s.group)
	if at, _ := offsets.Lookup(s.topic, 0); err != nil || at.At != inFlight+behind {
		t.Errorf("committed %d, %v", at.At, err)
	}
}
