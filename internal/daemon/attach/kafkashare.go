package attach

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/dialect"
	"github.com/redrive/redrive/internal/headername"
)

// A share group's dead letter (KIP-1191, Kafka 4.4) has headers that name the record. The broker adds
// key and value only if the group asks for a copy, and the record's own headers never: so
// the record is read where it stands.

// Bounds of reading the records that dead letters point to.
const (
	nearby      = 1000             // offsets apart: read in one step
	pieceBytes  = 1 << 20          // of one step
	topicMemory = 10 * time.Second // what the brokers say of a topic counts
	topicTries  = 5
	// clocksApart is how much later than its dead letter a record may say that it was written.
	// A topic that was made anew under its old name has other records at the same offsets.
	clocksApart = time.Minute
)

// pointer is where the record of a dead letter stands, and what the dead letter itself
// has of it.
type pointer struct {
	topic     string
	partition int32
	offset    int64
	dead      *kgo.Record
	known     bool // the record was looked for
}

// pointerOf returns where the record of a share group's dead letter stands, and its group.
func pointerOf(r *kgo.Record, h redrive.Headers) (at *pointer, group string) {
	read, _ := dialect.Read(h)
	if p := &read.Place; read.Dialect == dialect.ShareGroup && p.Topic != "" && p.Group != "" && p.Partition >= 0 && p.Offset >= 0 {
		return &pointer{topic: p.Topic, partition: p.Partition, offset: p.Offset, dead: r}, p.Group
	}
	return nil, ""
}

// String names the place as origins do.
func (at *pointer) String() string { return placeText(at.topic, at.partition, at.offset) }

// copied reports whether the broker copied the record.
func (at *pointer) copied() bool { return at.dead.Key != nil || at.dead.Value != nil }

// sources reads the records that dead letters point to.
type sources struct {
	client  *kgo.Client // of its own: the other's connections wait for new dead letters
	admin   *kadm.Client
	topics  map[string]*sourceTopic
	trouble time.Time // since when no answer is of use
}

// sourceTopic is what is known of a topic for a while.
type sourceTopic struct {
	kadm.TopicDetail
	until time.Time
}

func newSources(connect []kgo.Opt) (*sources, error) {
	client, err := kgo.NewClient(connect...)
	if err != nil {
		return nil, err
	}
	return &sources{client: client, admin: kadm.NewClient(client), topics: make(map[string]*sourceTopic)}, nil
}

// complete fills in the records of letters, from the first on, as many as make a batch,
// and returns how many letters are whole.
func (s *sources) complete(ctx context.Context, letters []letter) (int, error) {
	size := 0
	for i := range letters {
		if size >= batchBytes {
			return i, nil
		}
		s.trouble = time.Time{}
		for at := letters[i].source; at != nil && !at.known; {
			if err := s.look(ctx, letters[i:]); err != nil {
				return 0, fmt.Errorf("record %s: %w", at, err)
			}
		}
		size += letters[i].message.Size()
	}
	return len(letters), nil
}

// look finds the record of the first letter, and of others that stand near it. What can
// be cured by waiting is asked again for a while.
func (s *sources) look(ctx context.Context, letters []letter) error {
	first := letters[0].source
	topic, err := s.topic(ctx, first.topic)
	if err != nil {
		return err
	}
	ofTopic := func(at *pointer) bool { return at.topic == first.topic }
	switch detail, there := topic.Partitions[first.partition]; {
	case errors.Is(topic.Err, kerr.TopicAuthorizationFailed):
		refuse(letters, ofTopic, mayNotRead(first.topic, topic.Err))
	case errors.Is(topic.Err, kerr.UnknownTopicOrPartition), errors.Is(topic.Err, kerr.InvalidTopicException):
		lose(letters, ofTopic, "there is no topic "+first.topic+" any more")
	case topic.Err != nil:
		return s.later(ctx, letters, topic.Err)
	case topic.IsInternal:
		lose(letters, ofTopic, "topic "+first.topic+" is the brokers' own")
	case !there:
		lose(letters[:1], ofTopic, fmt.Sprintf("topic %s has no partition %d", first.topic, first.partition))
	default:
		return s.fetch(ctx, letters, topic, detail.Leader)
	}
	return nil
}

