package history

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"
)

// recorder keeps the events of a run.
type recorder struct {
	began time.Time
	http  *http.Client

	mu     sync.Mutex
	events []Event
	labels map[string]string // by queue/id, as far as they are known
	next   int               // label
	revs   map[string]int    // edits that were asked for, by label
}

func newRecorder() *recorder {
	return &recorder{
		began: time.Now(), labels: map[string]string{}, revs: map[string]int{},
		http: &http.Client{Timeout: 8 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
	}
}

func (r *recorder) now() time.Duration { return time.Since(r.began) }

// add keeps an event whose End is now.
func (r *recorder) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.N, e.End = len(r.events), r.now()
	if e.ID != "" && e.Label != "" {
		r.labels[e.Queue+"/"+e.ID] = e.Label
	}
	r.events = append(r.events, e)
}

// label returns a new one.
func (r *recorder) label() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next++
	return fmt.Sprintf("m-%d", r.next)
}

// rev returns the number of the next edit of a message.
func (r *recorder) rev(label string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.revs[label]++
	return r.revs[label]
}

// content is what stands in a body.
type content struct {
	Label string `json:"label"`
	Rev   int    `json:"rev"`
	Pad   string `json:"pad"`
}

// body returns the only body that a message has after so many edits.
func body(label string, rev int) string {
	h := fnv.New32()
	_, _ = h.Write([]byte(label)) // never fails
	b, err := json.Marshal(content{label, rev, strings.Repeat("x", int(h.Sum32()%600))})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// read tells what a body says, and whether it is not as it was sent.
func read(text string) (label string, rev int, garbled bool) {
	var c content
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return "unreadable", 0, true
	}
	return c.Label, c.Rev, text != body(c.Label, c.Rev)
}

// call makes one request and tells what is known of its outcome. out is filled when it is
// OK.
func (r *recorder) call(ctx context.Context, method, url string, header map[string]string, in any, out any) (a Answer, note string) {
	var send []byte
	switch in := in.(type) {
	case nil:
	case string:
		send = []byte(in)
	default:
		var err error
		if send, err = json.Marshal(in); err != nil {
			panic(err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(send))
	if err != nil {
		panic(err)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := r.http.Do(req)
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			return Refused, "no connection"
		}
		return Unknown, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return Unknown, err.Error()
	case resp.StatusCode/100 == 2:
		if out != nil {
			if err := json.Unmarshal(text, out); err != nil {
				return Unknown, err.Error()
			}
		}
		return OK, ""
	case resp.StatusCode == http.StatusInternalServerError, resp.StatusCode == http.StatusServiceUnavailable, resp.StatusCode == http.StatusGatewayTimeout:
		return Unknown, problem(text)
	}
	return Refused, problem(text)
}

func problem(text []byte) string {
	var p struct{ Title, Detail string }
	if json.Unmarshal(text, &p) != nil {
		return string(text)
	}
	return strings.TrimSpace(p.Title + " " + p.Detail)
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
