package sqlstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive/backend/memory"
	"github.com/redrive/redrive/driver"
)

// A process that folded has died. When its record ends depends on the server's clock, which may
// have gone back by an hour since.
func TestWhoFoldsAfterTheClockWentBack(t *testing.T) {
	for _, c := range []struct {
		name  string
		left  time.Duration // of the record
		after time.Duration // somebody folds
	}{
		{"the clock goes on", foldLease, foldLease + 2*foldEvery},
		{"it went back by an hour", time.Hour + foldLease, 2 * foldEvery},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memory.New()
				defer func() { _ = s.Close() }()
				if _, err := s.Apply(t.Context(), driver.Batch{Records: []driver.RecordWrite{
					{Space: foldSpace, Key: foldKey, Value: []byte("dead"), Version: driver.AnyVersion, Expires: c.left},
				}}); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				began, folded := time.Now(), make(chan time.Duration, 1)
				go Fold(ctx, s, "alive", func(context.Context) (bool, error) {
					select {
					case folded <- time.Since(began):
					default:
					}
					return false, nil
				})
				<-time.After(2 * time.Hour) // of the bubble
				select {
				case after := <-folded:
					if after > c.after {
						t.Errorf("folded after %s, want at most %s", after, c.after)
					}
				default:
					t.Error("nobody folds")
				}
			})
		})
	}
}