// topic asks the brokers for a topic. A broker that has just started may not know it yet.
func (s *sources) topic(ctx context.Context, name string) (*sourceTopic, error) {
	if t := s.topics[name]; t != nil && time.Now().Before(t.until) {
		return t, nil
	}
	if len(s.topics) > maxPlaces {
		clear(s.topics)
	}
	for tries := 0; ; tries++ {
		meta, err := s.admin.Metadata(ctx, name)
		t := &sourceTopic{TopicDetail: meta.Topics[name], until: time.Now().Add(topicMemory)}
		if errors.Is(err, kerr.TopicAuthorizationFailed) { // the client makes one of what the brokers say of the topic
			t.Err, err = err, nil
		}
		if err != nil {
			return nil, err
		}
		if !kerr.IsRetriable(t.Err) || tries == topicTries {
			s.topics[name] = t
			return t, nil
		}
		if !wait(ctx, idle) {
			return nil, ctx.Err()
		}
	}
}

// fetch reads a piece of a partition, from the first letter's record on.
func (s *sources) fetch(ctx context.Context, letters []letter, topic *sourceTopic, leader int32) error {
	first := letters[0].source
	same := func(at *pointer) bool { return at.topic == first.topic && at.partition == first.partition }
	piece, next, err := s.read(ctx, first, topic, leader, pieceOf(letters, same))
	switch {
	case err != nil:
		return s.later(ctx, letters, err)
	case piece.Err == nil && next > first.offset:
		fill(letters, same, piece.Records, next)
	case piece.Err == nil:
		return s.later(ctx, letters, nil)
	case errors.Is(piece.Err, kerr.TopicAuthorizationFailed):
		refuse(letters, func(at *pointer) bool { return at.topic == first.topic }, mayNotRead(first.topic, piece.Err))
	case errors.Is(piece.Err, kerr.OffsetOutOfRange):
		return s.outOfRange(ctx, letters, same)
	case kerr.IsRetriable(piece.Err) && !errors.Is(piece.Err, kerr.CorruptMessage):
		return s.later(ctx, letters, piece.Err)
	default:
		refuse(letters[:1], same, fmt.Errorf("its record %s cannot be read: %w", first, piece.Err))
	}
	return nil
}

// read asks for records from one on. The group may have read what transactions left open
// or aborted, so that is read, too. It returns how far the answer goes.
func (s *sources) read(ctx context.Context, from *pointer, topic *sourceTopic, leader, most int32) (kgo.FetchPartition, int64, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(idle.Milliseconds()), 1, most //nolint:gosec // small
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.PartitionMaxBytes = from.partition, from.offset, most
	of := kmsg.NewFetchRequestTopic()
	of.Topic, of.TopicID, of.Partitions = from.topic, topic.ID, []kmsg.FetchRequestTopicPartition{part}
	req.Topics = append(req.Topics, of)
	resp, err := req.RequestWith(ctx, s.client.Broker(int(leader)))
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return kgo.FetchPartition{}, 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return kgo.FetchPartition{}, 0, errors.New("the broker's answer cannot be read")
	}
	piece, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Offset: from.offset, Topic: from.topic, Partition: from.partition},
		&resp.Topics[0].Partitions[0], kgo.DefaultDecompressor(), nil)
	return piece, next, nil
}

// pieceOf is how much is read in one step: one batch of records, the least there is,
// unless other letters of the partition point to records that follow soon.
func pieceOf(letters []letter, same func(*pointer) bool) int32 {
	first := letters[0].source
	for i := range letters[1:] {
		if at := letters[1+i].source; at != nil && !at.known && same(at) && at.offset > first.offset && at.offset <= first.offset+nearby {
			return pieceBytes
		}
	}
	return 1
}

