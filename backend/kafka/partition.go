package kafka

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redrive/redrive/driver"
)

// partition is one that is assigned to us. Its fields are under the source's lock.
type partition struct {
	m *member
	place
	epoch    uint64 // of the assignment; receipts of another are refused
	window   window
	known    bool             // the committed offset was fetched
	next     int64            // the offset after the newest record that was fetched; -1: none yet
	old      int64            // below this another member may have handed records out
	buffer   []*kgo.Record    // to be claimed, by offset; those of retry topics by their time
	due      []time.Time      // of the records of a retry topic
	paused   bool             // nothing more is fetched of it
	count    int              // fetched and not claimed
	bytes    int64            // of them
	inflight map[int64]flight // what is in flight, by offset
	keys     *keys            // with order by key; else nil
	ending   bool             // it is being taken away
	empty    chan struct{}    // closed when nothing is in flight any more, once ending
}

// flight is a record that was claimed.
type flight struct {
	token  uint64
	record *kgo.Record
	id     string // of the message
	since  time.Time
	moved  bool // it was published to another topic, and its offset is still to be committed

	reported bool // as slow
}

// offsets is called with the committed offsets, before records are fetched.
func (m *member) offsets(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	for i := range resp.Groups {
		for _, t := range resp.Groups[i].Topics {
			for _, p := range t.Partitions {
				m.offset(t.TopicID, t.Topic, p.Partition, p.Offset, p.Metadata, p.ErrorCode)
			}
		}
	}
	for _, t := range resp.Topics { // of older brokers
		for _, p := range t.Partitions {
			m.offset([16]byte{}, t.Topic, p.Partition, p.Offset, p.Metadata, p.ErrorCode)
		}
	}
	return nil
}

// offset learns from where a partition is to be handled.
func (m *member) offset(id [16]byte, topic string, number int32, committed int64, metadata *string, code int16) {
	if topic == "" {
		topic = m.name(id)
	}
	s := m.s
	s.mu.Lock()
	defer s.mu.Unlock()
	p := m.partitions[place{topic, number}]
	if p == nil || p.known || code != 0 {
		return
	}
	p.known = true
	if committed < 0 { // the group is new here: the first record tells
		return
	}
	w, err := readWindow(committed, pointed(metadata))
	if err != nil { // then they are handled again
		s.fault = err
	}
	p.window, p.next = w, committed
	p.old = committed + maxWindow
}

// name returns the topic that newer brokers call by its id.
func (m *member) name(id [16]byte) string {
	if len(m.topics) == 1 {
		return m.topics[0]
	}
	return m.s.names[id]
}

func pointed(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// fetchedLocked puts records into a partition's buffer. Offsets that have no record,
// such as those of transactions' ends or compacted ones, are finished.
func (m *member) fetchedLocked(at place, records []*kgo.Record) {
	p := m.partitions[at]
	if p == nil || p.ending || m.s.closed {
		return
	}
	for _, r := range records {
		if p.next < 0 {
			// A member that crashed may not have committed anything yet.
			p.window.committed, p.next, p.old = r.Offset, r.Offset, r.Offset+maxWindow
		}
		if r.Offset < p.next {
			continue
		}
		p.window.finish(p.next, r.Offset)
		p.next = r.Offset + 1
		if !p.window.finished(r.Offset) {
			p.bufferLocked(r)
		}
	}
}

// bufferLocked gives a record its place in the buffer.
func (p *partition) bufferLocked(r *kgo.Record) {
	p.countLocked(r, 1)
	p.placeLocked(r)
}

// placeLocked puts a record that is counted where it belongs.
func (p *partition) placeLocked(r *kgo.Record) {
	n := len(p.buffer)
	switch {
	case p.m.retries:
		due := dueOf(r)
		i, _ := slices.BinarySearchFunc(p.due, due, func(b, at time.Time) int {
			if b.After(at) {
				return 1
			}
			return -1 // behind those of the same time
		})
		p.buffer, p.due = slices.Insert(p.buffer, i, r), slices.Insert(p.due, i, due)
	case n == 0 || p.buffer[n-1].Offset < r.Offset:
		p.buffer = append(p.buffer, r)
	default: // it was given back
		i, _ := slices.BinarySearchFunc(p.buffer, r.Offset, func(b *kgo.Record, at int64) int { return int(b.Offset - at) })
		p.buffer = slices.Insert(p.buffer, i, r)
	}
}

// takeLocked takes the first record out of the buffer.
func (p *partition) takeLocked() *kgo.Record {
	r := p.buffer[0]
	p.buffer = p.buffer[1:]
	if p.m.retries {
		p.due = p.due[1:]
	}
	p.countLocked(r, -1)
	return r
}

// countLocked counts a record in or out of what is buffered.
func (p *partition) countLocked(r *kgo.Record, n int) {
	bytes := int64(n) * size(r)
	p.count += n
	p.bytes += bytes
	p.m.records += n
	p.m.bytes += bytes
}

// fullLocked reports whether fetching more of a partition would serve nothing: its window is
// full, or enough of a retry topic is buffered.
func (p *partition) fullLocked() bool {
	if p.m.retries {
		return len(p.buffer) >= retryRecords
	}
	return len(p.buffer) > 0 && !p.window.fits(p.buffer[0].Offset, len(p.inflight))
}

// hungryLocked reports whether a partition that is paused may be fetched from again.
func (p *partition) hungryLocked() bool {
	if p.m.retries {
		return len(p.buffer) < retryRecords/2
	}
	return !p.fullLocked()
}

// openLocked reports whether records may be claimed.
func (p *partition) openLocked(now time.Time) bool {
	return p.waitLocked(now) == 0
}

// waitLocked returns how long it is until the first record may be claimed.
func (p *partition) waitLocked(now time.Time) time.Duration {
	p.standBackLocked()
	switch {
	case p.ending || len(p.buffer) == 0 || !p.window.fits(p.buffer[0].Offset, len(p.inflight)):
		return driver.Never
	case p.m.retries:
		return max(p.due[0].Sub(now), 0)
	}
	return 0
}

// endLocked delivers nothing any more.
func (s *Source) endLocked(p *partition) {
	p.ending, p.empty = true, make(chan struct{})
	p.discardLocked()
	if len(p.inflight) == 0 {
		close(p.empty)
	}
}

// dropLocked ends an assignment: its receipts are refused from now on.
func (s *Source) dropLocked(p *partition) {
	p.discardLocked()
	clear(p.inflight)
	delete(p.m.partitions, p.place)
	p.m.ordered = nil
	delete(s.epochs, p.epoch)
}

func (p *partition) discardLocked() {
	p.comeBackLocked()
	for len(p.buffer) > 0 {
		p.takeLocked()
	}
	p.buffer, p.due = nil, nil
}

// settledLocked takes a record out of what is in flight.
func (p *partition) settledLocked(offset int64) {
	p.freeLocked(offset)
	delete(p.inflight, offset)
	if p.ending && len(p.inflight) == 0 {
		select {
		case <-p.empty:
		default:
			close(p.empty)
		}
	}
}

func size(r *kgo.Record) int64 {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return int64(n)
}

// changeLocked wakes everyone who waits for something.
func (s *Source) change() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changeLocked()
}

func (s *Source) changeLocked() {
	s.version++
	s.wakePollLocked()
}

// gone reports whether the error of a commit means that the partition is not ours.
func gone(err error) bool {
	return slices.ContainsFunc([]error{kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.FencedInstanceID, kerr.StaleMemberEpoch, kerr.FencedMemberEpoch},
		func(code error) bool { return errors.Is(err, code) })
}
