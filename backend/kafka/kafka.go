// Package kafka is a source and sink on one topic of Apache Kafka. It is no store: what
// is to be delayed, looked into, edited or redriven is parked in one beside it, or kept
// in topics of its own with [Options.Native].
//
// Guarantees. Publish returns when all replicas in sync have the record. Records of a
// partition are handled at the same time and settled in any order: the group's committed
// offset never passes the lowest one that is unfinished, and the finished ones above it
// stand as ranges in the metadata of the same commit (see window), so that Settle
// returns after its result is as durable as a publish, and another member goes on exactly
// there. A settlement of a member whose partition was taken away is refused, by us and by
// the broker's generations; nothing is committed for it. A native dead letter or retry is
// written in one transaction with the offset, with the group's generation: readers of
// committed records see it once.
//
// Native limits. Kafka counts no deliveries and knows no lease: a record is ours as
// long as its partition is. When it is taken away, what is in flight has [Options.Drain]
// to end; then it belongs to the next member. The first records after an assignment are
// marked as perhaps claimed before, as many as another member can have had in flight,
// so that the engine looks for the claim records of one that crashed. While the oldest unfinished
// record is 100,000 records behind, or 24,000 and the finished ones beyond it are in 900
// pieces, its partition delivers no more and is not fetched from; the others go on. Such a
// record is logged. A native retry waits in the topic of the next
// longer delay; it is never early by its writer's clock, and late only while more than
// 1,000 wait in one partition of that topic. Dead letters in a topic cannot be found,
// edited or redriven one by one until they are brought into a store.
//
// Records of others are messages too: their id is derived from cluster, topic,
// partition and offset.
//
// Caps. Fences, identity, with [Options.Ordered] order by key; nothing else. Retries, delays, dead letters and repeats are
// parked, emits published before their settlement. Native: delays up to the longest retry
// topic, dead letters and their histories, in a transaction unless it is dead=publish.
package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// DefaultDrain is how long a revocation waits for what is in flight.
const DefaultDrain = 5 * time.Second

// Bounds of what is fetched and not claimed yet.
const (
	bufferRecords = 4096
	bufferBytes   = 32 << 20
	pollRecords   = 512
	maxWindow     = 100_000 // records from the committed offset to the newest that was claimed
	retryRecords  = 1000    // of a partition of a retry topic
)

// batchBytes is the largest batch of records that is published.
const batchBytes = redrive.MaxBodySize + redrive.MaxHeaderSize + 1<<20

// deliveryTimeout is how long a record may take to be published.
const deliveryTimeout = 30 * time.Second

// Options configures a [Source]. Every field has a default.
type Options struct {
	// Queue is what the topic is called in Redrive. Defaults to the topic's name.
	Queue string
	// Drain is how long a revocation waits for what is in flight. Defaults to 5 s; it
	// must be below the group's rebalance timeout of 60 s.
	Drain time.Duration
	// Native keeps what failed at the brokers: retries in topics by their delay, dead
	// letters in a topic. The address says in which, and how.
	Native bool
	// Ordered delivers a record only when those before it that have its key are settled.
	// The store must keep the queue's order by key, too: what failed waits there, and the
	// records behind it follow it there. Not with Native.
	Ordered bool
	// Log gets a line for each record that holds its partition back. Defaults to
	// slog.Default.
	Log *slog.Logger
	// Client adds options of the client, such as TLS, SASL or a balancer. Optional.
	Client []kgo.Opt
}

// Source is a source and sink on one topic, as a member of a consumer group. It is safe
// for concurrent use.
type Source struct {
	*target
	o       Options
	cluster string
	names   map[[16]byte]string // of the retry topics, by their ids
	admin   *kadm.Client

	main  *member // of the group, on the topic
	retry *member // of a group of its own, on the retry topics; nil unless native
	mover *mover  // nil unless native by transactions

	alive    context.Context //nolint:containedctx // of the loops
	stop     context.CancelFunc
	once     sync.Once
	watching sync.WaitGroup

	ends ends

	mu      sync.Mutex
	epochs  map[uint64]*partition // by the number of the assignment
	epoch   uint64
	token   uint64
	version uint64
	changed chan struct{} // closed at a change
	fault   error         // the newest of fetching
	closed  bool
}

var (
	_ driver.Source         = (*Source)(nil)
	_ redrive.Sink          = (*Source)(nil)
	_ driver.DeadLetterSink = (*Source)(nil)
)

