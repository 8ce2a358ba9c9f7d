package client

import (
	"strings"
	"testing"
)

// TestResumeOfAnEarlierProcess: the server accepted more than the process that ended had
// heard of. The next message gets a number that was not used.
func TestResumeOfAnEarlierProcess(t *testing.T) {
	m := newMachine(0)
	m.session, m.token, m.attempt, m.acked, m.next = "s", "t", 1, 5, 6
	m.hello()
	if _, err := m.take([]byte(`{"type":"welcome","session":"s","token":"t","resumed":true,"epoch":2,"seq":7,"limit":20,"max_frame":1000}`)); err != nil {
		t.Fatal(err)
	}
	ticket, err := m.add(&Message{Queue: "q"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	frames := m.due(10)
	if ticket.seq != 8 || len(frames) != 1 || !strings.Contains(string(frames[0]), `"seq":8`) {
		t.Errorf("number %d, frames %q", ticket.seq, frames)
	}
}
