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
	retries bool // what is buffered is claimed when it is due
	client  *kgo.Client
	polled  chan struct{} // closed when the poll loop has ended; nil: it was not begun

	braking    sync.Mutex // pauses and resumes are carried out in the order of their decisions; before the source's
	committing sync.Mutex // commits go out in the order of their offsets
	unsure     []*move    // of a transaction that may have been committed; under committing

	// Under the source's lock.
	partitions map[place]*partition
	ordered    []*partition // the same in a fixed order; nil: they changed
	turn       int          // the partition that is claimed from first
	records    int          // fetched and not claimed
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

// poll fetches records as long as the source lives. Not polling is the brake: the client
// keeps the membership alive by itself. Single partitions are held back whose records wait
// for long: those of retry topics, and one whose window is full, which must not hold up the
// others.
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
		s.changeLocked()
		s.mu.Unlock()
		m.brake()
	}
}

// awaitRoom waits until the buffer may grow.
func (m *member) awaitRoom() bool {
	s := m.s
	for {
		m.brake()
		s.mu.Lock()
		room, changed := m.roomLocked(), s.changed
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

// roomLocked reports whether the buffer may grow. What waits in partitions that are paused
// is not counted.
func (m *member) roomLocked() bool {
	records, bytes := m.records, m.bytes
	for _, p := range m.partitions {
		if p.paused {
			records -= p.count
			bytes -= p.bytes
		}
	}
	return records < bufferRecords && bytes < bufferBytes
}

// brakedLocked reports whether a partition is paused.
func (m *member) brakedLocked() bool {
	for _, p := range m.partitions {
		if p.paused {
			return true
		}
	}
	return false
}

// brake pauses fetching of the partitions that are full, and resumes it where there is room
// again. What it decides is carried out before another call decides.
func (m *member) brake() {
	m.braking.Lock()
	defer m.braking.Unlock()
	pause, resume := make(map[string][]int32), make(map[string][]int32)
	m.s.mu.Lock()
	for at, p := range m.partitions {
		switch {
		case !p.paused && p.fullLocked():
			p.paused = true
			pause[at.topic] = append(pause[at.topic], at.number)
		case p.paused && p.hungryLocked():
			p.paused = false
			resume[at.topic] = append(resume[at.topic], at.number)
		}
	}
	m.s.mu.Unlock()
	if len(pause) > 0 {
		m.client.PauseFetchPartitions(pause)
	}
	if len(resume) > 0 {
		m.client.ResumeFetchPartitions(resume)
	}
}

// release resumes fetching of partitions that were assigned: one that was paused when it was
// taken away stays so.
func (m *member) release(client *kgo.Client, all map[string][]int32) {
	m.braking.Lock()
	defer m.braking.Unlock()
	resume := make(map[string][]int32, len(all))
	m.s.mu.Lock()
	for topic, numbers := range all {
		for _, n := range numbers {
			if p := m.partitions[place{topic, n}]; p != nil && !p.paused {
				resume[topic] = append(resume[topic], n)
			}
		}
	}
	m.s.mu.Unlock()
	if len(resume) > 0 {
		client.ResumeFetchPartitions(resume)
	}
}

// assigned is called before the committed offsets are fetched.
func (m *member) assigned(_ context.Context, client *kgo.Client, all map[string][]int32) {
	s := m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, numbers := range all {
		for _, n := range numbers {
			s.epoch++
			p := &partition{m: m, place: place{topic, n}, epoch: s.epoch, next: -1, inflight: make(map[int64]flight)}
			if s.o.Ordered {
				p.keys = newKeys()
			}
			m.partitions[p.place], m.ordered, s.epochs[s.epoch] = p, nil, p
		}
	}
	again := make(map[string][]int32, len(all))
	for topic, numbers := range all {
		again[topic] = slices.Clone(numbers)
	}
	go m.release(client, again) // not under the locks of this callback
}

// revoked gives what is in flight some time, then lets go of it.
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
