package postgres

import (
	"strings"
	"testing"
	"time"
)

func TestURLCarriesOptions(t *testing.T) {
	const plain = "postgres://u:hunter2@host/db?sslmode=disable"
	rest, opts, err := ownParameters(plain + "&redrive_schema=my%20own&redrive_ddl=off&redrive_listen=off&redrive_timeout=3s&redrive_poll=1ms,2s&pool_max_conns=3")
	noErr(t, err)
	if rest != plain+"&pool_max_conns=3" {
		t.Errorf("what is left is %s", rest)
	}
	var s Store
	for _, o := range opts {
		o(&s)
	}
	if s.sql.schema != "my own" || s.ddl || s.listen || s.timeout != 3*time.Second || s.pollMin != time.Millisecond || s.pollMax != 2*time.Second {
		t.Errorf("%+v", &s)
	}
	for _, same := range []string{"postgres://host/db", plain} {
		if rest, opts, err := ownParameters(same); rest != same || len(opts) != 0 || err != nil {
			t.Errorf("%s became %s, %d options, %v", same, rest, len(opts), err)
		}
	}
	if rest, opts, err := ownParameters("postgres://host/db?redrive_ddl=on"); rest != "postgres://host/db" || len(opts) != 1 || err != nil {
		t.Errorf("%s, %d options, %v", rest, len(opts), err)
	}
}

func TestWrongParametersAreRefusedWithoutThePassword(t *testing.T) {
	for _, wrong := range []string{"redrive_schema=", "redrive_ddl=no", "redrive_listen=", "redrive_timeout=3", "redrive_poll=1s", "redrive_poll=2s,1s", "redrive_pool=3", "redrive_schema=%zz"} {
		_, err := Open(t.Context(), "postgres://u:hunter2@127.0.0.1:1/db?"+wrong)
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "redrive_") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

func TestStatsCountStatements(t *testing.T) {
	s := open(t)
	claim(t, s, "a")
	stats := s.Stats()
	if stats.Pool.Max != DefaultConns || stats.Pool.Open < 1 {
		t.Errorf("%+v", stats.Pool)
	}
	for _, st := range stats.Statements {
		if st.Name == "pick_lane" && st.Count == 1 && st.Total > 0 {
			return
		}
	}
	t.Errorf("the claim is not counted: %+v", stats.Statements)
}
