package postgres

import (
	"errors"
	"slices"
	"testing"

	"github.com/redrive/redrive/driver"
)

// probed returns what Probe says of a setting.
func probed(t *testing.T, s *Store, setting string) driver.Finding {
	t.Helper()
	list := s.Probe(t.Context())
	at := slices.IndexFunc(list, func(v driver.Finding) bool { return v.Setting == setting })
	if at < 0 {
		t.Fatalf("nothing is said of %s: %+v", setting, list)
	}
	return list[at]
}

// TestProbeNamesInvalidIndexes as a CREATE INDEX CONCURRENTLY leaves one that ended early.
func TestProbeNamesInvalidIndexes(t *testing.T) {
	s := open(t)
	if v := probed(t, s, "indexes"); v.Level != driver.LevelOK {
		t.Errorf("a new store: %+v", v)
	}
	conn := dial(t)
	defer func() { _ = conn.Close(t.Context()) }()
	table := s.sql.schema + ".doubled"
	for _, statement := range []string{"CREATE TABLE " + table + " (n int)", "INSERT INTO " + table + " VALUES (1), (1)"} {
		_, err := conn.Exec(t.Context(), statement)
		noErr(t, err)
	}
	if _, err := conn.Exec(t.Context(), "CREATE UNIQUE INDEX CONCURRENTLY cut ON "+table+" (n)"); err == nil {
		t.Fatal("the index was made")
	}
	if v := probed(t, s, "indexes"); v.Level != driver.LevelWarn || v.Value != "cut invalid" || v.Hint != "REINDEX INDEX CONCURRENTLY "+s.sql.schema+".cut" {
		t.Errorf("%+v", v)
	}
}

func TestProbeCountsConnections(t *testing.T) {
	if v := probed(t, open(t), "max_connections"); v.Value == "unknown" {
		t.Errorf("%+v", v)
	}
	if v := roomFinding(90, 97, 8, nil); v.Level != driver.LevelWarn || v.Hint == "" {
		t.Errorf("7 are left for 8: %+v", v)
	}
	if v := roomFinding(89, 97, 8, nil); v.Level != driver.LevelOK {
		t.Errorf("8 are left for 8: %+v", v)
	}
	if v := roomFinding(0, 0, 8, errors.New("cut")); v.Level != driver.LevelWarn {
		t.Errorf("%+v", v)
	}
}
