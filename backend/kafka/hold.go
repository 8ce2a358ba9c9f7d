package kafka

import (
	"time"

	"github.com/redrive/redrive"
)

// HoldingBack implements redrive.MarkedSource: the records that were in hand for
// [Options.Hold] while later ones of their partition were finished, and, where a window is
// nearly full, those in its lower half. With native dead letters there are none: what is in
// hand stays at the brokers.
func (s *Source) HoldingBack() []redrive.Receipt {
	if s.o.Native {
		return nil
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var held []redrive.Receipt
	for _, p := range s.epochs {
		held = append(held, s.heldBackLocked(p, now)...)
	}
	return held
}

// heldBackLocked returns the records of a partition that hold its mark back.
func (s *Source) heldBackLocked(p *partition, now time.Time) (held []redrive.Receipt) {
	ahead := p.window.ahead()
	if p.ending || ahead == 0 {
		return nil
	}
	full := p.window.nearlyFull(len(p.hands))
	for offset, h := range p.hands {
		behind := p.window.mark + ahead - offset
		if p.keys != nil && len(h.record.Key) > 0 {
			continue // its followers wait for it here
		}
		if behind > 0 && (now.Sub(h.since) >= s.o.Hold || full && behind > ahead/2) {
			held = append(held, s.receipt(offset, p, &h))
		}
	}
	return held
}

// receipt is that of a record in hand.
func (s *Source) receipt(offset int64, p *partition, h *hand) redrive.Receipt {
	return redrive.Receipt{Ref: redrive.Ref{Queue: s.o.Queue, ID: h.id}, Token: h.token, Position: position{p.epoch, offset}.String()}
}
