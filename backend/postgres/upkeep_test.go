package postgres

import (
	"errors"
	"slices"
	"testing"

	"github.com/redrive/redrive/driver"
)

func TestProbeCountsConnections(t *testing.T) {
	list := open(t).Probe(t.Context())
	if at := slices.IndexFunc(list, func(v driver.Finding) bool { return v.Setting == "max_connections" }); at < 0 || list[at].Value == "unknown" {
		t.Errorf("%+v", list)
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
