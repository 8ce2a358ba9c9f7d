package redisstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// Apply implements driver.Store. It is one script, whatever its size; keep it to a few
// hundred messages. Of a range the first 200 messages go with it, the others in scripts
// of their own afterwards: a call that fails between leaves the later ones of the range.
func (s *Store) Apply(ctx context.Context, b driver.Batch) ([]error, error) {
	if err := checkRecords(b.Records); err != nil {
		return nil, err
	}
	errs := make([]error, len(b.Publish)+len(b.Put))
	if len(errs)+len(b.Delete) > 0 && s.apart() {
		return s.applyApart(ctx, b)
	}
	refused := make([]error, len(errs))
	if s.parts != nil {
		refused = s.reserve(ctx, messages(&b))
	}
	st := s.step(ctx)
	ops := make([]*newOp, len(errs))
	var index []int
	add := func(i int, o *newOp, err error) {
		if err == nil {
			err = refused[i]
		}
		if err == nil {
			err = st.add(o)
		}
		if errs[i] = err; err == nil {
			ops[i] = o
			index = append(index, i)
		}
	}
	for i := range b.Publish {
		add(i, &newOp{m: &b.Publish[i], account: "published"}, b.Publish[i].Validate())
	}
	for i := range b.Put {
		e := &b.Put[i]
		add(len(b.Publish)+i, &newOp{m: &e.Message, entry: e, account: entered(b.Entered), restore: b.Restore}, driver.CheckEntry(e))
	}
	for i := range b.Records {
		st.record(&b.Records[i])
	}
	ranges := slices.DeleteFunc(slices.Clone(b.Delete), func(r driver.Range) bool { return driver.CheckQueue(r.Queue) != nil })
	for _, r := range ranges {
		_ = st.add(&rangeOp{r, ""})
	}
	script := scriptAdd
	if len(index) == 0 {
		script = scriptStep
	}
	results, err := st.run(ctx, script)
	if err != nil {
		return nil, err
	}
	for n, i := range index {
		errs[i] = ops[i].result(ctx, s, items(at(results, n)))
	}
	for n, r := range ranges {
		if err := s.finishRange(ctx, r, items(at(results, len(index)+n))); err != nil {
			return nil, err
		}
	}
	if driver.FirstError(errs) == nil {
		return nil, nil
	}
	return errs, nil
}

// finishRange ends what the first page of a range left.
func (s *Store) finishRange(ctx context.Context, r driver.Range, page []any) error {
	for text(at(page, 1)) != "" {
		st := s.step(ctx)
		if err := st.add(&rangeOp{r, text(at(page, 1))}); err != nil {
			return err
		}
		results, err := st.run(ctx, scriptStep)
		if err != nil {
			return err
		}
		page = items(at(results, 0))
	}
	return nil
}

// messages returns what a batch publishes and puts.
func messages(b *driver.Batch) []*redrive.Message {
	msgs := make([]*redrive.Message, 0, len(b.Publish)+len(b.Put))
	for i := range b.Publish {
		msgs = append(msgs, &b.Publish[i])
	}
	for i := range b.Put {
		msgs = append(msgs, &b.Put[i].Message)
	}
	return msgs
}

// rangeOp ends the messages of a range.
type rangeOp struct {
	driver.Range
	behind string // where it goes on; of a key's chain
}

func (r *rangeOp) pack(p *packed, st *step) error {
	p.list(6)
	p.str("d")
	p.num(st.index(st.s.place(&redrive.Message{Queue: r.Queue, Key: r.Key})))
	p.str(r.Key)
	p.str(r.UpTo)
	if r.Single {
		p.num(1)
	} else {
		p.num(0)
	}
	p.str(r.behind)
	return nil
}

func entered(how driver.Entered) string {
	switch how {
	case driver.EnteredImported:
		return "imported"
	case driver.EnteredMoved:
		return "movedin"
	}
	return "parked"
}

// checkRecords reports writes that could never be carried out.
func checkRecords(writes []driver.RecordWrite) error {
	for i := range writes {
		w := &writes[i]
		var err error
		switch {
		case len(w.Value) > driver.MaxRecordSize:
			err = fmt.Errorf("%w record of %d bytes", redrive.ErrInvalid, len(w.Value))
		case w.Space == "" || w.Key == "" || strings.Contains(w.Space, "\x00"):
			err = fmt.Errorf("%w record: it needs a space without NUL and a key", redrive.ErrInvalid)
		case w.Expires < 0 || w.Version < driver.AnyVersion:
			err = fmt.Errorf("%w record: negative expiry or version", redrive.ErrInvalid)
		}
		if err != nil {
			return &redrive.Error{Op: "apply", Err: err}
		}
	}
	return nil
}

// record adds the write of a record to the step.
func (st *step) record(w *driver.RecordWrite) {
	p := &st.records
	p.list(4)
	p.str(w.Space + "\x00" + w.Key)
	p.num(w.Version)
	if w.Value == nil {
		*p = append(*p, 0xc2) // false
	} else {
		p.bytes(w.Value)
	}
	p.num(span(w.Expires))
	st.nrec++
}

// GetRecord implements driver.Store.
func (s *Store) GetRecord(ctx context.Context, space, key string) (driver.Record, error) {
	list, err := s.listRecords(ctx, space+"\x00", "=", key, "")
	if err == nil && len(list) == 0 {
		err = redrive.ErrNotFound
	}
	if err != nil {
		return driver.Record{}, err
	}
	return list[0], nil
}

// ListRecords implements driver.Store.
func (s *Store) ListRecords(ctx context.Context, space, after string, limit int) ([]driver.Record, error) {
	if limit <= 0 {
		limit = redrive.DefaultPage
	}
	return s.listRecords(ctx, space+"\x00", after, limit)
}

func (s *Store) listRecords(ctx context.Context, args ...any) ([]driver.Record, error) {
	got, err := s.conn.Run(ctx, scriptRecords, s.keys(), args...)
	if err != nil {
		return nil, s.fail(err)
	}
	list := items(got)
	var records []driver.Record
	for i := 0; i+1 < len(list); i += 2 {
		space, key, _ := strings.Cut(text(list[i]), "\x00")
		raw := text(list[i+1])
		if len(raw) < 16 {
			return nil, errors.Join(redrive.ErrCorrupt, fmt.Errorf("record %s of %s", key, space))
		}
		r := driver.Record{Space: space, Key: key, Version: double(raw), Value: []byte(raw[16:])}
		if till := double(raw[8:]); till > 0 {
			r.ExpiresAt = moment(till)
		}
		records = append(records, r)
	}
	return records, nil
}
