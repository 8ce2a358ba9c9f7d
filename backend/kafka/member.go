package kafka

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// member is our part of a consumer group.
type member struct {
	s       *Source
	group   string
	topics  []string
	retries bool // what is buffered is handed out when it is due
	client  *kgo.Client
	polled  chan struct{} // closed when the poll loop has ended; nil: it was not begun

	committing sync.Mutex // commits go out in the order of their marks
	unsure     []*move    // of a transaction that may have been committed; under committing

	// Under the source's lock.
	partitions map[place]*partition
	ordered    []*partition // the same in a fixed order; nil: they changed
	turn       int          // the partition that is claimed from first
	records    int          // fetched and not handed out
	bytes      int64        // of them
}

// place is a partition of a topic.
type place struct {
	topic  string
	number int32
}

// member joins a group when it is polled.
func (s *Source) member(group string, retries bool, topics ...string) (*member, error) {
	m := &member{s: s, group: group, topics: topics, retries: retries, partitions: make(map[place]*partition)}
	var err error
	m.client, err = kgo.NewClient(append(append(s.options(),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(15*time.Second), // after which a member that died is replaced
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxBytes(16<<20),
		kgo.FetchMaxWait(500*time.Millisecond),
		kgo.OnPartitionsAssigned(m.assigned),
		kgo.OnOffsetsFetched(m.offsets),
		kgo.OnPartitionsRevoked(m.revoked),
		kgo.OnPartitionsLost(m.lost),
	), s.o.Client...)...)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// close leaves the group once the source is closed.
func (m *member) close() {
	if m.polled != nil {
		<-m.polled
	}
	m.client.CloseAllowingRebalance()
}

// poll fetches records as long as the source lives. Not polling is the only brake that
// the topic needs: the client keeps the membership alive by itself. Of the retry topics
// single partitions are held back, as their records wait for so long.
func (m *member) poll() {
	defer close(m.polled)
	s := m.s
	for s.alive.Err() == nil {
		if !m.retries && !m.awaitRoom() {
			return
		}
		fetches := m.client.PollRecords(s.alive, pollRecords)
		if fetches.IsClientClosed() {
			return
		}
		s.mu.Lock()
		fetches.EachError(func(_ string, _ int32, err error) {
			if s.alive.Err() == nil {
				s.fault = err
			}
		})
		fetches.EachPartition(func(t kgo.FetchTopicPartition) { m.fetchedLocked(place{t.Topic, t.Partition}, t.Records) })
		full := m.fullLocked()
		s.changeLocked()
		s.mu.Unlock()
		if full != nil {
			m.client.PauseFetchPartitions(full)
		}
	}
}

// awaitRoom waits until the buffer may grow.
func (m *member) awaitRoom() bool {
	s := m.s
	for {
		s.mu.Lock()
		room, changed := m.records < bufferRecords && m.bytes < bufferBytes, s.changed
		s.mu.Unlock()
		if room {
			return true
		}
		select {
		case <-changed:
		case <-s.alive.Done():
			return false
		}
	}
}

// fullLocked returns the partitions of retry topics of which enough is buffered.
func (m *member) fullLocked() (full map[string][]int32) {
	if !m.retries {
		return nil
	}
	for at, p := range m.partitions {
		if !p.paused && len(p.buffer) >= retryRecords {
			p.paused = true
			if full == nil {
				full = make(map[string][]int32)
			}
			full[at.topic] = append(full[at.topic], at.number)
		}
	}
	return full
}

// emptiedLocked returns the partitions that may be fetched from again.
func (m *member) emptiedLocked() (emptied map[string][]int32) {
	for at, p := range m.partitions {
		if p.paused && len(p.buffer) < retryRecords/2 {
			p.paused = false
			if emptied == nil {
				emptied = make(map[string][]int32)
			}
			emptied[at.topic] = append(emptied[at.topic], at.number)
		}
	}
	return emptied
}

// assigned is called before the committed offsets are fetched.
func (m *member) assigned(_ context.Context, client *kgo.Client, all map[string][]int32) {
	s := m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, numbers := range all {
		for _, n := range numbers {
			s.epoch++
			p := &partition{m: m, place: place{topic, n}, epoch: s.epoch, next: -1, hands: make(map[int64]hand)}
			if s.o.Ordered {
				p.keys = newKeys()
			}
			m.partitions[p.place], m.ordered, s.epochs[s.epoch] = p, nil, p
		}
	}
	if m.retries { // else one that was held back when it was taken away stays so
		again := make(map[string][]int32, len(all))
		for topic, numbers := range all {
			again[topic] = slices.Clone(numbers)
		}
		go client.ResumeFetchPartitions(again) // not under the locks of this callback
	}
}

// revoked gives what is in hand some time, then lets go of it.
func (m *member) revoked(ctx context.Context, _ *kgo.Client, all map[string][]int32) {
	s := m.s
	deadline := time.NewTimer(s.o.Drain)
	defer deadline.Stop()
	s.mu.Lock()
	var gone []*partition
	for topic, numbers := range all {
		for _, n := range numbers {
			if p := m.partitions[place{topic, n}]; p != nil {
				gone = append(gone, p)
				s.endLocked(p)
			}
		}
	}
	s.mu.Unlock()
	for _, p := range gone {
		select {
		case <-p.empty:
		case <-deadline.C:
			deadline.Reset(0) // for the others as well
		case <-ctx.Done():
		case <-s.alive.Done():
		}
	}
	m.forget(all)
}

// lost lets go of partitions that others have already.
func (m *member) lost(_ context.Context, _ *kgo.Client, all map[string][]int32) { m.forget(all) }

func (m *member) forget(all map[string][]int32) {
	s := m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, numbers := range all {
		for _, n := range numbers {
			if p := m.partitions[place{topic, n}]; p != nil {
				s.dropLocked(p)
			}
		}
	}
	s.changeLocked()
}
