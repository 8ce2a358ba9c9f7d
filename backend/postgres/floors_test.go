package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/sqlstore"
)

// A message that a lane gets late must be found although the lane was found to begin
// later.
func TestFreedHeadsAreNotBelowTheFloor(t *testing.T) {
	s := open(t)
	noErr(t, s.Configure(t.Context(), "a", redrive.QueueSettings{OrderByKey: true}))
	noErr(t, redrive.FirstError(s.Publish(t.Context(), []redrive.Message{
		{Queue: "a", ID: "head", Key: "k", Delay: 2 * sqlstore.FloorMargin}, {Queue: "a", ID: "behind", Key: "k"},
	})))
	var got []redrive.Delivery
	for deadline := time.Now().Add(patience); len(got) == 0 && time.Now().Before(deadline); {
		got = claim(t, s, "a")
	}
	if len(got) != 1 || got[0].ID != "head" {
		t.Fatalf("claimed %+v", got)
	}
	// As if reading the whole lane had been dear.
	s.floors.Claimed(&redrive.ClaimRequest{Queue: "a", Max: 1}, 0, time.Time{}, time.Minute, got[0].LeasedAt, 1)
	noErr(t, redrive.FirstError(s.Settle(t.Context(), []redrive.Settlement{{Receipt: got[0].Receipt, Outcome: redrive.OutcomeDone}})))
	if next := claim(t, s, "a"); len(next) != 1 || next[0].ID != "behind" {
		t.Errorf("claimed %+v, want what was behind the head", next)
	}
}

// holdSnapshot keeps the server from removing rows that are deleted from now on.
func holdSnapshot(t testing.TB) {
	t.Helper()
	holder := dial(t)
	t.Cleanup(func() { _ = holder.Close(context.Background()) })
	for _, sql := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT"} {
		_, err := holder.Exec(context.Background(), sql)
		noErr(t, err)
	}
}

// bury fills the waiting messages and removes them again, so that dead rows are left.
func bury(t testing.TB, s *Store, n int) {
	t.Helper()
	fillDue(t, s, "a", n, 2*time.Hour)
	_, err := s.pool.Exec(context.Background(), s.sql.in("DELETE FROM redrive.message"))
	noErr(t, err)
}

// pagesOf returns how many pages a statement looked at.
func pagesOf(t testing.TB, plan string) (n int) {
	t.Helper()
	_, rest, found := strings.Cut(plan, "Buffers: shared hit=")
	digits := strings.IndexFunc(rest+" ", func(r rune) bool { return r < '0' || r > '9' })
	n, err := strconv.Atoi((rest + " ")[:digits])
	if !found || err != nil {
		t.Fatalf("no number of pages in\n%s", plan)
	}
	return n
}

// Beside a held snapshot, claims and looks read no more than where a class begins, also
// those for some kinds only.
func TestClaimsBesideAHeldSnapshotStayShort(t *testing.T) {
	s := open(t)
	holdSnapshot(t)
	bury(t, s, 20_000)
	for i := range 20 {
		noErr(t, redrive.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a", Kind: "k" + fmt.Sprint(i%2)}})))
	}
	for name, kinds := range map[string][]string{"any": nil, "kinds": {"k1"}} {
		req := redrive.ClaimRequest{Queue: "a", Max: 1, Lease: time.Minute, Instance: "x", Kinds: kinds}
		read := func() int {
			args := []any{"a", 1, int64(time.Minute / time.Microsecond), int64(1), false, "x", kinds, []string(nil), []string(nil), int64(0), orWhole(s.floors.From(&req, 0))}
			return pagesOf(t, explain(t, s, "pick_lane", false, args...))
		}
		whole := read()
		first, now, err := s.firstDue(t.Context(), sqlstore.Part{Queue: "a", Kinds: kinds})
		noErr(t, err)
		if first.IsZero() || first.After(now) {
			t.Fatalf("%s: it begins at %s, now is %s", name, first, now)
		}
		s.floors.Claimed(&req, 0, time.Time{}, time.Minute, first, 1) // reading the whole was dear
		if short := read(); short > 50 || whole < 2*short {
			t.Errorf("%s: a claim reads %d pages, and %d as a whole", name, short, whole)
		}
		if got, err := s.Claim(t.Context(), req); err != nil || len(got) != 1 {
			t.Errorf("%s: claimed %+v: %v", name, got, err)
		}
	}
	from := s.floors.OfQueue("a", 0)
	peek := func(from time.Time) int {
		return pagesOf(t, explain(t, s, "peek", false, []string{"a"}, []string{"a"}, []int64{0}, []*time.Time{&from}))
	}
	if short, whole := peek(from), peek(orWhole(time.Time{})); short > 50 || whole < 2*short {
		t.Errorf("a look reads %d pages, and %d as a whole", short, whole)
	}
}
