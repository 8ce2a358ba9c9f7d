package telemetry_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/telemetry"
)

// disk is one as the test says.
type disk struct {
	full, unknown error
	free, size    int64
}

func (d *disk) Full() error                 { return d.full }
func (d *disk) FullSince() time.Time        { return time.Time{} }
func (d *disk) Room() (int64, int64, error) { return d.free, d.size, d.unknown }

func TestDisk(t *testing.T) {
	of := &disk{free: 200, size: 1000}
	m := telemetry.New(telemetry.Options{})
	m.Registry().MustRegister(telemetry.NewDisk(of))
	want(t, scrape(t, m), `redrive_store_full 0`, `redrive_store_disk_free_bytes 200`, `redrive_store_disk_size_bytes 1000`)
	of.full, of.unknown = redrive.ErrFull, errors.New("not known here")
	text := scrape(t, m)
	want(t, text, `redrive_store_full 1`)
	if strings.Contains(text, "redrive_store_disk") {
		t.Errorf("what is not known is shown:\n%s", text)
	}
}
