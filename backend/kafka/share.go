package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Bounds of a [Share].
const (
	shareBatch    = 128                    // records that one fetch acquires
	shareInflight = 16_384                 // records in flight, beyond which none are fetched
	shareWait     = 100 * time.Millisecond // of a fetch that finds nothing: acknowledgements wait for it
	shareFlush    = 30 * time.Second       // for the answer to acknowledgements
)

// Share is a source and sink on one topic, as a member of a share group (KIP-932): the
// brokers lock each record for one member, count its deliveries and know of each whether
// it is accepted. More members than partitions are of use. It is experimental: names and
// parameters may change without a new major version. It is safe for concurrent use.
//
// Guarantees. Settle returns when the partition's leader has answered the
// acknowledgement. The locks of what is in flight are renewed as long as the process lives.
// When its connection ends, or else when they run out (share.record.lock.duration.ms of the
// group, 30 s), the records come again as suspects. A settlement after that is refused, by
// us and by the broker.
//
// Native limits. The broker ends a record by itself, in silence, after
// group.share.delivery.count.limit (5) deliveries: those that come
// for one of the last times go on in the store instead, as suspects. One refused acknowledgement
// refuses the others of its partition in the same call: their records come again when their
// locks run out. A fetch that finds nothing delays acknowledgements by up to 100 ms. There
// is no order by key, and no native retry or dead letter.
//
// Caps. Fences and identity; nothing else.
type Share struct {
	*target
	o       Options
	cluster string
	client  *kgo.Client
	admin   *kadm.Client
	renews  bool  // the brokers renew locks (KIP-1222)
	limit   int32 // deliveries after which the broker ends a record

	alive  context.Context //nolint:containedctx // of the loops
	stop   context.CancelFunc
	loops  sync.WaitGroup
	once   sync.Once
	acking sync.Mutex // one flush of acknowledgements at a time; before mu

	mu       sync.Mutex
	buffer   []*sharedRecord
	inflight map[sharedAt]*sharedRecord // claimed, not settled
	newest   map[place]int64            // offset of the newest record that came
	lock     time.Duration              // how long the broker locks a record
	failed   map[place]error            // of acknowledgements, since the last flush
	token    uint64
	version  uint64
	changed  chan struct{} // closed at a change
	fault    error
	closed   bool
}

// sharedAt names a record of the topic.
type sharedAt struct {
	place
	offset int64
}

// sharedRecord is a record that the brokers locked for us.
type sharedRecord struct {
	*kgo.Record
	at         sharedAt
	deliveries int32
	until      time.Time // when its lock runs out, at the earliest
	since      time.Time // when it was claimed
	receipt    redrive.Receipt
	sent       bool // its last acknowledgement is on its way
	reported   bool // as slow
}

var (
	_ driver.Source = (*Share)(nil)
	_ redrive.Sink  = (*Share)(nil)
)

// Shared reports whether an address names a share group, so that [OpenShare] takes it.
func Shared(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Query().Has("share")
}

