package mysql

import (
	"testing"

	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/faulttest"
)

func TestFixedIntervalAmongInstances(t *testing.T) {
	s := open(t)
	faulttest.FixedInterval(t, s, func() driver.Store { return connect(t, s) })
	faulttest.Audited(t, s)
}

// The server's clock decides. That of this process may be an hour off it.
func TestClocksMayDiffer(t *testing.T) {
	for _, off := range []string{"1", "-1"} {
		s := open(t, func(s *Store) {
			s.sql.Replace("UTC_TIMESTAMP(6)", "(UTC_TIMESTAMP(6) + INTERVAL "+off+" HOUR)")
		})
		faulttest.Clocks(t, s)
		faulttest.Audited(t, s)
	}
}
