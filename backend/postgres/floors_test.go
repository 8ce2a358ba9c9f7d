package postgres

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/faulttest"
)

func floored(s *Store) faulttest.Floored {
	return faulttest.Floored{
		Store: s, Floors: &s.base.Floors, First: dialect{s}.FirstDue,
		Pages: func(t testing.TB, req *driver.ClaimRequest, from time.Time) int64 {
			return pagesOf(t, explain(t, s, "pick_lane", false, req.Queue, req.Max, int64(req.Lease/time.Microsecond), int64(1), false, req.Instance,
				req.Kinds, []string(nil), []string(nil), int64(req.Lane), orWhole(from)))
		},
		Again: func(t testing.TB) driver.Store { return openIn(t, s.sql.schema) },
	}
}

func TestFreedHeadsAreNotBelowTheFloor(t *testing.T) { floored(open(t)).FreedHeads(t) }

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
func pagesOf(t testing.TB, plan string) (n int64) {
	t.Helper()
	_, rest, found := strings.Cut(plan, "Buffers: shared hit=")
	digits := strings.IndexFunc(rest+" ", func(r rune) bool { return r < '0' || r > '9' })
	n, err := strconv.ParseInt((rest + " ")[:digits], 10, 64)
	if !found || err != nil {
		t.Fatalf("no number of pages in\n%s", plan)
	}
	return n
}

func TestClaimsBesideAHeldSnapshotStayShort(t *testing.T) {
	s := open(t)
	holdSnapshot(t)
	bury(t, s, 20_000)
	floored(s).ShortClaims(t)
	from := s.base.Floors.OfQueue("a", 0)
	peek := func(from time.Time) int64 {
		return pagesOf(t, explain(t, s, "peek", false, []string{"a"}, []string{"a"}, []int64{0}, []*time.Time{&from}))
	}
	if short, whole := peek(from), peek(orWhole(time.Time{})); short > 50 || whole < 2*short {
		t.Errorf("a look reads %d pages, and %d as a whole", short, whole)
	}
}
