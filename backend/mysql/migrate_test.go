package mysql

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/faulttest"
	"github.com/redrive/redrive/internal/mariadbtest"
)

func TestManyInstancesMigrateAtOnce(t *testing.T) {
	prefix := newPrefix()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s, err := Open(context.Background(), mariadbtest.Shared(t).URL(mariadbtest.Database), WithPrefix(prefix))
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			defer func() { _ = s.Close() }()
			if err := driver.FirstError(s.Publish(context.Background(), []redrive.Message{{Queue: "a"}})); err != nil {
				t.Errorf("publish: %v", err)
			}
		})
	}
	wg.Wait()
	if got := claim(t, openAs(t, prefix), "a"); len(got) != 8 {
		t.Errorf("%d messages, want 8", len(got))
	}
}

// A migration that was cut off after any statement is begun anew.
func TestAMigrationIsRepeatable(t *testing.T) {
	for _, cut := range []int{10, 2} { // statements that are left
		prefix := newPrefix()
		sql := newStatements(prefix)
		parts := append(statementsOf(sql.Migration(1, true)), statementsOf(sql.Migration(2, true))...)
		for _, part := range parts[:len(parts)-cut] {
			serve(t, part)
		}
		s := openAs(t, prefix)
		noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a"}})))
		_, err := published(t, s, redrive.Message{Queue: "a"})
		noErr(t, err)
	}
}

func TestDownRemovesEverything(t *testing.T) {
	s := open(t)
	noErr(t, s.MigrateDown(t.Context()))
	var left int
	noErr(t, s.pool.QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND LEFT(TABLE_NAME, ?) = ?) + (SELECT COUNT(*) FROM information_schema.ROUTINES WHERE LEFT(ROUTINE_NAME, ?) = ?)",
		len(s.sql.prefix), s.sql.prefix, len(s.sql.prefix), s.sql.prefix).Scan(&left))
	if left != 0 {
		t.Errorf("%d tables and procedures are left", left)
	}
	noErr(t, s.Migrate(t.Context()))
	noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a"}})))
}

func TestANewerSchemaIsRefused(t *testing.T) {
	s := open(t)
	serve(t, s.sql.in("INSERT INTO redrive_migration (version, at) VALUES (99, 0)"))
	_, err := Open(t.Context(), mariadbtest.Shared(t).URL(mariadbtest.Database), WithPrefix(s.sql.prefix))
	var e *redrive.Error
	if !errors.As(err, &e) || e.Hint == "" || !strings.Contains(err.Error(), "99") {
		t.Errorf("%v", err)
	}
}

