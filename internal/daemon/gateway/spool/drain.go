package spool

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Run moves what is in the spool to the main store, whenever that is there, until ctx
// ends.
func (s *Spool) Run(ctx context.Context) error {
	tick := time.NewTicker(s.o.Retry)
	defer tick.Stop()
	for {
		for _, queue := range s.waiting() {
			for {
				more, err := s.drain(ctx, queue)
				if ctx.Err() != nil {
					return nil
				}
				if err != nil {
					s.o.Logger.LogAttrs(ctx, slog.LevelWarn, "store unavailable: spool is waiting", slog.String("queue", queue), slog.Int64("held", s.Held()), slog.Any("error", err))
					break
				}
				if !more {
					break
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-s.wake:
			if s.away.Load() { // it was tried just now
				select {
				case <-ctx.Done():
					return nil
				case <-tick.C:
				}
			}
		}
	}
}

// waiting returns the queues that have messages in the spool.
func (s *Spool) waiting() (queues []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for queue, n := range s.queues {
		if n > 0 {
			queues = append(queues, queue)
		}
	}
	return queues
}

// drain moves the next messages of a queue. A message is deleted from the spool after it
// is in the main store: if we end in between, it is published again under its id, and
// known there.
func (s *Spool) drain(ctx context.Context, queue string) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	page, err := s.store.Find(ctx, redrive.Query{Queue: queue, Key: key, State: redrive.StateWaiting, Limit: drainBatch, Bodies: true})
	if err != nil || len(page.Entries) == 0 {
		if err == nil {
			s.left(queue, nil)
		}
		return false, err
	}
	batch := make([]redrive.Message, 0, len(page.Entries))
	for i := range page.Entries {
		m, err := restored(&page.Entries[i].Message)
		if err != nil {
			return true, s.bury(ctx, page.Entries[i:i+1], err)
		}
		batch = append(batch, m)
	}
	results := s.main.Publish(ctx, batch)
	for i := range batch {
		err := error(nil)
		if results != nil {
			err = results[i]
		}
		switch {
		case err == nil, errors.Is(err, redrive.ErrDuplicate):
		case errors.Is(err, redrive.ErrConflict), errors.Is(err, redrive.ErrInvalid):
			// What came before it goes first, so that it is the next one.
			if err := s.forget(ctx, queue, page.Entries[:i]); err != nil {
				return false, err
			}
			return true, s.bury(ctx, page.Entries[i:i+1], err)
		default:
			s.away.Store(Unreachable(err))
			return false, errors.Join(s.forget(ctx, queue, page.Entries[:i]), err)
		}
	}
	s.away.Store(false)
	return true, s.forget(ctx, queue, page.Entries)
}

// forget deletes messages that went on: the first ones of their queue.
func (s *Spool) forget(ctx context.Context, queue string, entries []redrive.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	_, err := s.store.Apply(ctx, driver.Batch{Delete: []driver.Range{{Queue: queue, Key: key, UpTo: entries[len(entries)-1].ID}}})
	if err != nil {
		return err
	}
	s.left(queue, entries)
	s.o.Drained(len(entries))
	return nil
}

// left counts what is no longer in the spool; no entries: the queue is empty.
func (s *Spool) left(queue string, entries []redrive.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(entries)
	if n == 0 {
		n = s.queues[queue]
	}
	for i := range entries {
		s.bytes -= int64(entries[i].Size())
	}
	s.held.Add(-int64(n))
	if s.queues[queue] -= n; s.queues[queue] <= 0 {
		delete(s.queues, queue)
	}
	if len(s.queues) == 0 {
		s.bytes = 0
	}
}

// bury sets a message aside that the main store will never take: it becomes a dead letter
// of the spool's store, as it was acknowledged.
func (s *Spool) bury(ctx context.Context, entries []redrive.Entry, why error) error {
	e := &entries[0]
	s.o.Logger.LogAttrs(ctx, slog.LevelError, "store rejected a spooled message: dead-lettered in the spool", slog.String("queue", e.Queue), slog.String("id", e.ID), slog.Any("error", why))
	done, err := s.store.Update(ctx, driver.Selection{Refs: []redrive.Ref{e.Ref()}}, driver.Change{Action: driver.ActKill, Reason: redrive.ReasonRejected, Note: why.Error()}, 1)
	if err == nil && len(done) == 1 {
		err = done[0].Err
	}
	if err == nil {
		s.left(e.Queue, entries)
	}
	return err
}
