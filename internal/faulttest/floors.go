package faulttest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/servertest"
	"github.com/redrive/redrive/internal/sqlstore"
)

// Floored is a store on a database of which the tests see where its claims begin to read.
type Floored struct {
	Store  driver.Store
	Floors *sqlstore.Floors
	// First looks where a part begins.
	First func(ctx context.Context, p sqlstore.Part) (first, now time.Time, err error)
	// Pages returns how many pages a claim reads that begins at a time.
	Pages func(t testing.TB, req *driver.ClaimRequest, from time.Time) int64
	// Again opens the same store as another process would.
	Again func(t testing.TB) driver.Store
}

// FreedHeads fails unless a message that a lane gets late is found although the lane was
// found to begin later.
func (f Floored) FreedHeads(t *testing.T) {
	claim := func(want string) (got redrive.Delivery) {
		t.Helper()
		servertest.Until(t, want+" is claimed", func() bool {
			list, err := f.Store.Claim(t.Context(), driver.ClaimRequest{Queue: "a", Max: 10, Lease: time.Minute, Instance: "test"})
			if err != nil || len(list) > 1 || len(list) == 1 && list[0].ID != want {
				t.Fatalf("claimed %+v: %v", list, err)
			}
			if len(list) == 1 {
				got = list[0]
			}
			return len(list) == 1
		})
		return got
	}
	if err := f.Store.Configure(t.Context(), "a", driver.QueueSettings{OrderByKey: true}); err != nil {
		t.Fatal(err)
	}
	if err := driver.FirstError(f.Store.Publish(t.Context(), []redrive.Message{
		{Queue: "a", ID: "head", Key: "k", Delay: 2 * sqlstore.FloorMargin}, {Queue: "a", ID: "behind", Key: "k"},
	})); err != nil {
		t.Fatal(err)
	}
	head := claim("head")
	// As if reading the whole lane had been dear.
	f.Floors.Claimed(&driver.ClaimRequest{Queue: "a", Max: 1}, 0, time.Time{}, time.Hour, head.LeasedAt, 1)
	if err := driver.FirstError(f.Store.Settle(t.Context(), []driver.Settlement{{Receipt: head.Receipt, Outcome: redrive.OutcomeDone}})); err != nil {
		t.Fatal(err)
	}
	claim("behind")
}

// ShortClaims fails unless claims behind rows that are dead, and that a snapshot keeps,
// read no more than where a class begins, also those for some kinds only, and the first
// of a process.
func (f Floored) ShortClaims(t *testing.T) {
	for i := range 20 {
		if err := driver.FirstError(f.Store.Publish(t.Context(), []redrive.Message{{Queue: "a", Kind: "k" + fmt.Sprint(i%2)}})); err != nil {
			t.Fatal(err)
		}
	}
	for name, kinds := range map[string][]string{"any": nil, "kinds": {"k1"}} {
		req := driver.ClaimRequest{Queue: "a", Max: 1, Lease: time.Minute, Instance: "x", Kinds: kinds}
		whole := f.Pages(t, &req, time.Time{})
		first, now, err := f.First(t.Context(), sqlstore.Part{Queue: "a", Kinds: kinds})
		if err != nil || first.IsZero() || first.After(now) {
			t.Fatalf("%s: it begins at %s, now is %s: %v", name, first, now, err)
		}
		f.Floors.Claimed(&req, 0, time.Time{}, time.Hour, first, 1) // reading the whole was dear
		var other sqlstore.Floors                                   // of a process that begins
		for _, err := range []error{f.Floors.Tell(t.Context(), f.Store), other.Learn(t.Context(), f.Store)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for who, floors := range map[string]*sqlstore.Floors{"a claim": f.Floors, "the first claim of a process": &other} {
			short := f.Pages(t, &req, floors.From(&req, 0))
			t.Logf("%s: %s reads %d pages, and %d as a whole", name, who, short, whole)
			if whole < 5*short {
				t.Errorf("%s: %s reads %d pages, and %d as a whole", name, who, short, whole)
			}
		}
		if got, err := f.Store.Claim(t.Context(), req); err != nil || len(got) != 1 {
			t.Errorf("%s: claimed %+v: %v", name, got, err)
		}
	}
	begins := f.Again(t)
	servertest.Until(t, "what a process learned as it began is looked at", func() bool { return statement(begins, "first_due").Count > 0 })
}

func statement(s driver.Store, name string) driver.StatementStats {
	all := s.(interface{ Stats() driver.StoreStats }).Stats().Statements
	if i := slices.IndexFunc(all, func(one driver.StatementStats) bool { return one.Name == name }); i >= 0 {
		return all[i]
	}
	return driver.StatementStats{}
}

// StatementErrors fails unless a claim that fails because of the server is counted under
// the name of its statement, and one that finds nothing is not. remove takes the table
// away.
func StatementErrors(t *testing.T, s driver.Store, name string, remove func()) {
	req := driver.ClaimRequest{Queue: "a", Max: 1, Lease: time.Minute, Instance: "x"}
	if _, err := s.Claim(t.Context(), req); err != nil || statement(s, name).Errors != 0 {
		t.Errorf("%d errors of a claim: %v", statement(s, name).Errors, err)
	}
	remove()
	if _, err := s.Claim(t.Context(), req); err == nil || statement(s, name).Errors != 1 {
		t.Errorf("%d errors without the table: %v", statement(s, name).Errors, err)
	}
}
