package postgres

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
