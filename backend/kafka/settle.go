package kafka

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Settle implements driver.Source. All that is done in one call is one commit, all that
// fails natively is one transaction.
func (s *Source) Settle(ctx context.Context, batch []driver.Settlement) []error {
	errs := make([]error, len(batch))
	of := make(map[*member][]int, 2)
	s.mu.Lock()
	for i := range batch {
		if p, err := s.heldLocked(&batch[i].Receipt); err != nil {
			errs[i] = err
		} else {
			of[p.m] = append(of[p.m], i)
		}
	}
	s.mu.Unlock()
	for m, items := range of {
		m.settle(ctx, batch, items, errs)
	}
	return errs
}

// settlement is one call's share of a member.
type settlement struct {
	batch []driver.Settlement
	errs  []error
	done  map[*partition][]int // items that wait for the commit
	moves []*move              // and for more than that
}

func (m *member) settle(ctx context.Context, batch []driver.Settlement, items []int, errs []error) {
	m.committing.Lock()
	defer m.committing.Unlock()
	if err := m.resolve(ctx); err != nil {
		for _, i := range items {
			errs[i] = err
		}
		return
	}
	st := &settlement{batch: batch, errs: errs, done: make(map[*partition][]int)}
	m.s.mu.Lock()
	released := false
	now := time.Now()
	for _, i := range items {
		released = m.sortLocked(st, i, now) || released
	}
	if released {
		m.s.changeLocked()
	}
	m.s.mu.Unlock()
	if len(st.moves) > 0 && m.s.mover == nil {
		m.publish(ctx, st)
	}
	if len(st.done) > 0 {
		m.finish(ctx, st)
	}
	if len(st.moves) > 0 && m.s.mover != nil {
		m.transact(ctx, st)
	}
}

// sortLocked sorts one item. It reports whether its record was put back.
func (m *member) sortLocked(st *settlement, i int, now time.Time) (released bool) {
	item := &st.batch[i]
	p, err := m.s.heldLocked(&item.Receipt)
	if err != nil {
		st.errs[i] = err
		return false
	}
	at, _ := readPosition(item.Receipt.Position)
	h := p.inflight[at.offset]
	switch {
	case len(item.Emit) > 0:
		st.errs[i] = unsupported("emits")
	case item.Outcome == redrive.OutcomeDone, item.Outcome == redrive.OutcomeDrop, h.moved:
		p.window.finish(at.offset, at.offset+1)
		st.done[p] = append(st.done[p], i)
	case item.Outcome == redrive.OutcomeRelease && item.After == 0 && item.Failure == nil:
		m.releaseLocked(p, at.offset)
		return true
	case m.s.keeps(item):
		st.moves = append(st.moves, &move{item: i, p: p, offset: at.offset, record: m.s.follower(m, &h, item, now)})
	case item.Outcome == redrive.OutcomeRelease && item.After == 0:
		m.releaseLocked(p, at.offset)
		return true
	default:
		st.errs[i] = unsupported(item.Outcome.String())
	}
	return false
}

func unsupported(what string) error { return fmt.Errorf("%s: %w", what, redrive.ErrUnsupported) }

// releaseLocked puts a record back where it was.
func (m *member) releaseLocked(p *partition, offset int64) {
	if r := p.inflight[offset].record; !p.ending && !m.s.closed {
		p.bufferLocked(r)
	}
	p.settledLocked(offset)
}

// finish commits and takes what is done out of what is in flight. What could not be committed
// stays there, so that settling it can be repeated.
func (m *member) finish(ctx context.Context, st *settlement) {
	of := make(map[*partition]*window, len(st.done))
	m.s.mu.Lock()
	for p := range st.done {
		of[p] = p.window.clone()
	}
	m.s.mu.Unlock()
	failed := m.commit(ctx, of)
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	shut := false
	for p, items := range st.done {
		err := failed[p.place]
		for _, i := range items {
			st.errs[i] = err
			if err == nil || errors.Is(err, redrive.ErrLeaseLost) {
				at, _ := readPosition(st.batch[i].Receipt.Position)
				p.settledLocked(at.offset)
			}
		}
		shut = shut || len(p.buffer) > 0
	}
	if shut { // a full window may have opened
		m.s.changeLocked()
	}
}

// commit commits windows of partitions and returns the errors by their places.
func (m *member) commit(ctx context.Context, of map[*partition]*window) map[place]error {
	offsets := make(map[string]map[int32]kgo.EpochOffset)
	metadata := make(map[place]string, len(of))
	for p, w := range of {
		if offsets[p.topic] == nil {
			offsets[p.topic] = make(map[int32]kgo.EpochOffset)
		}
		offsets[p.topic][p.number] = kgo.EpochOffset{Epoch: -1, Offset: w.committed}
		metadata[p.place] = w.metadata()
	}
	failed := make(map[place]error)
	ctx = kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		// The generation stands in the request: what is ours now was ours in it.
		stale := m.stale(maps.Keys(of))
		for t := range req.Topics {
			topic := &req.Topics[t]
			topic.Partitions = slices.DeleteFunc(topic.Partitions, func(p kmsg.OffsetCommitRequestTopicPartition) bool { return stale[place{topic.Topic, p.Partition}] })
			for i := range topic.Partitions {
				p := &topic.Partitions[i]
				p.Metadata = new(metadata[place{topic.Topic, p.Partition}])
			}
		}
		for at := range stale {
			failed[at] = redrive.ErrLeaseLost
			delete(metadata, at)
		}
		if len(metadata) == 0 {
			return redrive.ErrLeaseLost
		}
		return nil
	})
	m.client.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, req *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		answered := make(map[place]bool)
		if err == nil {
			for t := range resp.Topics {
				topic := resp.Topics[t].Topic
				if topic == "" { // newer brokers answer by id, in the order of the request
					topic = req.Topics[t].Topic
				}
				for _, p := range resp.Topics[t].Partitions {
					at := place{topic, p.Partition}
					answered[at] = true
					if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
						failed[at] = commitError(err)
					}
				}
			}
		}
		for at := range metadata {
			switch {
			case err != nil:
				failed[at] = commitError(err)
			case !answered[at]:
				failed[at] = redrive.ErrUnknown
			}
		}
	})
	return failed
}

// stale returns the places of partitions that are not ours any more, or again.
func (m *member) stale(of iter.Seq[*partition]) map[place]bool {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	stale := make(map[place]bool)
	for p := range of {
		if m.s.epochs[p.epoch] != p {
			stale[p.place] = true
		}
	}
	return stale
}

// commitError says whether a commit may be repeated.
func commitError(err error) error {
	if gone(err) {
		return redrive.ErrLeaseLost
	}
	return fmt.Errorf("%w: commit: %w", redrive.ErrUnknown, err)
}
