package redisstream

import (
	"context"
	"errors"
	"fmt"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Changes of a store with partitions.

// updateParts changes a page of messages, each partition's in its own step.
func (s *Store) updateParts(ctx context.Context, page []driver.Updated, condition *redrive.Query, c *driver.Change) error {
	refs := make([]redrive.Ref, len(page))
	for i := range page {
		refs[i] = page[i].Ref
	}
	found, _, err := s.lookup(ctx, refs)
	if err != nil {
		return err
	}
	groups := s.split(len(page), func(i int) int {
		if found[i] != nil {
			return found[i].q.s.part
		}
		return s.leads(refs[i].ID)
	})
	s.each(groups, func(p *Store, which []int) {
		some := pick(page, which)
		if err := p.updatePage(ctx, some, condition, c); err != nil {
			for n := range some {
				some[n].Err = err
			}
		}
		for n, i := range which {
			page[i] = some[n]
		}
	})
	return nil
}

// follow lets a message whose key was edited go to the partition of its new key.
func (o *changeOp) follow() error {
	it := o.it
	own := it.q.s
	if !it.rekeyed || own.whole == nil || o.what == "remove" {
		return nil
	}
	to := own.whole.home(it.msg.Key, it.msg.ID)
	switch {
	case to == own:
		return nil
	case own.whole.apart():
		return &redrive.Error{Op: "edit", Queue: it.msg.Queue, ID: it.msg.ID,
			Err:  fmt.Errorf("%w: the new key belongs to another partition of the cluster", redrive.ErrUnsupported),
			Hint: "publish the message anew under its key, and drop this one"}
	}
	if o.to = to.queue(it.msg.Queue); o.memory.moved == "" {
		o.memory = memory{ended: true}
	}
	if len(o.ledger) == 0 {
		o.ledger, o.ledgerTo = []any{"movedout", 1}, []any{"movedin", 1}
	}
	return nil
}

// applyApart applies a batch where the partitions are apart: what others get, then the
// part of partition 0 with the records. Nothing of it is lost by repeating it.
func (s *Store) applyApart(ctx context.Context, b driver.Batch) ([]error, error) {
	if err := checkRecords(b.Records); err != nil {
		return nil, err
	}
	if err := s.checkVersions(ctx, b.Records); err != nil {
		return nil, err
	}
	msgs := messages(&b)
	for _, m := range msgs {
		if m.ID == "" { // so that a repetition is recognised
			m.ID = s.home(m.Key, "").newID()
		}
	}
	errs := s.reserve(ctx, msgs)
	groups := s.split(len(msgs), func(i int) int { return s.home(msgs[i].Key, msgs[i].ID).part })
	for p := len(s.parts) - 1; p >= 0; p-- {
		some := driver.Batch{Entered: b.Entered, Restore: b.Restore, Relaxed: b.Relaxed, Delete: b.Delete}
		var which []int
		for _, i := range groups[p] {
			switch {
			case errs[i] != nil:
				continue
			case i < len(b.Publish):
				some.Publish = append(some.Publish, b.Publish[i])
			default:
				some.Put = append(some.Put, b.Put[i-len(b.Publish)])
			}
			which = append(which, i)
		}
		if p == 0 {
			some.Records = b.Records
		}
		got, err := s.parts[p].Apply(ctx, some)
		if err != nil {
			return nil, err
		}
		spread(errs, got, which)
	}
	if driver.FirstError(errs) == nil {
		return nil, nil
	}
	return errs, nil
}

// checkVersions finds a version conflict before anything is done.
func (s *Store) checkVersions(ctx context.Context, writes []driver.RecordWrite) error {
	for i := range writes {
		if writes[i].Version < 0 {
			continue
		}
		r, err := s.GetRecord(ctx, writes[i].Space, writes[i].Key)
		if err != nil && !errors.Is(err, redrive.ErrNotFound) {
			return err
		}
		if r.Version != writes[i].Version {
			return redrive.ErrVersion
		}
	}
	return nil
}
