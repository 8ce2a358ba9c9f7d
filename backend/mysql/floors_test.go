package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/faulttest"
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

func floored(s *Store) faulttest.Floored {
	return faulttest.Floored{
		Store: s, Floors: &s.base.Floors, First: dialect{s}.FirstDue,
		Pages: func(t testing.TB, req *driver.ClaimRequest, from time.Time) int64 {
			c := claiming{store: s, req: req}
			c.filter, c.filterArgs = claimFilter(req)
			return pagesOf(t, s, "claim", func(tx db) error {
				return tx.run(t.Context(), c.step("pick", c.scan, []any{[]byte(req.Queue), int(req.Lane), orWhole(from)}, req.Max))
			})
		},
		Again: func(t testing.TB) driver.Store { return connect(t, s) },
	}
}

func TestClaimsBesideAHeldSnapshotStayShort(t *testing.T) {
	s := open(t)
	holdSnapshot(t)
	bury(t, s, 20_000)
	floored(s).ShortClaims(t)
}

func TestFreedHeadsAreNotBelowTheFloor(t *testing.T) { floored(open(t)).FreedHeads(t) }

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
				got, err := s.Claim(ctx, driver.ClaimRequest{Queue: "a", Max: 50, Lease: time.Minute, Instance: "x"})
				noErr(b, err)
				took = append(took, time.Since(began))
				list := make([]driver.Settlement, len(got))
				for i := range got {
					list[i] = driver.Settlement{Receipt: got[i].Receipt, Outcome: redrive.OutcomeDone}
				}
				noErr(b, driver.FirstError(s.Settle(ctx, list)))
			}
			slices.Sort(took)
			at := func(share int) float64 { return float64(took[(len(took)-1)*share/100].Microseconds()) }
			b.ReportMetric(at(50), "p50-us/claim")
			b.ReportMetric(at(99), "p99-us/claim")
			b.ReportMetric(at(100), "max-us/claim")
		})
	}
}
