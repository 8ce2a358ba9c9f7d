package series

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/engine"
)

func delivered(s *Series, queue, kind string, took time.Duration) {
	d := &redrive.Delivery{Message: redrive.Message{Queue: queue, Kind: kind}}
	done := &driver.Settlement{Outcome: redrive.OutcomeDone}
	s.Observe(&engine.Observation{Occasion: engine.OnEnd, Queue: queue, Delivery: d, Settlement: done, Duration: took})
	s.Observe(&engine.Observation{Occasion: engine.OnSettled, Queue: queue, Delivery: d, Settlement: done})
}

func TestMinutesOfAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		began := time.Now()
		s.Published("q", 3)
		for i := range 100 {
			took := 10 * time.Millisecond
			if i >= 94 {
				took = time.Second
			}
			delivered(s, "q", "k", took)
		}
		dead := &driver.Settlement{Outcome: redrive.OutcomeDead, Emit: []redrive.Message{{Queue: "other"}}}
		s.Observe(&engine.Observation{Occasion: engine.OnEnd, Queue: "q", Settlement: dead, Err: errors.New("x")})
		s.Observe(&engine.Observation{Occasion: engine.OnSettled, Queue: "q", Settlement: dead})
		<-time.After(2 * time.Minute)
		delivered(s, "q", "k", 0)

		points, since, ok := s.Of("q")
		if !ok || !since.Equal(began) || len(points) != 3 {
			t.Fatalf("%+v since %s, %v", points, since, ok)
		}
		if p := points[0]; p.Published != 3 || p.Delivered != 100 || p.Failed != 1 || p.Dead != 1 || p.P95 < time.Second || p.P95 > 1200*time.Millisecond {
			t.Errorf("%+v", p)
		}
		if points[1] != (Point{Start: points[0].Start.Add(time.Minute)}) || points[2].Delivered != 1 || points[2].P95 != time.Millisecond {
			t.Errorf("%+v", points[1:])
		}
		if points, _, _ := s.Of("other"); points[0].Published != 1 {
			t.Errorf("what a settlement publishes: %+v", points)
		}
		if points, since, ok := s.Of("unused"); !ok || !since.Equal(began) || len(points) != 3 {
			t.Errorf("of a queue without messages: %+v", points)
		}

		// After an hour the first is gone, and its place is taken.
		<-time.After(58 * time.Minute)
		points, _, _ = s.Of("q")
		if len(points) != Minutes || points[0].Delivered != 0 || points[1].Delivered != 1 {
			t.Errorf("%d, %+v", len(points), points[:3])
		}
		if sum := s.In("q", nil, map[string]bool{"k": true}, time.Now()); sum != (Sum{}) {
			t.Errorf("of the last quarter of an hour: %+v", sum)
		}
	})
}

func TestOnlySoManyQueuesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		began := time.Now()
		for i := range MaxQueues + 1 {
			s.Published(fmt.Sprint(i), 1)
		}
		if _, _, ok := s.Of("0"); !ok {
			t.Error("the first is not counted")
		}
		if _, _, ok := s.Of(fmt.Sprint(MaxQueues)); ok {
			t.Error("there is no bound")
		}
		// In an hour they are idle, and make room for one that says since when it is counted.
		<-time.After(time.Hour + time.Minute)
		s.Published("late", 1)
		points, since, ok := s.Of("late")
		if !ok || !since.After(began) || len(points) != 1 || len(s.queues) != 1 {
			t.Errorf("%+v since %s, %v, of %d queues", points, since, ok, len(s.queues))
		}
	})
}

// Of kinds beyond so many nothing is known, and after a quarter of an hour nothing is kept.
func TestKindsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		for i := range kinds + 1 {
			delivered(s, "q", fmt.Sprint(i), 0)
		}
		sum := s.In("q", nil, map[string]bool{"0": true, fmt.Sprint(kinds): true}, time.Now())
		if sum.Delivered != kinds+1 || sum.KindDelivered != 1 || sum.Minutes != 1 {
			t.Errorf("%+v", sum)
		}
		<-time.After(KindMinutes * time.Minute)
		delivered(s, "q", "k", 0)
		kept := 0
		for i := range s.queues["q"].minutes {
			kept += len(s.queues["q"].minutes[i].kinds)
		}
		if kept != 1 {
			t.Errorf("%d kinds are kept", kept)
		}
	})
}

func TestQuantiles(t *testing.T) {
	for _, want := range []time.Duration{time.Microsecond, time.Millisecond, 7 * time.Millisecond, 300 * time.Millisecond, 5 * time.Second, 10 * time.Minute} {
		var d durations
		d.add(want)
		got := d.quantile(0.95)
		if got < want || got > max(want*12/10, time.Millisecond) {
			t.Errorf("%s shows as %s", want, got)
		}
	}
}
