package main

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A second signal within a second is the first one again: the graceful stop goes on.
func TestTheSameSignalTwiceIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := make(chan os.Signal, 2)
		stops, ended := 0, 0
		go func() { ended = twoSignals(c, func() { stops++ }) }()
		c <- syscall.SIGTERM
		for range 3 {
			c <- syscall.SIGTERM
			<-time.After(300 * time.Millisecond)
		}
		synctest.Wait()
		if stops != 1 || ended != 0 {
			t.Errorf("%d stops, left with %d after signals within a second", stops, ended)
		}
		<-time.After(time.Second)
		c <- syscall.SIGINT
		synctest.Wait()
		if stops != 1 || ended != int(syscall.SIGINT) {
			t.Errorf("%d stops, left with %d after another signal", stops, ended)
		}
	})
}