// later waits before the question is asked again. What stays empty for long was deleted
// from the middle of the partition.
func (s *sources) later(ctx context.Context, letters []letter, err error) error {
	first := letters[0].source
	switch {
	case s.trouble.IsZero():
		s.trouble = time.Now()
	case time.Since(s.trouble) > quiet && err != nil:
		return err
	case time.Since(s.trouble) > quiet:
		// The next ones of the partition are asked for all the same, once each.
		lose(letters, func(at *pointer) bool { return at == first }, goneFrom(first.topic))
		return nil
	}
	delete(s.topics, first.topic)
	if !wait(ctx, idle) {
		return ctx.Err()
	}
	return nil
}

// outOfRange loses what stood before the start of the partition, or behind its end.
func (s *sources) outOfRange(ctx context.Context, letters []letter, same func(*pointer) bool) error {
	first := letters[0].source
	starts, err := s.admin.ListStartOffsets(ctx, first.topic)
	if err != nil {
		return s.later(ctx, letters, err)
	}
	start, ok := starts.Lookup(first.topic, first.partition)
	if !ok || start.Err != nil {
		return s.later(ctx, letters, cmp.Or(start.Err, error(kerr.UnknownTopicOrPartition)))
	}
	lose(letters, func(at *pointer) bool { return at == first || same(at) && at.offset < start.Offset }, goneFrom(first.topic))
	return nil
}

func (s *sources) close() { s.client.Close() }

func goneFrom(topic string) string {
	return "topic " + topic + " has the record no more (deleted by retention, compaction or hand)"
}

func mayNotRead(topic string, err error) error {
	return &redrive.Error{Op: "attach", Err: fmt.Errorf("no right to read topic %s, where the record is: %w", topic, err), Hint: "give this login READ on the topic, and run it again"}
}

// unknown calls do with the letters whose records were not found yet, of those that match.
func unknown(letters []letter, match func(*pointer) bool, do func(l *letter)) {
	for i := range letters {
		if at := letters[i].source; at != nil && !at.known && match(at) {
			do(&letters[i])
		}
	}
}

func refuse(letters []letter, match func(*pointer) bool, err error) {
	unknown(letters, match, func(l *letter) { l.source.known, l.refused = true, err })
}

func lose(letters []letter, match func(*pointer) bool, why string) {
	unknown(letters, match, func(l *letter) { l.lost(why) })
}

// fill gives letters their records out of an answer that ends before next. Beyond what
// memory is for, only the first gets its own.
func fill(letters []letter, same func(*pointer) bool, records []*kgo.Record, next int64) {
	first := letters[0].source
	by := make(map[int64]*kgo.Record, len(records))
	for _, r := range records {
		by[r.Offset] = r
	}
	held := 0
	for i := range letters {
		if at := letters[i].source; at != nil && at.known {
			held += letters[i].message.Size()
		}
	}
	unknown(letters, same, func(l *letter) {
		at := l.source
		r := by[at.offset]
		switch {
		case at.offset < first.offset, at.offset >= next:
		case r == nil:
			l.lost(goneFrom(at.topic))
		case at == first || held < batchBytes:
			l.found(r)
			held += l.message.Size()
		}
	})
}

// found completes a dead letter with its record: key, value and headers.
func (l *letter) found(r *kgo.Record) {
	at := l.source
	if r.Timestamp.After(at.dead.Timestamp.Add(clocksApart)) || at.copied() && !(bytes.Equal(r.Key, at.dead.Key) && bytes.Equal(r.Value, at.dead.Value)) {
		l.lost("another record stands at " + at.String() + ": the topic was made anew")
		return
	}
	at.known = true
	notes := slices.DeleteFunc(l.message.Headers, func(h redrive.Header) bool { return !dialect.ShareGroupNote(h.Name) })
	l.message.Headers = append(headersOf(r), notes...)
	l.hold(slices.Clone(r.Key), slices.Clone(r.Value)) // the answer they are part of may be large
}

// lost notes that the record of a dead letter cannot be had any more.
func (l *letter) lost(why string) {
	l.source.known = true
	if l.source.copied() {
		l.extra.Add(headername.OriginalNoHeaders, why)
		return
	}
	l.gone = why
	l.extra.Del(headername.OriginalNoBody)
	l.extra.Add(redrive.HeaderBodyGone, why)
}
