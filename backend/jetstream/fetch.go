package jetstream

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/redrive/redrive"
)

// Bounds of what is fetched and not claimed yet.
const (
	bufferLeast   = 64
	bufferMost    = 4096
	bufferBytes   = 16 << 20
	pullExpires   = 30 * time.Second
	pullHeartbeat = 5 * time.Second
	settledKept   = 16_384
	// suspectFirst is how many deliveries are looked up after a connection was made: a
	// server that crashed has forgotten the deliveries of its last 100 ms.
	suspectFirst = 20_000
	bufferStale  = 2 * time.Second // what stands longer in the buffer was fetched too soon
)

// item is a message of the stream that this process has. Its fields are under the
// source's lock.
type item struct {
	msg   *nats.Msg
	meta  *nats.MsgMetadata
	reply string    // where to acknowledge the newest delivery
	known time.Time // when the server last knew that it is ours
	since time.Time // when it came

	again bool // it may have been claimed before
	// Set when it is claimed:
	receipt  redrive.Receipt
	until    time.Time // end of the lease
	inFlight bool
	naked    bool // given back; the next delivery is another one
}

// pullRequest is what the server is asked.
type pullRequest struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

// pullLocked asks for as much as there is room for, unless what was asked for already
// fills half of it.
func (s *Source) pullLocked() {
	room := s.target - len(s.buffer) - s.asked
	if s.closed || s.resting || s.fault != nil || room < max(s.target/2, 1) || s.bytes > bufferBytes/2 {
		return
	}
	body, err := json.Marshal(pullRequest{Batch: room, MaxBytes: max(bufferBytes, int(s.nc.MaxPayload())+maxOverhead), Expires: pullExpires, Heartbeat: pullHeartbeat})
	if err != nil {
		s.fault = err
		return
	}
	s.pullNo++
	if s.nc.PublishRequest(s.next, s.inbox+strconv.FormatUint(s.pullNo, 10), body) == nil { // else at the reconnection
		s.asked += room
	}
	s.heard = time.Now()
}

// maxOverhead is what a delivery adds to the payload's size, at most.
const maxOverhead = 64 << 10

// arrived is called with each message and each status of the pulls, one after the other.
func (s *Source) arrived(m *nats.Msg) {
	if len(m.Data) == 0 && m.Header != nil {
		if status := m.Header.Get("Status"); status != "" && m.Reply == "" {
			s.status(status, m.Header)
			return
		}
	}
	meta, err := m.Metadata()
	if err != nil {
		return // it is not of a stream
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = now
	s.asked = max(s.asked-1, 0)
	if s.settled.has(meta.Sequence.Stream, meta.Timestamp.UnixNano()) {
		_ = m.Respond([]byte(done)) // its acknowledgement was forgotten
		return
	}
	if old := s.items[meta.Sequence.Stream]; s.resting && (old == nil || !old.inFlight) {
		_ = m.Respond([]byte(nak)) // until the last pull is used up
		return
	}
	it := &item{msg: m, meta: meta, reply: m.Reply, known: now, since: now, again: meta.NumDelivered > 1 || s.checked > 0}
	s.checked = max(s.checked-1, 0)
	if old := s.items[meta.Sequence.Stream]; old != nil && s.renewedLocked(old, it, now) {
		return
	}
	s.items[meta.Sequence.Stream] = it
	s.buffer = append(s.buffer, it)
	s.bytes += len(m.Data)
	if len(s.buffer) == 1 || s.changed != nil {
		s.changeLocked()
	}
	s.pullLocked()
}

// renewedLocked takes a new delivery of what this process has already for a renewal,
// unless its lease has ended or it was given back.
func (s *Source) renewedLocked(old, now *item, at time.Time) bool {
	same := old.meta.Timestamp.Equal(now.meta.Timestamp) // a stream that was made again counts from 1
	switch {
	case same && !old.inFlight, same && !old.naked && at.Before(old.until):
		old.reply, old.known = now.reply, at
		return true
	case old.inFlight:
		s.inFlight--
	default:
		s.dropLocked(old)
	}
	return false
}

// dropLocked takes an item out of the buffer.
func (s *Source) dropLocked(it *item) {
	for i, b := range s.buffer {
		if b == it {
			s.buffer = append(s.buffer[:i], s.buffer[i+1:]...)
			s.bytes -= len(it.msg.Data)
			return
		}
	}
}

// status is what the server says instead of a message.
func (s *Source) status(code string, h nats.Header) {
	left, _ := strconv.Atoi(h.Get("Nats-Pending-Messages"))
	s.mu.Lock()
	s.heard = time.Now()
	switch code {
	case "100": // it lives
		s.mu.Unlock()
		return
	case "408", strconv.Itoa(http.StatusNotFound):
		s.asked = max(s.asked-left, 0)
	case "409":
		if h.Get("Nats-Pending-Messages") == "" { // deleted, another leader, too much in flight
			left = s.asked
		}
		s.asked = max(s.asked-left, 0)
	default:
		s.asked = 0
	}
	ended := code == "408" || code == "409" && h.Get("Nats-Pending-Messages") != ""
	if ended {
		s.pullLocked()
	}
	s.mu.Unlock()
	if !ended {
		s.check() // it pulls when all is well
	}
}
