package driver_test

import (
	"strings"
	"testing"

	"github.com/redrive/redrive/driver"
)

func TestFailureDamagedHistory(t *testing.T) {
	if f := driver.DecodeFailure(nil); f != nil || driver.EncodeFailure(nil) != nil {
		t.Error("nothing is something")
	}
	f := driver.DecodeFailure([]byte("{damaged\x00"))
	if f == nil || !strings.Contains(f.Message, "damaged") || strings.Contains(f.Message, "\x00") {
		t.Errorf("%+v", f)
	}
}
