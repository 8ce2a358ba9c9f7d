package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redrive/redrive/delivery/receiver"
	"github.com/redrive/redrive/internal/wire"
)

// proofQueue is where a history is published to.
const proofQueue = "hooks"

// outcome is what a publisher knows of one request.
type outcome string

const (
	accepted outcome = "accepted"
	refused  outcome = "refused" // nothing was stored, for certain
	unknown  outcome = "unknown" // the answer did not come: it may be stored or not
)

// history is what publishers did, kept outside of the daemon.
type history struct {
	t      *testing.T
	urls   []string // of the daemons; each request goes to one of them
	client *http.Client

	mu       sync.Mutex
	file     *json.Encoder // for looking at by hand
	number   int
	accepted map[string]string  // the body's hash by id
	sent     map[string]outcome // of a body, by its hash: the best known
	counts   map[outcome]int
	other    map[string]int // answers that are neither accepted nor expected
}

// event is a line of the history's file.
type event struct {
	Time    time.Time `json:"time"`
	What    outcome   `json:"what"`
	ID      string    `json:"id,omitempty"`
	Body    string    `json:"body,omitempty"`
	Delayed bool      `json:"delayed,omitempty"`
	Note    string    `json:"note,omitempty"`
}

func newHistory(t *testing.T, daemons ...*daemon) *history {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "history.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	h := &history{
		t: t, file: json.NewEncoder(f),
		client:   &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
		accepted: make(map[string]string), sent: make(map[string]outcome), counts: make(map[outcome]int), other: make(map[string]int),
	}
	for _, d := range daemons {
		h.urls = append(h.urls, d.url+"/v1/queues/"+proofQueue+"/messages")
	}
	t.Cleanup(func() {
		h.client.CloseIdleConnections()
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// publish publishes from n goroutines until stop is called. Half of the messages have
// an id of ours, and are sent again while it is unknown what became of them; a third
// waits a while before it is delivered, so that there always is a backlog.
func (h *history) publish(n int, random *rand.Rand) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range n {
		own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
		all.Go(func() {
			for ctx.Err() == nil {
				h.publishOne(ctx, own)
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

func (h *history) publishOne(ctx context.Context, random *rand.Rand) {
	h.mu.Lock()
	h.number++
	number := h.number
	h.mu.Unlock()
	body := fmt.Sprintf("%d %s", number, bytes.Repeat([]byte{'x'}, random.IntN(2000)))
	var id, delay string
	if random.IntN(2) == 0 {
		id = fmt.Sprintf("own-%d", number)
	}
	if random.IntN(3) == 0 {
		delay = fmt.Sprintf("%dms", 100+random.IntN(1500))
	}
	for h.send(h.urls[random.IntN(len(h.urls))], id, delay, body) == unknown && id != "" && pause(ctx, 10*time.Millisecond) {
		continue
	}
	pause(ctx, time.Duration(random.IntN(6))*time.Millisecond)
}

// pause waits, and reports whether to go on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// send makes one request. It is not cancelled, so that its outcome is known if it can
// be.
func (h *history) send(url, id, delay, body string) outcome {
	sum := sha256.Sum256([]byte(body))
	hash := hex.EncodeToString(sum[:])
	req, err := http.NewRequest(http.MethodPost, url, bytes.NewReader([]byte(body)))
	if err != nil {
		panic(err)
	}
	if id != "" {
		req.Header.Set("Redrive-Id", id)
	}
	if delay != "" {
		req.Header.Set("Redrive-Delay", delay)
	}
	var note string
	what := unknown
	if resp, err := h.client.Do(req); err != nil {
		if note = err.Error(); errors.Is(err, syscall.ECONNREFUSED) {
			what = refused
		}
	} else {
		what, id, note = answerOf(resp, id)
	}
	h.record(event{Time: time.Now(), What: what, ID: id, Body: hash, Delayed: delay != "", Note: note})
	return what
}

// answerOf reads an answer. One that did not come whole says nothing.
func answerOf(resp *http.Response, id string) (what outcome, found, note string) {
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return unknown, id, err.Error()
	}
	switch resp.StatusCode {
	case http.StatusAccepted:
		var a wire.Accepted
		if err := json.Unmarshal(text, &a); err != nil {
			return unknown, id, err.Error()
		}
		return accepted, a.ID, ""
	case http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return unknown, id, string(text) // the store failed, perhaps after it had written
	}
	return refused, id, resp.Status + " " + string(text)
}

func (h *history) record(e event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[e.What]++
	switch before := h.sent[e.Body]; {
	case e.What == accepted:
		h.accepted[e.ID] = e.Body
		h.sent[e.Body] = accepted
	case before == "" || before == refused:
		h.sent[e.Body] = e.What
	}
	if e.What == refused && e.Note != "" && e.Note[0] >= '0' && e.Note[0] <= '9' { // an HTTP status
		h.other[e.Note]++
	}
	_ = h.file.Encode(e) // only for looking at
}

// note puts a fault into the history's file.
func (h *history) note(text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.file.Encode(event{Time: time.Now(), Note: text}) // only for looking at
}

// check compares what was acknowledged with what the receiver saw and the store
// says, when nothing waits any more. A store that may forget what it did not sync may
// forget a message that was delivered, though not one that was acknowledged: claims
// need not wait for the sync that the publisher waits for.
func (h *history) check(d *daemon, target string, forgets bool) {
	h.t.Helper()
	until(h.t, "nothing waits any more", 2*time.Minute, func() bool { return d.queue(proofQueue).Waiting.All == 0 })
	seen := effects(h.t, target)
	lost, changed, phantoms, again, forgettable := 0, 0, 0, 0, 0
	for id, hash := range h.accepted {
		switch m, ok := seen[id]; {
		case !ok || m.Accepted == 0:
			if lost++; lost <= 5 {
				h.t.Errorf("%s was acknowledged and is lost", id)
			}
		case m.SHA256 != hash:
			changed++
		}
	}
	for id, m := range seen {
		switch what := h.sent[m.SHA256]; what {
		case accepted:
		case unknown:
			if forgets {
				forgettable++
			}
		default:
			if phantoms++; phantoms <= 5 {
				h.t.Errorf("%s was delivered, but its publish is %q", id, what)
			}
		}
		again += max(0, m.Accepted-1)
	}
	q := d.queue(proofQueue)
	h.t.Logf("%d accepted, %d refused, %d unknown; %d lost, %d changed, %d phantoms; %d of %d messages delivered, %d deliveries repeated, %d dead",
		len(h.accepted), h.counts[refused], h.counts[unknown], lost, changed, phantoms, len(seen), q.Ledger.Entered, again, q.Dead)
	if lost+changed+phantoms > 0 {
		h.t.Errorf("%d acknowledged messages are lost, %d changed, %d are phantoms", lost, changed, phantoms)
	}
	if len(h.accepted) == 0 {
		h.t.Error("nothing was accepted, so nothing was proved")
	}
	for answer, n := range h.other {
		h.t.Errorf("%d publishes were answered %s", n, answer)
	}
	if q.Dead != 0 || q.Ledger.Done < int64(len(h.accepted)) || q.Ledger.Done > int64(len(seen)) || q.Ledger.Done < int64(len(seen)-forgettable) {
		h.t.Errorf("the store counts %d done and %d dead; %d were accepted and %d delivered, of which it may have forgotten %d",
			q.Ledger.Done, q.Dead, len(h.accepted), len(seen), forgettable)
	}
	if v := decode[wire.Verified](h.t, d.redrive("verify", "--scan", "--json").ok(h.t)); !v.Balanced {
		h.t.Errorf("the ledger does not balance: %+v", v)
	}
}

// effects reads what the receiver saw, by id.
func effects(t *testing.T, target string) map[string]receiver.MessageStats {
	t.Helper()
	resp, err := http.Get(target + receiver.PathIDs)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	seen := make(map[string]receiver.MessageStats)
	for lines := json.NewDecoder(resp.Body); ; {
		var m receiver.MessageStats
		if err := lines.Decode(&m); errors.Is(err, io.EOF) {
			return seen
		} else if err != nil {
			t.Fatal(err)
		}
		seen[m.ID] = m
	}
}

// proofConfig delivers to a target that fails some requests. Nothing may end dead:
// neither kills nor failures.
func proofConfig(target string) string {
	return fmt.Sprintf(`
log: {level: error}
queues:
  %s:
    deliver: {url: "%s/hook", timeout: 5s, allow_private: true}
    policy: {max_attempts: 1000, max_crashes: 1000, backoff: {type: fixed, interval: 30ms}}
`, proofQueue, target)
}
