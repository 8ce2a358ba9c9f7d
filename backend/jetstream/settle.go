package jetstream

import (
	"context"
	"fmt"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Settle implements driver.Source. All acknowledgements of one call are sent at once,
// and each is answered by the server.
func (s *Source) Settle(ctx context.Context, batch []driver.Settlement) []error {
	errs := make([]error, len(batch))
	words := make([]ack, 0, len(batch))
	items := make([]*item, len(batch))
	of := make([]int, 0, len(batch))
	var dead []int
	now := time.Now()
	s.mu.Lock()
	for i := range batch {
		b := &batch[i]
		it, err := s.heldLocked(&b.Receipt, now)
		items[i] = it
		word := done
		switch {
		case err != nil:
			errs[i] = err
			continue
		case len(b.Emit) > 0:
			errs[i] = unsupported("emits")
			continue
		case b.Outcome == redrive.OutcomeDone || b.Outcome == redrive.OutcomeDrop:
		case b.Outcome == redrive.OutcomeRelease && b.After == 0:
			word, it.naked = nak, true
		case b.Outcome == redrive.OutcomeDead && s.o.Native:
			dead = append(dead, i)
			continue
		default:
			errs[i] = unsupported(b.Outcome.String())
			continue
		}
		words, of = append(words, ack{it.reply, word}), append(of, i)
	}
	s.mu.Unlock()
	for _, i := range s.bury(ctx, batch, items, dead, errs) {
		words, of = append(words, ack{items[i].reply, done}), append(of, i)
	}
	answers := s.acks.send(ctx, words)
	s.mu.Lock()
	defer s.mu.Unlock()
	for j, i := range of {
		if answers != nil {
			errs[i] = answers[j]
		}
		if errs[i] == nil {
			s.settledLocked(items[i], words[j].word)
		}
	}
	return errs
}

func unsupported(what string) error { return fmt.Errorf("%s: %w", what, redrive.ErrUnsupported) }

// settledLocked takes an item out of what is in flight, unless it came again meanwhile.
func (s *Source) settledLocked(it *item, word string) {
	sequence := it.meta.Sequence.Stream
	if s.items[sequence] == it {
		delete(s.items, sequence)
		s.inFlight--
	}
	if word == done {
		s.settled.add(sequence, it.meta.Timestamp.UnixNano())
	}
}
