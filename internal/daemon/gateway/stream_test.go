package gateway_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/daemon/gateway"
	"github.com/redrive/redrive/internal/problem"
)

// result is a line of the answer.
type result struct {
	Line   int
	ID     string
	Status string
	Error  *problem.Problem
}

func ndjson(body io.Reader, headers ...string) *http.Request {
	return post(body, append(headers, "Content-Type", "application/x-ndjson; charset=utf-8")...)
}

func results(t *testing.T, r io.Reader) (all []result) {
	t.Helper()
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields()
	for {
		var v result
		if err := dec.Decode(&v); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
}

func TestBrokenLineSevenCostsOnlyItself(t *testing.T) {
	var body strings.Builder
	for i := 1; i <= 10; i++ {
		if i == 7 {
			body.WriteString("{\"body\":{\"n\":7\n")
			continue
		}
		fmt.Fprintf(&body, "{\"id\":\"m-%d\",\"body\":{\"n\":%d}}\r\n\n", i, i)
	}
	s := new(sink)
	w := serve(mount(s, gateway.Options{}), ndjson(strings.NewReader(body.String())))
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("got %d %v", w.Code, w.Header())
	}
	got := results(t, w.Body)
	if len(got) != 10 || len(s.published()) != 9 {
		t.Fatalf("%d results, %d published", len(got), len(s.published()))
	}
	for i, v := range got {
		switch {
		case i == 6:
			if v.Status != "error" || v.Error.Name() != "invalid-line" || v.Line != 13 {
				t.Errorf("line 7: %+v", v)
			}
		case v.Status != "accepted" || v.ID != fmt.Sprintf("m-%d", i+1):
			t.Errorf("line %d: %+v", i+1, v)
		}
	}
}

func TestResultsOfAStream(t *testing.T) {
	s := &sink{answer: func(msgs []redrive.Message) []error {
		errs := make([]error, len(msgs))
		for i := range msgs {
			errs[i] = map[string]error{"dup": redrive.ErrDuplicate, "other": redrive.ErrConflict, "full": redrive.ErrBacklogged}[msgs[i].ID]
		}
		return errs
	}}
	w := serve(mount(s, gateway.Options{MaxBody: 100}), ndjson(strings.NewReader(`{"id":"dup"}
{"id":"other"}
{"id":"full"}
{"id":"a.b"}
{"body":"`+strings.Repeat("x", 101)+`"}
{"body":"`+strings.Repeat("x", 300_000)+`"}
{"id":"ok"}`)))
	var got []string
	for _, v := range results(t, w.Body) {
		s := fmt.Sprint(v.Line, " ", v.Status)
		if v.Error != nil {
			s += fmt.Sprint(" ", v.Error.Status, " ", v.Error.Name())
		}
		got = append(got, s)
	}
	want := "1 duplicate, 2 error 409 conflict, 3 error 429 backlogged, 4 error 400 invalid, 5 error 413 oversize, 6 error 413 oversize, 7 accepted"
	if strings.Join(got, ", ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), want)
	}
}

