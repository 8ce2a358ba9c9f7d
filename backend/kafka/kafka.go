// Package kafka is a source and sink on one topic of Apache Kafka. It is no store: what
// is to be delayed, looked into, edited or redriven is parked in one beside it.
//
// Guarantees. Publish returns when all replicas in sync have the record. Records of a
// partition are handled at the same time and settled in any order: the group's committed
// offset never passes the lowest one that is unfinished, and the finished ones above it
// stand as ranges in the metadata of the same commit (see window), so that Settle
// returns after its result is as durable as a publish, and another member goes on exactly
// there. A settlement of a member whose partition was taken away is refused, by us and by
// the broker's generations; nothing is committed for it.
//
// Native limits. Kafka counts no deliveries and knows no lease: a record is ours as
// long as its partition is. When it is taken away, what is in hand has [Options.Drain]
// to end; then it belongs to the next member. The first records after an assignment are
// marked as perhaps handed out before, as many as another member can have had in hand,
// so that the engine looks for the marks of one that crashed. While the oldest unfinished
// record is 100,000 records behind, or 24,000 and the finished ones beyond it are in 900
// pieces, its partition hands out no more.
//
// Records of others are messages too: their id is derived from cluster, topic,
// partition and offset.
//
// Caps. Fences, identity; nothing else. Retries, delays, dead letters and repeats are
// parked, emits published before their settlement.
package kafka

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
)

// DefaultDrain is how long a revocation waits for what is in hand.
const DefaultDrain = 5 * time.Second

// Bounds of what is fetched and not handed out yet.
const (
	bufferRecords = 4096
	bufferBytes   = 32 << 20
	pollRecords   = 512
	maxWindow     = 100_000 // records from the mark to the newest that was handed out
)

// batchBytes is the largest batch of records that is published.
const batchBytes = redrive.MaxBodySize + redrive.MaxHeaderSize + 1<<20

// deliveryTimeout is how long a record may take to be published.
const deliveryTimeout = 30 * time.Second

const addressHint = "write it as kafka://host:9092/topic?group=redrive"

// Options configures a [Source]. Every field has a default.
type Options struct {
	// Queue is what the topic is called in Redrive. Defaults to the topic's name.
	Queue string
	// Drain is how long a revocation waits for what is in hand. Defaults to 5 s; it
	// must be below the group's rebalance timeout of 60 s.
	Drain time.Duration
	// Client adds options of the client, such as TLS, SASL or a balancer. Optional.
	Client []kgo.Opt
}

// Source is a source and sink on one topic, as a member of a consumer group. It is safe
// for concurrent use.
type Source struct {
	o       Options
	topic   string
	group   string
	cluster string
	client  *kgo.Client
	admin   *kadm.Client

	alive  context.Context //nolint:containedctx // of the poll loop
	stop   context.CancelFunc
	polled chan struct{} // closed when the poll loop has ended
	once   sync.Once

	committing sync.Mutex // commits go out in the order of their marks

	mu         sync.Mutex
	partitions map[int32]*partition
	turn       int // the partition that is claimed from first
	epoch      uint64
	token      uint64
	records    int   // fetched and not handed out
	bytes      int64 // of them
	version    uint64
	changed    chan struct{} // closed at a change
	fault      error         // the newest of fetching
	closed     bool
}

var (
	_ redrive.Source = (*Source)(nil)
	_ redrive.Sink   = (*Source)(nil)
)

// Open joins a consumer group: kafka://host:9092,host:9092/TOPIC?group=GROUP. The group
// defaults to "redrive". A group without a committed offset begins at the topic's
// start. It fails if no broker answers before ctx ends, or if there is no such topic.
func Open(ctx context.Context, address string, o Options) (*Source, error) {
	s, brokers, err := parse(address)
	if err != nil {
		return nil, openError(err, addressHint)
	}
	s.o = o
	if s.o.Queue == "" {
		s.o.Queue = s.topic
	}
	if s.o.Drain == 0 {
		s.o.Drain = DefaultDrain
	}
	if err := redrive.CheckQueue(s.o.Queue); err != nil {
		return nil, openError(err, "give the queue another name than the topic's")
	}
	s.alive, s.stop = context.WithCancel(context.Background())
	s.client, err = kgo.NewClient(append(s.options(brokers), o.Client...)...)
	if err != nil {
		s.stop()
		return nil, openError(err, "")
	}
	s.admin = kadm.NewClient(s.client)
	if err := s.check(ctx); err != nil {
		s.stop()
		s.client.CloseAllowingRebalance()
		return nil, err
	}
	go s.poll()
	return s, nil
}

