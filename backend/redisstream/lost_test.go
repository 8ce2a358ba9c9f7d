package redisstream

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// others add entries to a queue's stream.
func others(t *testing.T, s *Store, stream string, n int) {
	t.Helper()
	for range n {
		noErr(t, s.conn.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, Values: []string{"body", "x"}}).Err())
	}
}

// lacks checks that the counters and a scan say that so many messages are gone.
func lacks(t *testing.T, s *Store, want int64) {
	t.Helper()
	audits, err := s.Verify(t.Context(), "sms")
	noErr(t, err)
	a := &audits[0]
	if said := strings.Contains(strings.Join(a.Problems, ";"), "deleted or trimmed by another client"); a.Imbalance() != want || said != (want > 0) {
		t.Errorf("it lacks %d, want %d: %q, %+v", a.Imbalance(), want, a.Problems, a.Ledger)
	}
	counts, err := s.Counts(t.Context(), "sms")
	noErr(t, err)
	if c := &counts[0]; c.Ledger.Entered()-c.Ledger.Left()-c.AllWaiting()-c.AllDead() != want {
		t.Errorf("the counters lack another number than %d: %+v", want, c)
	}
}

// What others trim of what others added is missed, although nobody here has seen it; an
// acknowledgement counts it as dropped, and a second loss is seen.
func TestWhatOthersTrimIsMissed(t *testing.T) {
	s := open(t)
	stream := s.queue("sms").keys[keyStream]
	others(t, s, stream, 10)
	if tally, err := s.tally(t.Context(), s.queue("sms")); err != nil || tally.added < 0 {
		t.Skip("the server does not count what is added to a stream", err)
	}
	lacks(t, s, 0)
	noErr(t, s.conn.XTrimMaxLen(t.Context(), stream, 6).Err())
	lacks(t, s, 4)
	publish(t, s, 3) // what others took away is not made up for by what is ours, and the reverse
	settle(t, s, redrive.OutcomeDone, claim(t, s, ask(2))...)
	lacks(t, s, 4)
	acknowledged := func(want int64) {
		t.Helper()
		if n, err := s.AcknowledgeLoss(t.Context(), "sms"); n != want || err != nil {
			t.Errorf("acknowledged %d, %v, want %d", n, err, want)
		}
		lacks(t, s, 0)
	}
	acknowledged(4)
	acknowledged(0)
	others(t, s, stream, 5)
	noErr(t, s.conn.XTrimMaxLen(t.Context(), stream, 9).Err()) // of 4 + 3 + 5
	lacks(t, s, 3)
	acknowledged(3)

	// What is in flight and ends as if nothing had happened was not lost.
	ds := claim(t, s, ask(2))
	noErr(t, s.conn.XTrimMaxLen(t.Context(), stream, 7).Err())
	lacks(t, s, 2)
	settle(t, s, redrive.OutcomeDone, ds...)
	lacks(t, s, 0)
	// The server begins to count anew with a stream that is deleted.
	noErr(t, s.conn.Del(t.Context(), stream).Err())
	audits, err := s.Verify(t.Context(), "sms")
	noErr(t, err)
	if !strings.Contains(strings.Join(audits[0].Problems, ";"), "the stream was deleted") {
		t.Errorf("%+v", audits[0])
	}
	_, err = s.AcknowledgeLoss(t.Context(), "sms")
	noErr(t, err)
	others(t, s, stream, 4)
	lacks(t, s, 0)
	noErr(t, s.conn.XTrimMaxLen(t.Context(), stream, 1).Err())
	lacks(t, s, 3)
	settle(t, s, redrive.OutcomeDone, claim(t, s, ask(5))...)
	acknowledged(3)
}

func TestLossOfPartitionsIsAcknowledged(t *testing.T) {
	s := openParts(t, 4)
	for range 4 {
		publish(t, s, 10) // to the partitions in turn
	}
	for _, q := range s.everywhere("sms") {
		noErr(t, s.conn.XTrimMaxLen(t.Context(), q.keys[keyStream], 1).Err())
	}
	power, ok := driver.As[driver.LossyStore](driver.Store(s))
	if !ok {
		t.Fatal("it cannot")
	}
	lacks(t, s, 36)
	if n, err := power.AcknowledgeLoss(t.Context(), "sms"); n != 36 || err != nil {
		t.Error(n, err)
	}
	lacks(t, s, 0)
	if _, err := power.AcknowledgeLoss(t.Context(), "no queue"); err == nil {
		t.Error("the name is none")
	}
}

// More messages than the ledger says are no loss: nothing is written.
func TestWhatIsTooManyIsNoLoss(t *testing.T) {
	s := open(t)
	publish(t, s, 3)
	q := s.everywhere("sms")[0]
	noErr(t, s.conn.HIncrBy(t.Context(), q.keys[keyCounters], "done", 2).Err())
	before := s.conn.HGetAll(t.Context(), q.keys[keyCounters]).Val()
	if n, err := s.AcknowledgeLoss(t.Context(), "sms"); n != 0 || !errors.Is(err, redrive.ErrInvalid) || !strings.Contains(err.Error(), "2 more") {
		t.Error(n, err)
	}
	if after := s.conn.HGetAll(t.Context(), q.keys[keyCounters]).Val(); !maps.Equal(before, after) {
		t.Errorf("%v, then %v", before, after)
	}
}
