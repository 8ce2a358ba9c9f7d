package redrive_test

import (
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

func TestNewIDIsAUUIDv7(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	for range 1000 {
		if id := redrive.NewID(); !form.MatchString(id) || driver.CheckID(id) != nil {
			t.Fatal(id)
		}
	}
}

func TestNewIDIncreases(t *testing.T) {
	last := ""
	for range 100_000 { // more than there are ticks in a millisecond
		id := redrive.NewID()
		if id <= last {
			t.Fatalf("%s after %s", id, last)
		}
		last = id
	}
}

func TestNewIDIncreasesWhileTheClockStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last := redrive.NewID()
		for range 100 {
			if id := redrive.NewID(); id <= last {
				t.Fatalf("%s after %s", id, last)
			} else {
				last = id
			}
		}
		<-time.After(time.Hour)
		if id := redrive.NewID(); id <= last {
			t.Fatalf("an hour later: %s after %s", id, last)
		}
	})
}

func TestNewIDIsUniqueAcrossGoroutines(t *testing.T) {
	const goroutines, each = 8, 2000
	var wg sync.WaitGroup
	ids := make([][]string, goroutines)
	for g := range goroutines {
		wg.Go(func() {
			for range each {
				ids[g] = append(ids[g], redrive.NewID())
			}
		})
	}
	wg.Wait()
	seen := make(map[string]bool, goroutines*each)
	for _, list := range ids {
		for _, id := range list {
			if seen[id] {
				t.Fatal("twice: ", id)
			}
			seen[id] = true
		}
	}
}