// What an earlier build left under the same version is refused, also by those who only
// look.
func TestAnEarlierBuildIsRefused(t *testing.T) {
	for name, change := range map[string]string{
		"before layouts": "ALTER TABLE redrive_migration DROP COLUMN layout",
		"of a layout":    "UPDATE redrive_migration SET layout = layout - 1",
	} {
		s := open(t)
		serve(t, s.sql.in(change))
		_, err := Open(t.Context(), mariadbtest.Shared(t).URL(mariadbtest.Database), WithPrefix(s.sql.prefix))
		_, _, looked := Inspect(t.Context(), mariadbtest.Shared(t).URL(mariadbtest.Database), WithPrefix(s.sql.prefix))
		for _, err := range []error{err, looked} {
			var e *redrive.Error
			if !errors.As(err, &e) || !strings.Contains(e.Hint, "drain") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// A user without rights to change tables works on what an administrator has made from
// the SQL that we print.
func TestLeastPrivilege(t *testing.T) {
	prefix := newPrefix()
	serve(t, "CREATE USER worker; GRANT USAGE ON *.* TO worker")
	serve(t, "CREATE TABLE visible (id INT); GRANT SELECT ON visible TO worker") // else the database is not to be seen
	url := strings.Replace(mariadbtest.Shared(t).URL(mariadbtest.Database), "root@", "worker@", 1)
	_, err := Open(t.Context(), url, WithPrefix(prefix), WithoutDDL())
	var e *redrive.Error
	if !errors.As(err, &e) || !strings.Contains(e.Hint, "migrate --print") {
		t.Fatalf("an empty database: %v", err)
	}
	if _, err = Open(t.Context(), url, WithPrefix(prefix)); err == nil {
		t.Fatalf("a user without rights made tables")
	}
	mariadbtest.Shared(t).Script(t, mariadbtest.Database, MigrationSQL(prefix, 0, SchemaVersion)+Rights(mariadbtest.Database, prefix, "worker"))
	s, err := Open(t.Context(), url, WithPrefix(prefix), WithoutDDL())
	noErr(t, err)
	defer func() { _ = s.Close() }()
	noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a", ID: "m", Key: "k"}})))
	d := claim(t, s, "a")[0]
	noErr(t, driver.FirstError(s.Settle(t.Context(), []driver.Settlement{{Receipt: d.Receipt, Outcome: redrive.OutcomeDead, Reason: redrive.ReasonManual}})))
	got, err := s.Update(t.Context(), driver.Selection{Refs: []redrive.Ref{d.Ref()}}, driver.Change{Action: driver.ActRedrive}, 1)
	noErr(t, err)
	noErr(t, got[0].Err)
	if _, err := (dialect{s}).FoldLedger(t.Context()); err != nil {
		t.Errorf("fold: %v", err)
	}
	if _, err := s.Trim(t.Context(), driver.Retention{}, 10); err != nil {
		t.Errorf("trim: %v", err)
	}
	_, err = s.Apply(t.Context(), driver.Batch{Records: []driver.RecordWrite{{Space: "s", Key: "k", Value: []byte("v")}}})
	noErr(t, err)
	faulttest.Audited(t, s)
	for _, v := range s.Probe(t.Context()) {
		if v.Level == driver.LevelRefused {
			t.Errorf("%+v", v)
		}
	}
}

func TestURLs(t *testing.T) {
	for url, want := range map[string]string{
		"mysql://u:p%2Fw@h:1/d?pool_max_conns=4": "u:p/w@tcp(h:1)/d",
		"mysql://u@h/d":                          "u@tcp(h:3306)/d",
		"mysql://u@h/d?redrive_prefix=x_&redrive_ddl=off&redrive_timeout=1s&redrive_poll=1ms,1s&tls=skip-verify": "u@tcp(h:3306)/d",
		"mariadb://u@localhost/d?socket=/run/s": "u@unix(/run/s)/d",
	} {
		_, c, err := configure(url, nil)
		if err != nil || !strings.HasPrefix(c.config.FormatDSN(), want) {
			t.Errorf("%s: %v, %v", url, c, err)
		}
	}
	for _, url := range []string{"", "mysql://", "postgres://u:hunter2@h/d", "mysql://u:hunter2@h", "mysql://u:hunter2@/d", "mysql://u:hunter2@h/d?pool_max_conns=1", "mysql://u:hunter2%@h/d",
		"mysql://u:hunter2@h/d?redrive_what=1", "mysql://u:hunter2@h/d?redrive_ddl=no", "mysql://u:hunter2@h/d?redrive_poll=1s,5ms", "mysql://u:hunter2@h/d?redrive_timeout=0"} {
		if _, _, err := configure(url, nil); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestInspect(t *testing.T) {
	prefix := newPrefix()
	url := mariadbtest.Shared(t).URL(mariadbtest.Database) + "?redrive_prefix=" + prefix
	for _, want := range []int{0, SchemaVersion} {
		got, version, err := Inspect(t.Context(), url)
		if err != nil || got != prefix || version != want {
			t.Errorf("prefix %q, version %d, %v; want %q and %d", got, version, err, prefix, want)
		}
		s, err := Open(t.Context(), url)
		noErr(t, err)
		noErr(t, s.Close())
	}
}

func TestVersions(t *testing.T) {
	for version, good := range map[string]bool{
		"8.0.36": true, "8.4.2-log": true, "9.1.0": true, "10.11.19-MariaDB-0+deb12u1": true, "11.4.2-MariaDB": true, "10.6.1-MariaDB": true,
		"5.7.44": false, "8.0.0": false, "10.5.23-MariaDB": false, "what": false,
	} {
		if _, err := checkVersion(version); (err == nil) != good {
			t.Errorf("%s: %v", version, err)
		}
	}
}

// The ledger is the same before and after differences were folded in, while others
// write more of them.
func TestFoldKeepsTheLedger(t *testing.T) {
	s := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := (dialect{s}).FoldLedger(context.Background()); err != nil {
					t.Errorf("fold: %v", err)
					return
				}
			}
		})
	}
	const n = 200
	for range n {
		noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a"}, {Queue: "b"}})))
		c, err := s.Counts(t.Context())
		noErr(t, err)
		if c[0].AllWaiting() != c[1].AllWaiting() || c[0].Ledger.Published != c[0].AllWaiting() {
			t.Fatalf("the ledger of a batch is torn: %+v", c)
		}
	}
	cancel()
	wg.Wait()
	c, err := s.Counts(t.Context(), "b", "a")
	noErr(t, err)
	for i := range c {
		if c[i].AllWaiting() != n {
			t.Errorf("%s: %d, want %d", c[i].Queue, c[i].AllWaiting(), n)
		}
	}
	faulttest.Audited(t, s)
}

func TestRuns(t *testing.T) {
	if got := runsOf("id", []int64{1, 2, 3, 7, 9, 10}); got != "id BETWEEN 1 AND 3 OR id BETWEEN 7 AND 7 OR id BETWEEN 9 AND 10" {
		t.Errorf("%s", got)
	}
}

func TestProbeWarnsOfWhatLosesMessages(t *testing.T) {
	values := func(change ...string) map[string]string {
		v := map[string]string{"innodb_flush_log_at_trx_commit": "1", "innodb_doublewrite": "ON", "log_bin": "OFF", "sync_binlog": "0", "max_allowed_packet": "67108864"}
		for i := 0; i < len(change); i += 2 {
			v[change[i]] = change[i+1]
		}
		return v
	}
	for _, tc := range []struct {
		values    map[string]string
		isolation string
		others    []string
		worst     driver.Level
	}{
		{values: values(), worst: driver.LevelOK},
		{values: values("innodb_flush_log_at_trx_commit", "2"), worst: driver.LevelWarn},
		{values: values("innodb_flush_log_at_trx_commit", "0"), worst: driver.LevelWarn},
		{values: values("innodb_doublewrite", "OFF"), worst: driver.LevelWarn},
		{values: values("log_bin", "ON"), worst: driver.LevelWarn},
		{values: values("log_bin", "ON", "sync_binlog", "1"), worst: driver.LevelOK},
		{values: values("max_allowed_packet", "16777216"), worst: driver.LevelWarn},
		{values: values(), isolation: "REPEATABLE-READ", worst: driver.LevelWarn},
		{values: values(), others: []string{"redrive_message"}, worst: driver.LevelRefused},
	} {
		if tc.isolation == "" {
			tc.isolation = "READ-COMMITTED"
		}
		worst := driver.LevelOK
		for _, v := range append(durability(tc.values), soundness(tc.values, tc.isolation, tc.others)...) {
			worst = max(worst, v.Level)
			if v.Level > driver.LevelOK && v.Hint == "" {
				t.Errorf("%+v does not say what to do", v)
			}
		}
		if worst != tc.worst {
			t.Errorf("%+v: %s, want %s", tc, worst, tc.worst)
		}
	}
}
