package driver

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/redrive/redrive"
)

// A CauseLister is the part of [Store] that AllCauses needs.
type CauseLister interface {
	Causes(ctx context.Context, q redrive.Query) (causes []Cause, complete bool, err error)
}

// AllCauses goes through all causes of dead letters that match by queue, reason and signature, in an
// order of the store's own, a page at a time; other fields of the query are ignored. An error is the
// last that it yields. What dies or goes meanwhile may be in it or not; nothing is in it twice.
func AllCauses(ctx context.Context, in CauseLister, of redrive.Query) iter.Seq2[*Cause, error] {
	q := redrive.Query{Queue: of.Queue, Reason: of.Reason, Signature: of.Signature, State: redrive.StateDead, Limit: redrive.MaxPage, After: CauseCursor(&Cause{})}
	return func(yield func(*Cause, error) bool) {
		for {
			page, complete, err := in.Causes(ctx, q)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range page {
				if !yield(&page[i], nil) {
					return
				}
			}
			if complete {
				return
			}
			if len(page) > 0 { // else what stood there went meanwhile
				q.After = CauseCursor(&page[len(page)-1])
			}
		}
	}
}

const causeCursor = "cause/"

// CauseCursor is the After with which [Store.Causes] goes on after a cause, in an order of the store's own
// instead of by size. After the zero Cause are all.
func CauseCursor(c *Cause) string {
	return fmt.Sprintf("%s%s/%d/%s", causeCursor, c.Queue, c.Reason, c.Signature)
}

// ParseCauseCursor reads a cursor, for stores.
func ParseCauseCursor(after string) (at Cause, ok bool) {
	rest, ok := strings.CutPrefix(after, causeCursor)
	if !ok {
		return at, false
	}
	parts := strings.SplitN(rest, "/", 3)
	if len(parts) < 3 {
		return at, false
	}
	reason, err := strconv.ParseUint(parts[1], 10, 8)
	return Cause{Queue: parts[0], Reason: redrive.Reason(reason), Signature: parts[2]}, err == nil
}

// PageCauses cuts causes as [Store.Causes] returns them: the largest first, or with a cursor those after it, in
// order of queue, reason and signature.
func PageCauses(list []Cause, q *redrive.Query) (page []Cause, all bool) {
	if at, ok := ParseCauseCursor(q.After); ok {
		list = slices.DeleteFunc(list, func(c Cause) bool { return compareNames(&c, &at) <= 0 })
		slices.SortFunc(list, func(a, b Cause) int { return compareNames(&a, &b) })
	} else {
		SortCauses(list)
	}
	limit := q.PageLimit()
	return list[:min(len(list), limit)], len(list) <= limit
}
