package attach

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/kafkatest"
)

// A place may have another message than the one in the store: its topic was made anew.
func TestAnotherMessageOfTheSamePlace(t *testing.T) {
	pointer := letter{id: "place", other: "own", certain: true}
	for _, c := range []struct {
		l      letter
		result error
		want   string
	}{
		{pointer, redrive.ErrConflict, "own"},
		{pointer, redrive.ErrDuplicate, ""}, // the broker wrote it twice
		{pointer, nil, ""},
		{letter{id: "place", certain: true}, redrive.ErrConflict, ""}, // it was edited since
	} {
		if got := otherID(&c.l, c.result); got != c.want {
			t.Errorf("%+v, %v: %q, want %q", c.l, c.result, got, c.want)
		}
	}
	if got := otherID(&letter{id: "chosen"}, redrive.ErrConflict); got == "" || got == "chosen" {
		t.Errorf("an id that a publisher chose: %q", got)
	}
}

// fetchCount counts the requests for records.
type fetchCount struct{ n atomic.Int64 }

func (c *fetchCount) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == kmsg.Fetch.Int16() {
		c.n.Add(1)
	}
}

// pointing returns dead letters whose records stand in the first partition of a topic.
func pointing(topic string, died time.Time, offsets ...int64) []letter {
	letters := make([]letter, len(offsets))
	for i, offset := range offsets {
		letters[i].source = &pointer{topic: topic, offset: offset, dead: &kgo.Record{Timestamp: died}}
		letters[i].hold(nil, nil)
	}
	return letters
}

func TestRecordsOfPointers(t *testing.T) {
	broker := kafkatest.Start(t)
	var fetches fetchCount
	s, err := newSources([]kgo.Opt{kgo.SeedBrokers(broker.Addr()), kgo.WithHooks(&fetches)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	writer, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr()), kgo.TransactionalID("writer"), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(writer.Close)
	const wide = 16 // partitions
	for topic, partitions := range map[string]int32{"small": 1, "anew": 1, "large": wide} {
		if _, err := kadm.NewClient(writer).CreateTopic(t.Context(), partitions, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	produce := func(topic string, partitions, batches, n, size int, at time.Time) { // and a transaction's marker
		t.Helper()
		if err := writer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for b := range batches {
			var records []*kgo.Record
			for i := b * n; i < (b+1)*n; i++ {
				for p := range partitions {
					records = append(records, &kgo.Record{Topic: topic, Partition: int32(p), Key: fmt.Append(nil, i), Value: bytes.Repeat([]byte{byte(i)}, size), Timestamp: at})
				}
			}
			if err := writer.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := writer.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
	}
	const each = 250_000
	produce("small", 1, 50, 20, 100, now)
	produce("large", wide, 1, 8, each, now)
	produce("anew", 1, 1, 1, 10, now.Add(time.Hour))

	t.Run("near ones in one step", func(t *testing.T) {
		var offsets []int64
		for i := range int64(400) {
			offsets = append(offsets, 2*i)
		}
		before := fetches.n.Load()
		letters := pointing("small", now, offsets...)
		if n, err := s.complete(t.Context(), letters); err != nil || n != len(letters) {
			t.Fatalf("%d of %d, %v", n, len(letters), err)
		}
		for i, l := range letters {
			if l.message.Key != fmt.Sprint(offsets[i]) || len(l.message.Body) != 100 || l.gone != "" {
				t.Fatalf("letter %d has key %s and %d bytes; %s", i, l.message.Key, len(l.message.Body), l.gone)
			}
		}
		if steps := fetches.n.Load() - before; steps > 3 {
			t.Errorf("%d steps for 400 letters", steps)
		}
	})
	t.Run("large ones in bounded memory", func(t *testing.T) {
		var letters []letter
		for offset := range int64(8) {
			for p := range int32(wide) {
				one := pointing("large", now, offset)
				one[0].source.partition = p
				letters = append(letters, one...)
			}
		}
		rounds := 0
		for at := 0; at < len(letters); rounds++ {
			n, err := s.complete(t.Context(), letters[at:])
			if err != nil || n == 0 {
				t.Fatalf("%d, %v", n, err)
			}
			held := 0
			for i := range letters[at:] {
				held += letters[at+i].message.Size()
			}
			if held > 2*batchBytes+pieceBytes {
				t.Errorf("%d bytes are held", held)
			}
			for i := range n {
				if len(letters[at+i].message.Body) != each {
					t.Errorf("letter %d has %d bytes", at+i, len(letters[at+i].message.Body))
				}
				letters[at+i] = letter{} // it is stored
			}
			at += n
		}
		if rounds < 4 {
			t.Errorf("32 MB in %d rounds", rounds)
		}
	})
	t.Run("gone", func(t *testing.T) {
		for why, letters := range map[string][]letter{
			"has the record no more": pointing("small", now, 1000, 5000, 999999), // the marker, and behind the end
			"another record stands":  pointing("anew", now, 0),                   // written after the letter
			"there is no topic":      pointing("never", now, 0, 7),
			"the brokers' own":       pointing("__transaction_state", now, 0),
		} {
			if n, err := s.complete(t.Context(), letters); err != nil || n != len(letters) {
				t.Fatalf("%d of %d, %v", n, len(letters), err)
			}
			for _, l := range letters {
				header, _ := l.extra.Get(redrive.HeaderBodyGone)
				if _, null := l.extra.Get(headername.OriginalNoBody); !strings.Contains(l.gone, why) || header != l.gone || l.message.Body != nil || null {
					t.Errorf("%s: %q, %+v, want %q", l.source, l.gone, l.extra, why)
				}
			}
		}
	})
	t.Run("a copy outlives its record", func(t *testing.T) {
		for _, topic := range []string{"never", "small"} { // gone, or another's
			letters := pointing(topic, now, 3)
			letters[0].source.dead.Value = []byte("copied")
			letters[0].hold(nil, []byte("copied"))
			if _, err := s.complete(t.Context(), letters); err != nil {
				t.Fatal(err)
			}
			l := &letters[0]
			if why, ok := l.extra.Get(headername.OriginalNoHeaders); !ok || why == "" || l.gone != "" || string(l.message.Body) != "copied" {
				t.Errorf("%s: %+v %q", topic, l.extra, l.message.Body)
			}
		}
	})
}
