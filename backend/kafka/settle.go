package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redrive/redrive"
)

// Settle implements redrive.Source. All that is done in one call is one commit.
func (s *Source) Settle(ctx context.Context, batch []redrive.Settlement) []error {
	s.committing.Lock()
	defer s.committing.Unlock()
	errs := make([]error, len(batch))
	done := make(map[*partition][]int) // items that wait for the commit
	s.mu.Lock()
	released := false
	for i := range batch {
		item := &batch[i]
		p, err := s.heldLocked(&item.Receipt)
		at, _ := readPosition(item.Receipt.Position)
		switch {
		case err != nil:
			errs[i] = err
		case len(item.Emit) > 0:
			errs[i] = unsupported("emits")
		case item.Outcome == redrive.OutcomeDone || item.Outcome == redrive.OutcomeDrop:
			p.window.finish(at.offset, at.offset+1)
			done[p] = append(done[p], i)
		case item.Outcome == redrive.OutcomeRelease && item.After == 0:
			s.releaseLocked(p, at.offset)
			released = true
		default:
			errs[i] = unsupported(item.Outcome.String())
		}
	}
	if released {
		s.changeLocked()
	}
	s.mu.Unlock()
	if len(done) > 0 {
		s.finish(ctx, batch, done, errs)
	}
	return errs
}

func unsupported(what string) error { return fmt.Errorf("%s: %w", what, redrive.ErrUnsupported) }

// releaseLocked puts a record back where it was.
func (s *Source) releaseLocked(p *partition, offset int64) {
	if r := p.hands[offset].record; !p.ending && !s.closed {
		p.putBackLocked(r)
		s.records++
		s.bytes += size(r)
	}
	p.settledLocked(offset)
}

// finish commits and takes what is done out of our hands. What could not be committed
// stays there, so that settling it can be repeated.
func (s *Source) finish(ctx context.Context, batch []redrive.Settlement, done map[*partition][]int, errs []error) {
	failed := s.commit(ctx, done)
	s.mu.Lock()
	defer s.mu.Unlock()
	shut := false
	for p, items := range done {
		err := failed[p.number]
		for _, i := range items {
			errs[i] = err
			if err == nil || errors.Is(err, redrive.ErrLeaseLost) {
				at, _ := readPosition(batch[i].Receipt.Position)
				p.settledLocked(at.offset)
			}
		}
		shut = shut || len(p.buffer) > 0
	}
	if shut { // a full window may have opened
		s.changeLocked()
	}
}

// commit commits the windows of partitions and returns the errors by their numbers.
func (s *Source) commit(ctx context.Context, of map[*partition][]int) map[int32]error {
	offsets := make(map[int32]kgo.EpochOffset, len(of))
	metadata := make(map[int32]string, len(of))
	s.mu.Lock()
	for p := range of {
		offsets[p.number] = kgo.EpochOffset{Epoch: -1, Offset: p.window.mark}
		metadata[p.number] = p.window.metadata()
	}
	s.mu.Unlock()
	ctx = kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		for t := range req.Topics {
			for i := range req.Topics[t].Partitions {
				p := &req.Topics[t].Partitions[i]
				p.Metadata = kmsg.StringPtr(metadata[p.Partition])
			}
		}
		return nil
	})
	failed := make(map[int32]error)
	s.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{s.topic: offsets},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
			if err != nil {
				for n := range offsets {
					failed[n] = commitError(err)
				}
				return
			}
			answered := 0
			for t := range resp.Topics {
				for _, p := range resp.Topics[t].Partitions {
					answered++
					if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
						failed[p.Partition] = commitError(err)
					}
				}
			}
			if answered < len(offsets) {
				for n := range offsets {
					failed[n] = redrive.ErrUnknown
				}
			}
		})
	return failed
}

// commitError says whether a commit may be repeated.
func commitError(err error) error {
	if gone(err) {
		return redrive.ErrLeaseLost
	}
	return fmt.Errorf("%w: commit: %w", redrive.ErrUnknown, err)
}
