package kafka

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// partition is one that is assigned to us. Its fields are under the source's lock.
type partition struct {
	number int32
	epoch  uint64 // of the assignment; receipts of another are refused
	window window
	known  bool           // the committed offset was fetched
	next   int64          // the offset after the newest record that was fetched; -1: none yet
	old    int64          // below this another member may have handed records out
	buffer []*kgo.Record  // to be handed out, by offset
	hands  map[int64]hand // what is in hand, by offset
	ending bool           // it is being taken away
	empty  chan struct{}  // closed when nothing is in hand any more, once ending
}

// hand is a record that was handed out.
type hand struct {
	token  uint64
	record *kgo.Record
}

// assigned is called before the committed offsets are fetched.
func (s *Source) assigned(_ context.Context, _ *kgo.Client, all map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range all[s.topic] {
		s.epoch++
		s.partitions[n] = &partition{number: n, epoch: s.epoch, next: -1, hands: make(map[int64]hand)}
	}
}

// offsets is called with the committed offsets, before records are fetched.
func (s *Source) offsets(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	for i := range resp.Groups {
		for _, t := range resp.Groups[i].Topics {
			for _, p := range t.Partitions {
				s.offset(p.Partition, p.Offset, p.Metadata, p.ErrorCode)
			}
		}
	}
	for _, t := range resp.Topics { // of older brokers
		for _, p := range t.Partitions {
			s.offset(p.Partition, p.Offset, p.Metadata, p.ErrorCode)
		}
	}
	return nil
}

// offset learns from where a partition is to be handled.
func (s *Source) offset(number int32, mark int64, metadata *string, code int16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.partitions[number]
	if p == nil || p.known || code != 0 {
		return
	}
	p.known = true
	if mark < 0 { // the group is new here: the first record tells
		return
	}
	var text string
	if metadata != nil {
		text = *metadata
	}
	w, err := readWindow(mark, text)
	if err != nil { // then they are handled again
		s.fault = err
	}
	p.window, p.next = w, mark
	p.old = mark + maxWindow
}

// revoked gives what is in hand some time, then lets go of it.
func (s *Source) revoked(ctx context.Context, _ *kgo.Client, all map[string][]int32) {
	deadline := time.NewTimer(s.o.Drain)
	defer deadline.Stop()
	s.mu.Lock()
	var gone []*partition
	for _, n := range all[s.topic] {
		if p := s.partitions[n]; p != nil {
			gone = append(gone, p)
			s.endLocked(p)
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
	s.forget(all)
}

// lost lets go of partitions that others have already.
func (s *Source) lost(_ context.Context, _ *kgo.Client, all map[string][]int32) { s.forget(all) }

func (s *Source) forget(all map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range all[s.topic] {
		if p := s.partitions[n]; p != nil {
			s.dropLocked(p)
		}
	}
	s.changeLocked()
}

// endLocked hands nothing out any more.
func (s *Source) endLocked(p *partition) {
	p.ending, p.empty = true, make(chan struct{})
	s.discardLocked(p)
	if len(p.hands) == 0 {
		close(p.empty)
	}
}

// dropLocked ends an assignment: its receipts are refused from now on.
func (s *Source) dropLocked(p *partition) {
	s.discardLocked(p)
	clear(p.hands)
	delete(s.partitions, p.number)
}

func (s *Source) discardLocked(p *partition) {
	for _, r := range p.buffer {
		s.records--
		s.bytes -= size(r)
	}
	p.buffer = nil
}

// settledLocked takes a record out of our hands.
func (p *partition) settledLocked(offset int64) {
	delete(p.hands, offset)
	if p.ending && len(p.hands) == 0 {
		select {
		case <-p.empty:
		default:
			close(p.empty)
		}
	}
}

// openLocked reports whether records may be handed out.
func (p *partition) openLocked() bool {
	return !p.ending && len(p.buffer) > 0 && p.window.fits(p.buffer[0].Offset, len(p.hands))
}

// putBackLocked gives a record its place in the buffer.
func (p *partition) putBackLocked(r *kgo.Record) {
	i, _ := slices.BinarySearchFunc(p.buffer, r.Offset, func(b *kgo.Record, at int64) int { return int(b.Offset - at) })
	p.buffer = slices.Insert(p.buffer, i, r)
}

func size(r *kgo.Record) int64 {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return int64(n)
}

// poll fetches records as long as the source lives. Not polling is the only brake that
// is needed: the client keeps the membership alive by itself.
func (s *Source) poll() {
	defer close(s.polled)
	for s.alive.Err() == nil {
		if !s.awaitRoom() {
			return
		}
		fetches := s.client.PollRecords(s.alive, pollRecords)
		if fetches.IsClientClosed() {
			return
		}
		s.mu.Lock()
		fetches.EachError(func(_ string, _ int32, err error) {
			if s.alive.Err() == nil {
				s.fault = err
			}
		})
		fetches.EachPartition(func(t kgo.FetchTopicPartition) { s.fetchedLocked(t.Partition, t.Records) })
		s.changeLocked()
		s.mu.Unlock()
	}
}

// awaitRoom waits until the buffer may grow.
func (s *Source) awaitRoom() bool {
	for {
		s.mu.Lock()
		room, changed := s.records < bufferRecords && s.bytes < bufferBytes, s.changed
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

// fetchedLocked puts records into a partition's buffer. Offsets that have no record,
// such as those of transactions' ends or compacted ones, are finished.
func (s *Source) fetchedLocked(number int32, records []*kgo.Record) {
	p := s.partitions[number]
	if p == nil || p.ending || s.closed {
		return
	}
	for _, r := range records {
		if p.next < 0 {
			// A member that crashed may not have committed anything yet.
			p.window.mark, p.next, p.old = r.Offset, r.Offset, r.Offset+maxWindow
		}
		if r.Offset < p.next {
			continue
		}
		p.window.finish(p.next, r.Offset)
		p.next = r.Offset + 1
		if p.window.finished(r.Offset) {
			continue
		}
		p.buffer = append(p.buffer, r)
		s.records++
		s.bytes += size(r)
	}
}

// changeLocked wakes everyone who waits for something.
func (s *Source) changeLocked() {
	s.version++
	close(s.changed)
	s.changed = make(chan struct{})
}

// gone reports whether the error of a commit means that the partition is not ours.
func gone(err error) bool {
	return slices.ContainsFunc([]error{kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.FencedInstanceID, kerr.StaleMemberEpoch, kerr.FencedMemberEpoch},
		func(code error) bool { return errors.Is(err, code) })
}
