package redislist

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// SetMasks implements driver.Masked.
func (s *Source) SetMasks(m driver.Masks) { s.masks = m }

// Publish implements redrive.Sink. Messages of one queue go in together, at most a
// hundred a step, in their order.
func (s *Source) Publish(ctx context.Context, msgs []redrive.Message) []error {
	errs := make([]error, len(msgs))
	if err := s.enter(ctx); err != nil {
		return fill(errs, err)
	}
	groups := make(map[string][]int)
	var order []string
	for i := range msgs {
		if errs[i] = msgs[i].Validate(); errs[i] == nil && s.o.from != "" {
			errs[i] = &redrive.Error{Op: "publish", Queue: msgs[i].Queue, ID: msgs[i].ID, Err: fmt.Errorf("a list of others: %w", redrive.ErrUnsupported), Hint: "publish it to the store beside the list"}
		}
		if errs[i] != nil {
			continue
		}
		if groups[msgs[i].Queue] == nil {
			order = append(order, msgs[i].Queue)
		}
		groups[msgs[i].Queue] = append(groups[msgs[i].Queue], i)
	}
	for _, name := range order {
		q, err := s.queue(name)
		for part := range slices.Chunk(groups[name], batch) {
			if err == nil {
				s.publish(ctx, q, msgs, part, errs)
				continue
			}
			for _, i := range part {
				errs[i] = err
			}
		}
	}
	return errs
}

// publish writes the messages of one queue that part names.
func (s *Source) publish(ctx context.Context, q *queue, msgs []redrive.Message, part []int, errs []error) {
	args := make([]any, 0, 5*len(part))
	for _, i := range part {
		m := &msgs[i]
		id, hash := m.ID, ""
		if id == "" {
			m.ID = redrive.NewID()
		} else {
			hash = strconv.FormatUint(s.masks.BodyHash(m), 16)
		}
		at := int64(0)
		if !m.DeliverAt.IsZero() {
			at = max(m.DeliverAt.UnixMicro(), 0)
		}
		args = append(args, id, hash, m.Delay.Microseconds(), at, rest(m))
	}
	k := q.keys
	v, err := s.conn.Write(ctx, publishScript, []string{k.waiting, k.seq, k.body, k.state, k.due[redrive.LaneFresh], k.wake, k.ids, k.forget}, args...)
	codes, err := codes(publishScript.Name(), v, len(part), err)
	for j, i := range part {
		switch {
		case err != nil:
			errs[i] = err
		case codes[j] == 1:
			errs[i] = redrive.ErrDuplicate
		case codes[j] == 2:
			errs[i] = redrive.ErrConflict
		}
	}
	if err == nil {
		s.published(q)
	}
}

// codes reads the answer of a script that gives a number an item.
func codes(script string, v any, n int, err error) ([]int64, error) {
	if err != nil {
		return nil, err
	}
	list, ok := v.([]any)
	if !ok || len(list) != n {
		return nil, badAnswer(script, v)
	}
	all := make([]int64, n)
	for i := range list {
		if all[i], ok = list[i].(int64); !ok {
			return nil, badAnswer(script, list[i])
		}
	}
	return all, nil
}

// enter refuses a call after Close or under a context that has ended.
func (s *Source) enter(ctx context.Context) error {
	if s.closed() {
		return redrive.ErrClosed
	}
	return ctx.Err()
}

func fill(errs []error, err error) []error {
	for i := range errs {
		errs[i] = err
	}
	return errs
}
