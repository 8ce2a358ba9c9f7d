package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/faulttest"
	"github.com/redrive/redrive/internal/pgtest"
)

func TestManyInstancesMigrateAtOnce(t *testing.T) {
	schema := fmt.Sprintf("test_%d", schemas.Add(1))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s, err := Open(context.Background(), pgtest.Shared(t).URL(), WithSchema(schema))
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
	if got := claim(t, openIn(t, schema), "a"); len(got) != 8 {
		t.Errorf("%d messages, want 8", len(got))
	}
}

func TestDownRemovesEverything(t *testing.T) {
	s := open(t)
	noErr(t, s.MigrateDown(t.Context()))
	var left int
	noErr(t, s.pool.QueryRow(t.Context(), "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1", s.sql.schema).Scan(&left))
	if left != 0 {
		t.Errorf("%d things are left", left)
	}
	noErr(t, s.Migrate(t.Context()))
	noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a"}})))
}

func TestInspectTellsTheVersion(t *testing.T) {
	s := open(t)
	for in, want := range map[string]int{"nothing here": 0, s.sql.schema: SchemaVersion} {
		schema, version, err := Inspect(t.Context(), pgtest.Shared(t).URL()+"&redrive_ddl=off&redrive_schema="+url.QueryEscape(in))
		if schema != in || version != want || err != nil {
			t.Errorf("%q: %q, %d, %v", in, schema, version, err)
		}
	}
	if _, _, err := Inspect(t.Context(), "postgres://postgres@127.0.0.1:1/x"); err == nil {
		t.Errorf("nobody is there, and it has a version")
	}
}

func TestANewerSchemaIsRefused(t *testing.T) {
	s := open(t)
	_, err := s.pool.Exec(t.Context(), s.sql.in("INSERT INTO redrive.migration (version) VALUES (99)"))
	noErr(t, err)
	_, err = Open(t.Context(), pgtest.Shared(t).URL(), WithSchema(s.sql.schema))
	var e *redrive.Error
	if !errors.As(err, &e) || e.Hint == "" || !strings.Contains(err.Error(), "99") {
		t.Errorf("%v", err)
	}
}

