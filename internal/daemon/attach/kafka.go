package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/broker"
	"github.com/redrive/redrive/internal/dialect"
	"github.com/redrive/redrive/internal/headername"
	"github.com/redrive/redrive/internal/native"
)

// DefaultGroup is the consumer group whose offsets a move from Kafka commits.
const DefaultGroup = "redrive-attach"

// quiet is how long nothing comes before the rest of a partition is taken for compacted
// away: then no record says that the end is reached.
const quiet = 10 * time.Second

// kafkaOrigin reads a topic's partitions without being a member of a group.
type kafkaOrigin struct {
	o       *Options
	topic   string
	id      string // of the topic, which a new one of the same name has not
	cluster string
	group   string
	client  *kgo.Client
	admin   *kadm.Client
	parts   map[int32]*kafkaPartition
	missing int64
	seen    time.Time // when something came last
	sources *sources
	read    []letter // not returned yet
}

// kafkaPartition is how far a partition is read.
type kafkaPartition struct {
	next    int64 // to be read
	end     int64 // as of the start
	refused bool  // something is, so that the committed offset stays before it
}

func openKafka(ctx context.Context, a *broker.Address, o *Options) (origin, error) {
	k := &kafkaOrigin{o: o, topic: a.Name, group: a.Take("group"), parts: make(map[int32]*kafkaPartition)}
	if k.group == "" {
		k.group = DefaultGroup
	}
	connect, err := a.KafkaOptions()
	if err != nil {
		return nil, failed(a, err, "")
	}
	if err := a.Rest(); err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(connect...)
	if err != nil {
		return nil, failed(a, err, "")
	}
	defer client.Close()
	starts, err := k.look(ctx, kadm.NewClient(client))
	if err != nil {
		return nil, failed(a, err, "is a broker running there, and is there such a topic?")
	}
	k.client, err = kgo.NewClient(append(connect, kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), kgo.FetchMaxBytes(16<<20), kgo.FetchMaxWait(500*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{k.topic: starts}),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		return nil, failed(a, err, "")
	}
	k.admin, k.seen = kadm.NewClient(k.client), time.Now()
	if k.sources, err = newSources(connect); err != nil {
		k.client.Close()
		return nil, failed(a, err, "")
	}
	return k, nil
}

