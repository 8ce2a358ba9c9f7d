package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/internal/sqlstore"
)

// holdSnapshot keeps the server from removing rows that are deleted from now on.
func holdSnapshot(t testing.TB) {
	t.Helper()
	tx, err := dial(t).BeginTx(context.Background(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	noErr(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	var n int
	noErr(t, tx.QueryRowContext(context.Background(), "SELECT COUNT(*) FROM "+anyTable(t, tx)).Scan(&n))
}

// anyTable is a table of InnoDB: reading it takes the snapshot.
func anyTable(t testing.TB, tx *sql.Tx) (name string) {
	t.Helper()
	noErr(t, tx.QueryRowContext(context.Background(),
		"SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME LIKE '%migration' LIMIT 1").Scan(&name))
	return name
}

// bury fills the waiting messages and removes them again, so that dead rows are left.
func bury(t testing.TB, s *Store, n int) {
	t.Helper()
	serve(t, s.sql.in(fmt.Sprintf(`INSERT INTO redrive_message (queue, id, due, published, size, body)
		SELECT 'a', CONCAT('w', seq), 1700000000000000 + seq, 1700000000000000, 300, 'x' FROM %s; DELETE FROM redrive_message`, upTo(n))))
}

// pagesOf returns how many pages the server looks at for some steps.
func pagesOf(t testing.TB, s *Store, name string, f func(tx db) error) (pages int64) {
	t.Helper()
	client := dial(t)
	read := func() (n int64) {
		var variable string
		noErr(t, client.QueryRowContext(context.Background(), "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_read_requests'").Scan(&variable, &n))
		return n
	}
	// What the server does beside counts as well: the least of some tries is what is meant.
	pages = 1 << 62
	for range 5 {
		before := read()
		noErr(t, s.inTx(context.Background(), name, func(tx db) error {
			if err := f(tx); err != nil {
				return err
			}
			return errAbandon
		}))
		pages = min(pages, read()-before)
	}
	return pages
}

// Beside a held snapshot, claims read no more than where a class begins, also
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
		read := func() int64 {
			c := claiming{store: s, req: &req}
			c.filter, c.filterArgs = claimFilter(&req)
			return pagesOf(t, s, "claim", func(tx db) error {
				return tx.run(t.Context(), c.step("pick", c.scan, []any{[]byte("a"), 0, orWhole(s.floors.From(&req, 0))}, 1))
			})
		}
		s.floors.Forget("a")
		whole := read()
		first, now, err := s.firstDue(t.Context(), sqlstore.Part{Queue: "a", Kinds: kinds})
		noErr(t, err)
		if first.IsZero() || first.After(now) {
			t.Fatalf("%s: it begins at %s, now is %s", name, first, now)
		}
		s.floors.Claimed(&req, 0, time.Time{}, time.Minute, first, 1) // reading the whole was dear
		short := read()
		t.Logf("%s: a claim reads %d pages, and %d as a whole", name, short, whole)
		if whole < 5*short {
			t.Errorf("%s: a claim reads %d pages, and %d as a whole", name, short, whole)
		}
		if got, err := s.Claim(t.Context(), req); err != nil || len(got) != 1 {
			t.Errorf("%s: claimed %+v: %v", name, got, err)
		}
	}
}

// A head that is freed is found although its lane was found to begin later.
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
	s.floors.Claimed(&redrive.ClaimRequest{Queue: "a", Max: 1}, 0, time.Time{}, time.Minute, got[0].LeasedAt, 1)
	noErr(t, redrive.FirstError(s.Settle(t.Context(), []redrive.Settlement{{Receipt: got[0].Receipt, Outcome: redrive.OutcomeDone}})))
	if next := claim(t, s, "a"); len(next) != 1 || next[0].ID != "behind" {
		t.Errorf("claimed %+v, want what was behind the head", next)
	}
}

// BenchmarkClaimHeldSnapshot drains a lane behind dead rows that an old transaction
// elsewhere keeps the server from removing.
func BenchmarkClaimHeldSnapshot(b *testing.B) {
	ctx := context.Background()
	for _, dead := range []int{0, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("dead=%d", dead), func(b *testing.B) {
			s := open(b)
			holdSnapshot(b)
			if dead > 0 {
				bury(b, s, dead)
			}
			fillTables(b, s, 50*b.N+1000, 1)
			var took []time.Duration
			b.ResetTimer()
			for range b.N {
				began := time.Now()
				got, err := s.Claim(ctx, redrive.ClaimRequest{Queue: "a", Max: 50, Lease: time.Minute, Instance: "x"})
				noErr(b, err)
				took = append(took, time.Since(began))
				list := make([]redrive.Settlement, len(got))
				for i := range got {
					list[i] = redrive.Settlement{Receipt: got[i].Receipt, Outcome: redrive.OutcomeDone}
				}
				noErr(b, redrive.FirstError(s.Settle(ctx, list)))
			}
			slices.Sort(took)
			at := func(share int) float64 { return float64(took[(len(took)-1)*share/100].Microseconds()) }
			b.ReportMetric(at(50), "p50-us/claim")
			b.ReportMetric(at(99), "p99-us/claim")
			b.ReportMetric(at(100), "max-us/claim")
		})
	}
}