// What an earlier build left under the same version is refused, also by those who only
// look.
func TestAnEarlierBuildIsRefused(t *testing.T) {
	for name, change := range map[string]string{
		"before layouts": "ALTER TABLE redrive.migration DROP COLUMN layout",
		"of a layout":    "UPDATE redrive.migration SET layout = layout - 1",
	} {
		s := open(t)
		_, err := s.pool.Exec(t.Context(), s.sql.in(change))
		noErr(t, err)
		_, err = Open(t.Context(), pgtest.Shared(t).URL(), WithSchema(s.sql.schema))
		_, _, looked := Inspect(t.Context(), pgtest.Shared(t).URL(), WithSchema(s.sql.schema))
		for _, err := range []error{err, looked} {
			var e *redrive.Error
			if !errors.As(err, &e) || !strings.Contains(e.Hint, "drain") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// A user without rights to change tables works on what an owner has made from the SQL
// that we print.
func TestLeastPrivilege(t *testing.T) {
	schema := fmt.Sprintf("test-%d", schemas.Add(1)) // a name that must be quoted
	serve(t, "DROP ROLE IF EXISTS worker; CREATE ROLE worker LOGIN")
	url := strings.Replace(pgtest.Shared(t).URL(), "postgres@", "worker@", 1)
	_, err := Open(t.Context(), url, WithSchema(schema), WithoutDDL())
	var e *redrive.Error
	if !errors.As(err, &e) || !strings.Contains(e.Hint, "migrate --print") {
		t.Fatalf("an empty database: %v", err)
	}
	if _, err = Open(t.Context(), url, WithSchema(schema)); err == nil {
		t.Fatalf("a user without rights made tables")
	}
	serve(t, MigrationSQL(schema, 0, SchemaVersion)+Rights(schema, "worker"))
	s, err := Open(t.Context(), url, WithSchema(schema), WithoutDDL())
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
	faulttest.Audited(t, s)
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
	const n = 300
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

func TestProbeWarnsOfWhatLosesMessages(t *testing.T) {
	values := func(change ...string) map[string]string {
		v := map[string]string{"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "autovacuum": "on", "track_counts": "on",
			"default_transaction_isolation": "read committed"}
		for i := 0; i < len(change); i += 2 {
			v[change[i]] = change[i+1]
		}
		return v
	}
	for _, tc := range []struct {
		values map[string]string
		worst  driver.Level
	}{
		{values(), driver.LevelOK},
		{values("synchronous_commit", "off"), driver.LevelWarn},
		{values("synchronous_commit", "local", "synchronous_standby_names", "*"), driver.LevelWarn},
		{values("synchronous_commit", "remote_apply", "synchronous_standby_names", "*"), driver.LevelOK},
		{values("fsync", "off"), driver.LevelRefused},
		{values("full_page_writes", "off"), driver.LevelRefused},
		{values("autovacuum", "off"), driver.LevelWarn},
		{values("default_transaction_isolation", "serializable"), driver.LevelWarn},
	} {
		worst := driver.LevelOK
		for _, v := range append(durability(tc.values), upkeepFindings(tc.values)...) {
			worst = max(worst, v.Level)
			if v.Level > driver.LevelOK && v.Hint == "" {
				t.Errorf("%+v does not say what to do", v)
			}
		}
		if worst != tc.worst {
			t.Errorf("%v: %s, want %s", tc.values, worst, tc.worst)
		}
	}
}

func TestProbeNamesIndexesThatAreNotValid(t *testing.T) {
	s := open(t)
	finding := func() (f driver.Finding) {
		for _, v := range s.Probe(t.Context()) {
			if v.Setting == "indexes" {
				f = v
			}
		}
		return f
	}
	if f := finding(); f.Level != driver.LevelOK {
		t.Errorf("%+v", f)
	}
	c := dial(t)
	defer func() { _ = c.Close(context.Background()) }()
	var name string
	noErr(t, c.QueryRow(t.Context(), `UPDATE pg_index i SET indisvalid = false FROM pg_class c, pg_namespace n
		WHERE c.oid = i.indexrelid AND n.oid = c.relnamespace AND n.nspname = $1 AND c.relname = 'dead_pkey' RETURNING c.relname`, s.sql.schema).Scan(&name))
	if f := finding(); f.Level != driver.LevelWarn || !strings.Contains(f.Value, name) || !strings.HasPrefix(f.Hint, "REINDEX INDEX CONCURRENTLY ") {
		t.Errorf("%+v", f)
	}
}

func TestProbeSeesTheOldestSnapshot(t *testing.T) {
	s := open(t)
	old := dial(t)
	defer func() { _ = old.Close(context.Background()) }()
	_, err := old.Exec(t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ")
	noErr(t, err)
	_, err = old.Exec(t.Context(), "SELECT")
	noErr(t, err)
	const n = 20
	for range n {
		noErr(t, driver.FirstError(s.Publish(t.Context(), []redrive.Message{{Queue: "a"}})))
	}
	h, err := s.Horizon(t.Context())
	noErr(t, err)
	if h.Age < n || h.Longest <= 0 {
		t.Errorf("a snapshot of before %d transactions: %+v", n, h)
	}
	for want, list := range map[driver.Level][]Horizon{
		driver.LevelOK:   {h, {Age: horizonAge, Longest: horizonTime}},
		driver.LevelWarn: {{Age: horizonAge + 1}, {Longest: horizonTime + 1}},
	} {
		for _, h := range list {
			if v := horizonFinding(h, nil); v.Level != want || want == driver.LevelWarn && v.Hint == "" {
				t.Errorf("%+v: %+v", h, v)
			}
		}
	}
}