func parse(address string) (*Source, []string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "kafka" || u.Host == "" {
		return nil, nil, fmt.Errorf("%w address of Kafka", redrive.ErrInvalid)
	}
	s := &Source{topic: strings.Trim(u.Path, "/"), group: "redrive", changed: make(chan struct{}),
		polled: make(chan struct{}), partitions: make(map[int32]*partition)}
	if s.topic == "" {
		return nil, nil, fmt.Errorf("%w address of Kafka: it names no topic", redrive.ErrInvalid)
	}
	for name, values := range u.Query() {
		if name != "group" || values[0] == "" {
			return nil, nil, fmt.Errorf("%w parameter %q", redrive.ErrInvalid, name)
		}
		s.group = values[0]
	}
	brokers := strings.Split(u.Host, ",")
	for i := range brokers {
		if !strings.Contains(brokers[i], ":") {
			brokers[i] += ":9092"
		}
	}
	return s, brokers, nil
}

func (s *Source) options(brokers []string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(brokers...),
		kgo.ClientID("redrive"),
		kgo.ConsumerGroup(s.group),
		kgo.ConsumeTopics(s.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(15 * time.Second), // after which a member that died is replaced
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxBytes(16 << 20),
		kgo.FetchMaxWait(500 * time.Millisecond),
		kgo.OnPartitionsAssigned(s.assigned),
		kgo.OnOffsetsFetched(s.offsets),
		kgo.OnPartitionsRevoked(s.revoked),
		kgo.OnPartitionsLost(s.lost),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchMaxBytes(batchBytes),
		kgo.RecordDeliveryTimeout(deliveryTimeout),
		kgo.UnknownTopicRetries(2),
	}
}

// check asks the brokers for the topic and the cluster's name.
func (s *Source) check(ctx context.Context) error {
	meta, err := lookUp(ctx, s.admin, s.topic)
	s.cluster = meta.Cluster
	return err
}

// lookUp asks the brokers for a topic that must be there.
func lookUp(ctx context.Context, admin *kadm.Client, topic string) (kadm.Metadata, error) {
	meta, err := admin.Metadata(ctx, topic)
	if err != nil {
		return meta, openError(err, "is a broker running there?")
	}
	if err := meta.Topics[topic].Err; err != nil {
		return meta, openError(fmt.Errorf("topic %s: %w", topic, err), "make the topic first")
	}
	return meta, nil
}

func openError(err error, hint string) error {
	return &redrive.Error{Op: "open", Err: fmt.Errorf("source in Kafka: %w", err), Hint: hint}
}

// Caps implements redrive.Source.
func (s *Source) Caps() redrive.Caps {
	return redrive.Caps{Name: "kafka", Fenced: true, Expires: true, Identity: redrive.IdentityPosition, Transfer: redrive.TransferNone}
}

// Close leaves the group. What is in hand belongs to the next member.
func (s *Source) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		s.closed = true
		for _, p := range s.partitions {
			s.dropLocked(p)
		}
		s.changeLocked()
		s.mu.Unlock()
		s.stop()
		<-s.polled
		s.client.CloseAllowingRebalance()
	})
	return nil
}

// position names a claim: the assignment's number, partition and offset.
type position struct {
	epoch     uint64
	partition int32
	offset    int64
}

func (p position) String() string {
	return strconv.FormatUint(p.epoch, 36) + "/" + strconv.FormatInt(int64(p.partition), 10) + "/" + strconv.FormatInt(p.offset, 10)
}

func readPosition(text string) (p position, ok bool) {
	epoch, rest, _ := strings.Cut(text, "/")
	number, offset, _ := strings.Cut(rest, "/")
	var errs [3]error
	p.epoch, errs[0] = strconv.ParseUint(epoch, 36, 64)
	n, err := strconv.ParseInt(number, 10, 32)
	p.partition, errs[1] = int32(n), err
	p.offset, errs[2] = strconv.ParseInt(offset, 10, 64)
	return p, errs == [3]error{}
}
