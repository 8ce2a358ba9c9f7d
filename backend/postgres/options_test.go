package postgres

import (
	"strings"
	"testing"
	"time"
)

func TestURLCarriesOptions(t *testing.T) {
	const plain = "postgres://u:hunter2@host/db?sslmode=disable"
	s, cfg, err := configure(plain+"&redrive_schema=my%20own&redrive_ddl=off&redrive_listen=off&redrive_timeout=3s&redrive_poll=1ms,2s&pool_max_conns=3", nil)
	noErr(t, err)
	if cfg.MaxConns != 3 {
		t.Errorf("at most %d connections", cfg.MaxConns)
	}
	if s.sql.schema != "my own" || s.base.DDL || s.listen || s.base.Timeout != 3*time.Second || s.base.PollMin != time.Millisecond || s.base.PollMax != 2*time.Second {
		t.Errorf("%+v", s)
	}
	for _, same := range []string{"postgres://host/db", plain} {
		s := new(Store)
		if rest, err := s.base.Parameters(same, nil); rest != same || err != nil {
			t.Errorf("%s became %s, %v", same, rest, err)
		}
	}
	if rest, err := s.base.Parameters("postgres://host/db?redrive_ddl=on", nil); rest != "postgres://host/db" || !s.base.DDL || err != nil {
		t.Errorf("%s, %t, %v", rest, s.base.DDL, err)
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
