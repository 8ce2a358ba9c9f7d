package redisstream

import (
	"testing"
	"time"

	"github.com/redrive/redrive"
)

func TestMonitor(t *testing.T) {
	s := open(t)
	m, err := s.Monitor(t.Context(), "sms")
	noErr(t, err)
	if m.Entries != 0 || len(m.Consumers) != 0 || m.Dead.Length != 0 {
		t.Fatalf("of nothing: %+v", m)
	}
	publish(t, s, 5)
	one := claim(t, s, ask(2))
	r := ask(1)
	r.Instance, r.Lease = "two", 10*time.Millisecond
	claim(t, s, r)
	settle(t, s, redrive.OutcomeDead, one[0])
	settle(t, s, redrive.OutcomeRetry, one[1])
	again := ask(1)
	again.Lane = redrive.LaneRetry
	claim(t, s, again)
	<-time.After(15 * time.Millisecond)
	m, err = s.Monitor(t.Context(), "sms")
	noErr(t, err)
	if m.Entries != 3 || m.Unclaimed != 2 || m.Indexed != 1 || m.Looked != 2 || !m.Complete || m.Attempts[1] != 1 || m.Attempts[2] != 1 || m.Oldest <= 0 {
		t.Errorf("%+v", m)
	}
	if len(m.Consumers) != 2 || m.Consumers[0].Name != "one" || m.Consumers[0].Leased != 1 || m.Consumers[1].Overdue != 1 || m.Consumers[1].Pending != 1 {
		t.Errorf("%+v", m.Consumers)
	}
	if d := m.Dead; d.Length != 1 || d.LastHour != 1 || d.Oldest <= 0 || s.conn.Version.AtLeast(7, 0) && d.Added != 1 {
		t.Errorf("%+v", d)
	}
}