// Open joins a consumer group: kafka://host:9092,host:9092/TOPIC?group=GROUP. The group
// defaults to "redrive". A group without a committed offset begins at the topic's
// start. It fails if no broker answers before ctx ends, or if there is no such topic.
//
// With TLS the scheme is kafkas, and tls_ca, tls_cert, tls_key and tls_server_name may be given.
// user:password@ logs in by SASL: sasl=scram-sha-512 (the default), scram-sha-256 or plain.
//
// With [Options.Native] the address may say more: dead=transaction (the default) or
// dead=publish, dlq=TOPIC (TOPIC.dlq), retry=PREFIX (TOPIC.retry.GROUP), tiers=1s,5s,30s,2m,10m,1h
// and create=true, which makes the topics that are missing.
func Open(ctx context.Context, address string, o Options) (*Source, error) {
	t, err := parse(address)
	if err != nil {
		return nil, openError(err, addressHint)
	}
	if t.share != "" {
		return nil, openError(fmt.Errorf("%w address of Kafka: it names a share group", redrive.ErrInvalid), "open it by OpenShare, or write group instead of share")
	}
	if (t.native || t.create) && !o.Native {
		return nil, openError(fmt.Errorf("%w address of Kafka: only group has a meaning where dead letters are parked", redrive.ErrInvalid), "write dead_letters: native, or leave the other parameters out")
	}
	s := &Source{target: t, o: o, changed: make(chan struct{}), epochs: make(map[uint64]*partition)}
	if s.o.Queue == "" {
		s.o.Queue = s.topic
	}
	if s.o.Drain == 0 {
		s.o.Drain = DefaultDrain
	}
	if s.o.Ordered && s.o.Native {
		return nil, openError(fmt.Errorf("order by key where retries stay at the brokers: %w", redrive.ErrUnsupported), "leave one of the two out")
	}
	if s.o.Log == nil {
		s.o.Log = slog.Default()
	}
	if err := driver.CheckQueue(s.o.Queue); err != nil {
		return nil, openError(err, "give the queue another name than the topic's")
	}
	s.alive, s.stop = context.WithCancel(context.Background())
	s.reach.changed = s.change
	if err := s.connect(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// connect joins the groups.
func (s *Source) connect(ctx context.Context) (err error) {
	if s.main, err = s.member(s.group, false, s.topic); err != nil {
		return openError(err, "")
	}
	s.admin = kadm.NewClient(s.main.client)
	meta, err := lookUp(ctx, s.admin, s.topic)
	if err != nil {
		return err
	}
	s.cluster = meta.Cluster
	if s.o.Native {
		if err := s.topology(ctx, len(meta.Topics[s.topic].Partitions)); err != nil {
			return err
		}
		if s.retry, err = s.member(s.group+".retry", true, s.tierTopics()...); err != nil {
			return openError(err, "")
		}
		if s.how == byTransaction {
			s.mover = &mover{s: s, id: "redrive-" + s.group + "-" + redrive.NewID()}
		}
	}
	for _, m := range s.members() {
		m.polled = make(chan struct{})
		go m.poll()
	}
	s.watching.Go(func() { watch(s.alive, s.reportSlow) })
	return nil
}

// members returns those that there are.
func (s *Source) members() []*member {
	all := make([]*member, 0, 2)
	for _, m := range []*member{s.main, s.retry} {
		if m != nil {
			all = append(all, m)
		}
	}
	return all
}

// options are those of every client.
func (t *target) options() []kgo.Opt {
	return append(slices.Clone(t.connect),
		kgo.MetadataMinAge(250*time.Millisecond), // topics may be ours of a moment ago
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchMaxBytes(batchBytes),
		kgo.RecordDeliveryTimeout(deliveryTimeout),
		kgo.UnknownTopicRetries(2),
		kgo.WithHooks(t.reach),
	)
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

// Caps implements driver.Source.
func (s *Source) Caps() driver.Caps {
	c := driver.Caps{Name: "kafka", Fenced: true, Expires: true, Identity: redrive.IdentityPosition, Transfer: driver.TransferNone, Ordered: s.o.Ordered}
	if s.o.Native {
		c.MaxDelay, c.DeadLetters, c.KeepsHistory = s.longest(), true, true
		if s.how == byTransaction {
			c.Transfer = driver.TransferTransaction
		}
	}
	return c
}

// Close leaves the groups. What is in flight belongs to the next member.
func (s *Source) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		s.closed = true
		for _, p := range s.epochs {
			s.dropLocked(p)
		}
		s.changeLocked()
		s.mu.Unlock()
		s.stop()
		s.watching.Wait()
		for _, m := range s.members() {
			m.close()
		}
		if s.mover != nil {
			s.mover.close()
		}
	})
	return nil
}

// position names a claim: the assignment's number and the offset.
type position struct {
	epoch  uint64
	offset int64
}

func (p position) String() string {
	return strconv.FormatUint(p.epoch, 36) + "/" + strconv.FormatInt(p.offset, 10)
}

func readPosition(text string) (p position, ok bool) {
	epoch, offset, _ := strings.Cut(text, "/")
	var errs [2]error
	p.epoch, errs[0] = strconv.ParseUint(epoch, 36, 64)
	p.offset, errs[1] = strconv.ParseInt(offset, 10, 64)
	return p, errs == [2]error{}
}
