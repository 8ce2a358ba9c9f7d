package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Settle implements driver.Source. All acknowledgements of one call are sent at once, and
// it returns when the brokers have answered them.
func (s *Share) Settle(ctx context.Context, batch []driver.Settlement) []error {
	errs := make([]error, len(batch))
	of := make(map[int]*sharedRecord, len(batch))
	s.acking.Lock()
	defer s.acking.Unlock()
	now := time.Now()
	s.mu.Lock()
	for i := range batch {
		it, word, err := s.wordLocked(&batch[i], now)
		if err != nil {
			errs[i] = err
			continue
		}
		if !it.sent {
			it.sent = true
			it.Ack(word)
		}
		of[i] = it
	}
	s.mu.Unlock()
	if len(of) == 0 {
		return errs
	}
	failed, err := s.flush(ctx)
	for i, it := range of {
		switch answer := failed[it.at.place]; {
		case err != nil:
			errs[i] = fmt.Errorf("%w: acknowledge: %w", redrive.ErrUnknown, err)
		case lost(answer):
			errs[i] = redrive.ErrLeaseLost
		case answer != nil:
			errs[i] = fmt.Errorf("%w: acknowledge: %w", redrive.ErrUnknown, answer)
		}
	}
	return errs
}

// wordLocked returns the record of a settlement and how it is acknowledged.
func (s *Share) wordLocked(b *driver.Settlement, now time.Time) (*sharedRecord, kgo.AckStatus, error) {
	it, err := s.heldLocked(&b.Receipt, now)
	switch {
	case err != nil:
		return nil, 0, err
	case len(b.Emit) > 0:
		return nil, 0, unsupported("emits")
	case b.Outcome == redrive.OutcomeDone || b.Outcome == redrive.OutcomeDrop:
		return it, kgo.AckAccept, nil
	case b.Outcome == redrive.OutcomeRelease && b.After == 0:
		return it, kgo.AckRelease, nil
	}
	return nil, 0, unsupported(b.Outcome.String())
}

// flush sends the acknowledgements and waits for the answers: those of the partitions
// that were refused, or an error if some are still open. Acking is held.
func (s *Share) flush(ctx context.Context) (map[place]error, error) {
	ctx, cancel := context.WithTimeout(ctx, shareFlush)
	defer cancel()
	if err := s.client.FlushAcks(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	failed := s.failed
	s.failed = make(map[place]error)
	freed := false
	for at, it := range s.inflight {
		if it.sent {
			delete(s.inflight, at)
			freed = true
		}
	}
	if freed {
		s.changeLocked()
	}
	return failed, nil
}

// acknowledged is called by the client with the answers of the brokers.
func (s *Share) acknowledged(_ *kgo.Client, results kgo.ShareAckResults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range results {
		if r.Err != nil {
			s.failed[place{r.Topic, r.Partition}] = r.Err
		}
	}
}