// look asks where the partitions begin and end, and where the group stands.
func (k *kafkaOrigin) look(ctx context.Context, admin *kadm.Client) (map[int32]kgo.Offset, error) {
	meta, err := admin.Metadata(ctx, k.topic)
	if err != nil {
		return nil, err
	}
	topic := meta.Topics[k.topic]
	if topic.Err != nil {
		return nil, topic.Err
	}
	k.cluster, k.id = meta.Cluster, topic.ID.String()
	first, err := admin.ListStartOffsets(ctx, k.topic)
	if err == nil {
		err = first.Error()
	}
	if err != nil {
		return nil, err
	}
	ends, err := admin.ListCommittedOffsets(ctx, k.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	committed := kadm.OffsetResponses{}
	if k.o.Move {
		committed, err = admin.FetchOffsets(ctx, k.group)
		for tries := 0; kerr.IsRetriable(err) && tries < 50 && wait(ctx, idle); tries++ { // a young cluster makes its coordinator with the first question
			committed, err = admin.FetchOffsets(ctx, k.group)
		}
		if err != nil {
			return nil, err
		}
	}
	starts := make(map[int32]kgo.Offset)
	first.Each(func(o kadm.ListedOffset) {
		p := &kafkaPartition{next: o.Offset}
		if c, ok := committed.Lookup(k.topic, o.Partition); ok && c.Err == nil && c.At > p.next {
			p.next = c.At
		}
		if end, ok := ends.Lookup(k.topic, o.Partition); ok {
			p.end = end.Offset
		}
		k.parts[o.Partition] = p
		starts[o.Partition] = kgo.NewOffset().At(p.next)
	})
	return starts, nil
}

func (k *kafkaOrigin) atEnd() bool {
	if k.o.Follow {
		return false
	}
	for _, p := range k.parts {
		if p.next < p.end {
			return false
		}
	}
	return true
}

func (k *kafkaOrigin) next(ctx context.Context) ([]letter, error) {
	if len(k.read) == 0 {
		if err := k.poll(ctx); err != nil {
			return nil, err
		}
	}
	n, err := k.sources.complete(ctx, k.read)
	letters := k.read[:n]
	k.read = k.read[n:]
	return letters, err
}

// poll reads what comes next.
func (k *kafkaOrigin) poll(ctx context.Context) error {
	if k.atEnd() {
		return io.EOF
	}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	fetches := k.client.PollRecords(short, 4*batch)
	for _, e := range fetches.Errors() {
		if !errors.Is(e.Err, context.DeadlineExceeded) && !errors.Is(e.Err, context.Canceled) {
			return fmt.Errorf("partition %d: %w", e.Partition, e.Err)
		}
	}
	fetches.EachRecord(func(r *kgo.Record) {
		k.seen = time.Now()
		p := k.parts[r.Partition]
		if p == nil || !k.o.Follow && r.Offset >= p.end {
			return
		}
		p.next = r.Offset + 1
		if !r.Attrs.IsControl() {
			k.read = append(k.read, k.letter(r))
		}
	})
	for number, p := range k.parts {
		if !k.o.Follow && p.next >= p.end {
			k.client.PauseFetchPartitions(map[string][]int32{k.topic: {number}})
		}
	}
	if len(k.read) == 0 && !k.o.Follow && time.Since(k.seen) > quiet {
		return k.giveUp(ctx)
	}
	return nil
}

// giveUp takes what is left for compacted away, if the brokers answer.
func (k *kafkaOrigin) giveUp(ctx context.Context) error {
	if _, err := k.admin.ListStartOffsets(ctx, k.topic); err != nil {
		return err
	}
	for _, p := range k.parts {
		k.missing += max(p.end-p.next, 0)
		p.next = max(p.next, p.end)
	}
	return nil
}

func (k *kafkaOrigin) letter(r *kgo.Record) letter {
	partition, offset := strconv.Itoa(int(r.Partition)), strconv.FormatInt(r.Offset, 10)
	l := letter{
		position: placeText(k.topic, r.Partition, r.Offset), certain: true, handle: r, at: r.Timestamp,
		id: driver.DeriveID("attach", "kafka", k.cluster, k.topic, k.id, partition, offset),
	}
	l.message.Headers = headersOf(r)
	l.hold(r.Key, r.Value)
	if at, group := pointerOf(r, l.message.Headers); at != nil {
		// The broker may write a dead letter twice.
		l.source, l.other = at, l.id
		l.id = driver.DeriveID("attach", "kafka-share", k.cluster, k.topic, k.id, group, at.String())
	}
	return l
}

func placeText(topic string, partition int32, offset int64) string {
	return topic + "/" + strconv.Itoa(int(partition)) + "/" + strconv.FormatInt(offset, 10)
}

func headersOf(r *kgo.Record) (h redrive.Headers) {
	for i := range r.Headers {
		h = append(h, redrive.Header{Name: r.Headers[i].Key, Value: r.Headers[i].Value})
	}
	return h
}

// hold gives the letter key and value of a record.
func (l *letter) hold(key, value []byte) {
	keyed := redrive.Message{}
	native.ReadKey(&keyed, key)
	l.message.Key, l.message.Body, l.extra = keyed.Key, value, keyed.Headers
	if value == nil {
		l.extra.Add(headername.OriginalNoBody, "true")
	}
}

// settle commits the offsets up to which everything is durable.
func (k *kafkaOrigin) settle(ctx context.Context, durable, refused []letter) error {
	offsets := make(kadm.Offsets)
	lowest := make(map[int32]int64)
	for i := range refused {
		if r, ok := refused[i].handle.(*kgo.Record); ok {
			if at, seen := lowest[r.Partition]; !seen || r.Offset < at {
				lowest[r.Partition] = r.Offset
			}
		}
	}
	for i := range durable {
		r, ok := durable[i].handle.(*kgo.Record)
		if !ok || k.parts[r.Partition].refused {
			continue
		}
		if at, seen := lowest[r.Partition]; seen && r.Offset > at {
			continue
		}
		if old, seen := offsets.Lookup(k.topic, r.Partition); !seen || old.At <= r.Offset {
			offsets.AddOffset(k.topic, r.Partition, r.Offset+1, r.LeaderEpoch)
		}
	}
	for partition := range lowest {
		k.parts[partition].refused = true
	}
	if len(offsets) == 0 {
		return nil
	}
	return k.commit(ctx, offsets)
}

func (k *kafkaOrigin) commit(ctx context.Context, offsets kadm.Offsets) error {
	answers, err := k.admin.CommitOffsets(ctx, k.group, offsets)
	if err == nil {
		err = answers.Error()
	}
	if err != nil {
		return &redrive.Error{Op: "attach", Err: fmt.Errorf("commit of group %s: %w", k.group, err), Hint: "stop the group's other members, or name another with ?group=NAME"}
	}
	if !k.o.Delete {
		return nil
	}
	deleted, err := k.admin.DeleteRecords(ctx, offsets)
	if err == nil {
		err = deleted.Error()
	}
	return err
}

func (k *kafkaOrigin) name(p *dialect.Place, name string) { p.Topic = name }

func (k *kafkaOrigin) unread() int64 { return k.missing }

func (k *kafkaOrigin) close() error {
	k.client.Close()
	k.sources.close()
	return nil
}
