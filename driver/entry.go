package driver

import (
	"fmt"
	"math"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/text"
)

// CheckEntry reports what keeps an entry from being put, as an [*redrive.Error] that wraps
// [redrive.ErrInvalid]: of one that waits all that [redrive.Message.Validate] refuses. A
// dead letter may be larger, and have headers that Publish would refuse: it may be dead for it.
// Its names and moments, and those of its original, are ones that every store holds.
func CheckEntry(e *redrive.Entry) error {
	bad := func(what string) error {
		return &redrive.Error{Op: "put", Queue: e.Queue, ID: e.ID, Err: fmt.Errorf("%w entry: %s", redrive.ErrInvalid, what)}
	}
	if int(e.Lane) >= Lanes {
		return bad(fmt.Sprintf("lane %d", e.Lane))
	}
	for _, n := range [...]int{e.Attempts, e.Crashes, e.History.Count} {
		if n < 0 || n > math.MaxInt32 {
			return bad(fmt.Sprintf("a number of %d", n))
		}
	}
	if e.State != redrive.StateDead {
		return e.Validate()
	}
	if e.Reason == 0 || e.Reason > LastReason {
		return bad("a dead letter needs a reason")
	}
	moments := []time.Time{e.PublishedAt, e.DiedAt}
	for _, f := range []*redrive.Failure{e.History.First, e.History.Last} {
		if f != nil {
			moments = append(moments, f.At)
		}
	}
	for _, at := range moments {
		if !text.Dated(at) {
			return bad("a moment beyond the year 9999: moments lie within the years 1 to 9999, in UTC")
		}
	}
	for _, m := range []*redrive.Message{&e.Message, e.Original} {
		if m == nil {
			continue
		}
		names := *m
		names.Queue, names.Body, names.Headers = e.Queue, nil, nil
		if err := names.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// CheckImport is CheckEntry, and refuses the headers and sizes that Publish refuses, too, but for the sizes
// of what is dead for them.
func CheckImport(e *redrive.Entry) error {
	if err := CheckEntry(e); err != nil {
		return err
	}
	for _, m := range []*redrive.Message{&e.Message, e.Original} {
		if m == nil {
			continue
		}
		whole := []redrive.Message{*m}
		if e.Reason == redrive.ReasonOversize {
			whole = whole[:0]
			for i := range m.Headers {
				whole = append(whole, redrive.Message{Headers: redrive.Headers{{Name: m.Headers[i].Name}}})
			}
		}
		for i := range whole {
			whole[i].Queue = e.Queue
			if err := whole[i].Validate(); err != nil {
				return err
			}
		}
	}
	return nil
}