// OpenShare joins a share group, which is experimental (see [Share]):
// kafka://host:9092/TOPIC?share=GROUP. It takes what
// [Open] does but native dead letters and order by key. A new group begins at the topic's
// start if the address says create=true, which sets share.auto.offset.reset of the group;
// else where the group's configuration says, by default at the end. It fails if the brokers
// have no share groups: they need Kafka 4.2, or 4.1 with the preview switched on.
func OpenShare(ctx context.Context, address string, o Options) (*Share, error) {
	t, err := parse(address)
	switch {
	case err != nil:
		return nil, openError(err, "write it as kafka://host:9092/topic?share=redrive")
	case t.share == "":
		return nil, openError(fmt.Errorf("%w address of Kafka: it names no share group", redrive.ErrInvalid), "write it as kafka://host:9092/topic?share=redrive")
	case o.Native || t.native:
		return nil, openError(fmt.Errorf("dead letters at the brokers with a share group: %w", redrive.ErrUnsupported), "leave them to the store, or use group instead of share")
	case o.Ordered:
		return nil, openError(fmt.Errorf("order by key with a share group: %w", redrive.ErrUnsupported), "use group instead of share")
	}
	if o.Queue == "" {
		o.Queue = t.topic
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if err := driver.CheckQueue(o.Queue); err != nil {
		return nil, openError(err, "give the queue another name than the topic's")
	}
	s := &Share{target: t, o: o, changed: make(chan struct{}), inflight: make(map[sharedAt]*sharedRecord), newest: make(map[place]int64), failed: make(map[place]error)}
	s.alive, s.stop = context.WithCancel(context.Background())
	s.reach.changed = s.change
	if err := s.connect(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// connect asks the brokers what they can do, and joins the group.
func (s *Share) connect(ctx context.Context) (err error) {
	plain, err := kgo.NewClient(append(s.target.options(), s.o.Client...)...)
	if err != nil {
		return openError(err, "")
	}
	defer plain.Close()
	meta, err := lookUp(ctx, kadm.NewClient(plain), s.topic)
	if err != nil {
		return err
	}
	s.cluster = meta.Cluster
	if s.renews, err = shares(ctx, plain); err != nil {
		return err
	}
	if err := s.configure(ctx, plain); err != nil {
		return err
	}
	s.client, err = kgo.NewClient(append(append(s.target.options(),
		kgo.ShareGroup(s.share),
		kgo.ConsumeTopics(s.topic),
		kgo.ShareMaxRecords(shareBatch),
		kgo.ShareMaxRecordsStrict(), // nothing is fetched ahead of a poll: its locks would run
		kgo.ShareAckCallback(s.acknowledged),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxBytes(16<<20),
		kgo.FetchMaxWait(shareWait),
		kgo.WithHooks(hide{}),
	), s.o.Client...)...)
	if err != nil {
		return openError(err, "")
	}
	s.admin = kadm.NewClient(s.client)
	s.loops.Go(s.poll)
	s.loops.Go(s.keep)
	s.loops.Go(func() { watch(s.alive, s.reportSlow) })
	return nil
}

// shares reports whether the brokers have share groups, and whether they renew locks.
func shares(ctx context.Context, client *kgo.Client) (renews bool, err error) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "redrive", "1"
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return false, openError(err, "is a broker running there?")
	}
	newest := map[int16]int16{}
	for _, k := range resp.ApiKeys {
		newest[k.ApiKey] = k.MaxVersion
	}
	const heartbeat, fetch, acknowledge = 76, 78, 79
	for _, key := range []int16{heartbeat, fetch, acknowledge} {
		if v, ok := newest[key]; !ok || v < 1 {
			return false, noShares()
		}
	}
	for _, f := range resp.FinalizedFeatures {
		if f.Name == "share.version" && f.MaxVersionLevel >= 1 {
			return newest[acknowledge] >= 2, nil
		}
	}
	return false, noShares()
}

func noShares() error {
	return openError(fmt.Errorf("the brokers have no share groups: %w", redrive.ErrUnsupported), "it needs Kafka 4.2, or 4.1 with the preview feature share.version=1; or write group instead of share")
}

// Caps implements driver.Source.
func (s *Share) Caps() driver.Caps {
	return driver.Caps{Name: "kafka", Fenced: true, Expires: true, Identity: redrive.IdentityPosition, Transfer: driver.TransferNone}
}

// Close gives back what is in flight and leaves the group.
func (s *Share) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.changeLocked()
		s.mu.Unlock()
		s.stop()
		s.loops.Wait()
		if s.client == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), shareFlush)
		defer cancel()
		s.giveBack(ctx)
		_ = s.client.LeaveGroupContext(ctx)
		s.client.Close()
	})
	return nil
}

// giveBack releases everything; what cannot be comes again when its lock ran out.
func (s *Share) giveBack(ctx context.Context) {
	s.acking.Lock()
	defer s.acking.Unlock()
	s.mu.Lock()
	all := s.buffer
	for _, r := range s.inflight {
		if !r.sent {
			all = append(all, r)
		}
	}
	s.buffer = nil
	clear(s.inflight)
	s.mu.Unlock()
	for _, r := range all {
		r.Ack(kgo.AckRelease)
	}
	_ = s.client.FlushAcks(ctx)
}

// changeLocked tells those who wait.
func (s *Share) change() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changeLocked()
}

func (s *Share) changeLocked() {
	s.version++
	s.wakeLocked()
}

// wakeLocked lets the poll see that there is room. It is no change for those who wait for
// records.
func (s *Share) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Publish implements redrive.Sink, as [Source.Publish] does.
func (s *Share) Publish(ctx context.Context, msgs []redrive.Message) []error {
	fit := func(m *redrive.Message) error { return s.fit(m, s.o.Queue, 0) }
	return s.publishTo(ctx, s.client, msgs, fit, s.record)
}

// lost reports whether a broker's answer says that a record is not ours any more.
func lost(err error) bool {
	var code *kerr.Error
	return errors.As(err, &code)
}