func TestIdsAreDerivedFromTheIdempotencyKey(t *testing.T) {
	s := new(sink)
	for range 2 {
		serve(mount(s, gateway.Options{}), ndjson(strings.NewReader("{}\n\n{\"id\":\"mine\"}\n{}"), "Idempotency-Key", `"k"`))
	}
	var got []string
	for _, m := range s.published() {
		got = append(got, m.ID)
	}
	once := []string{driver.DeriveID("k", "1"), "mine", driver.DeriveID("k", "4")}
	if want := strings.Join(append(once, once...), " "); strings.Join(got, " ") != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAStreamIsRefusedAboveTheBacklogLimit(t *testing.T) {
	s := &sink{level: driver.LevelRefused}
	w := serve(mount(s, gateway.Options{}), ndjson(strings.NewReader("{}")))
	wantProblem(t, w, 429, "backlogged")
}

func TestABrokenBodyDoesNotPublishItsTornLine(t *testing.T) {
	s := new(sink)
	body := io.MultiReader(strings.NewReader("{\"id\":\"whole\"}\n{}"), broken{})
	got := results(t, serve(mount(s, gateway.Options{}), ndjson(body)).Body)
	if len(got) != 2 || got[0].Status != "accepted" || got[1].Line != 2 || got[1].Error.Name() != "broken-body" || len(s.published()) != 1 {
		t.Errorf("got %+v", got)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestReadingGoesOnWhileABatchCommits(t *testing.T) {
	read, commit := make(chan struct{}), make(chan struct{})
	first := true
	s := &sink{answer: func([]redrive.Message) []error {
		if first {
			first = false
			<-commit
		}
		return nil
	}}
	body := io.MultiReader(strings.NewReader("{}\n"), signal{read}, strings.NewReader("{}\n"))
	done := make(chan *httptest.ResponseRecorder)
	go func() { done <- serve(mount(s, gateway.Options{}), ndjson(body)) }()
	<-read // the second part is asked for although the first is not committed
	close(commit)
	if got := results(t, (<-done).Body); len(got) != 2 {
		t.Errorf("got %+v", got)
	}
}

// signal tells that it was read.
type signal struct{ c chan struct{} }

func (s signal) Read([]byte) (int, error) { close(s.c); return 0, io.EOF }

func TestASlowSenderIsAnsweredLineByLine(t *testing.T) {
	server := httptest.NewServer(mount(new(sink), gateway.Options{}))
	defer server.Close()
	body, send := io.Pipe()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/queues/sms/messages", body)
	r.Header.Set("Content-Type", "application/x-ndjson")
	go func() { _, _ = io.WriteString(send, "{\"id\":\"m-1\"}\n") }()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for i := 1; i <= 3; i++ {
		if want := fmt.Sprintf(`{"line":%d,"id":"m-%d","status":"accepted"}`, i, i); !lines.Scan() || lines.Text() != want {
			t.Fatalf("got %q, want %q", lines.Text(), want)
		}
		if _, err := fmt.Fprintf(send, "{\"id\":\"m-%d\"}\n", i+1); err != nil {
			t.Fatal(err)
		}
	}
	send.Close()
	if !lines.Scan() || lines.Scan() {
		t.Error("the stream does not end with its fourth line")
	}
}

func TestDrainEndsAStreamAtItsLine(t *testing.T) {
	g := gateway.New(new(sink), gateway.Options{})
	mux := http.NewServeMux()
	mux.Handle("POST "+path, g)
	server := httptest.NewServer(mux)
	defer server.Close()
	body, send := io.Pipe()
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v1/queues/sms/messages", body)
	r.Header.Set("Content-Type", "application/x-ndjson")
	go func() { _, _ = io.WriteString(send, "{\"id\":\"m-1\"}\n{\"id\":\"to") }()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	g.Drain()
	got := results(t, resp.Body)
	if len(got) != 2 || got[0].Status != "accepted" || got[1].Line != 2 || got[1].Error.Name() != "shutting-down" {
		t.Errorf("got %+v", got)
	}
	wantProblem(t, serve(mux, post(strings.NewReader("x"))), 503, "shutting-down")
}

func TestAPanicOfTheSinkEndsTheStreamOnly(t *testing.T) {
	s := &sink{answer: func([]redrive.Message) []error { panic("disk") }}
	var lines strings.Builder
	for range 5000 {
		lines.WriteString("{}\n")
	}
	if w := serve(mount(s, gateway.Options{}), ndjson(strings.NewReader(lines.String()))); strings.Contains(w.Body.String(), "accepted") {
		t.Errorf("got %s", w.Body)
	}
}

func TestAClientThatDoesNotReadItsResultsEndsTheStream(t *testing.T) {
	w := &deaf{ResponseRecorder: httptest.NewRecorder()}
	mount(new(sink), gateway.Options{}).ServeHTTP(w, ndjson(&repeat{line: "{}\n", left: 1 << 40}))
}

// deaf is a client that cannot be written to.
type deaf struct{ *httptest.ResponseRecorder }

func (*deaf) Write([]byte) (int, error) { return 0, errors.New("timeout") }

// repeat yields a line again and again.
type repeat struct {
	line string
	at   int
	left int64
}

func (r *repeat) Read(p []byte) (n int, err error) {
	for n < len(p) && r.left > 0 {
		c := copy(p[n:], r.line[r.at:])
		r.at = (r.at + c) % len(r.line)
		n, r.left = n+c, r.left-int64(c)
	}
	if r.left <= 0 {
		return n, io.EOF
	}
	return n, nil
}

// counting accepts everything, keeps nothing and watches the heap.
type counting struct {
	sink
	n    int
	peak uint64
}

func (c *counting) count(msgs []redrive.Message) []error {
	if c.n += len(msgs); c.n/100_000 != (c.n-len(msgs))/100_000 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		c.peak = max(c.peak, m.HeapInuse)
	}
	c.msgs = c.msgs[:0]
	return nil
}

// discard is a client that reads and forgets its results.
type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

func TestALongBodyTakesBoundedMemory(t *testing.T) {
	size := int64(longBody)
	if testing.Short() {
		size = 64 << 20
	}
	c := new(counting)
	c.answer = c.count
	line := `{"id":"x","body":"` + strings.Repeat("x", 1000) + "\"}\n"
	size -= size % int64(len(line))
	mount(c, gateway.Options{}).ServeHTTP(discard{http.Header{}}, ndjson(&repeat{line: line, left: size}))
	if want := int(size / int64(len(line))); c.n != want {
		t.Errorf("%d messages, want %d", c.n, want)
	}
	if c.peak > 64<<20 {
		t.Errorf("the heap grew to %d MiB", c.peak>>20)
	}
	t.Logf("%d messages, %d MiB of heap", c.n, c.peak>>20)
}
