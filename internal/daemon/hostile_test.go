package daemon_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
	"github.com/redrive/redrive/internal/mariadbtest"
	"github.com/redrive/redrive/internal/pgtest"
	"github.com/redrive/redrive/internal/problem"
	"github.com/redrive/redrive/internal/redistest"
	"github.com/redrive/redrive/internal/wire"
)

// hostileValues stand in paths and query strings, escaped.
var hostileValues = []string{"", "%00", "a%00b", "%FF", "%ED%A0%80", "%C0%AF", "..", "%2e%2e", "%2e%2e%2fetc", "..%5c", "a%2fb", "%", "%zz", "-1", "0", "99999999999999999999", "1e400", "NaN",
	"-9223372036854775808", "%27%20OR%201=1--", "%24%7Bx%7D", "%0d%0aX:y", "%F0%9F%92%A9", "_results", strings.Repeat("a", 5000), "2026-13-01T00:00:00Z", "9999999h", "-1h", "0001-01-01T00:00:00Z", "99999-01-01T00:00:00Z"}

// hostileBodies are bodies of requests.
var hostileBodies = []string{"", "null", "true", "[]", "{}", "\"\"", "\x00", "{\"\x00\":1}", "{\"queue\":\"\xff\"}", strings.Repeat("[", 10_000), strings.Repeat("{\"a\":", 10_000), strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000),
	"{\"max\":1e400}", "{\"max\":-1}", "{\"max\":99999999999999999999}", "{\"max\":1.5}", "{\"lease\":\"-1h\"}", "{\"lease\":\"9999999h\"}", "{\"lease\":\"\\u0000\"}", "{\"kinds\":[\"\\u0000\"]}", "{\"worker\":\"\\u0000\\uD800\"}",
	"{\"action\":\"redrive\",\"action\":\"drop\"}", "{\"action\":\"redrive\",\"all\":true,\"dry_run\":true,\"filter\":{\"text\":\"\\u0000\"}}", "{\"action\":\"redrive\",\"filter\":{\"queue\":\"q\",\"since\":\"99999-01-01T00:00:00Z\"},\"dry_run\":true}",
	"{\"action\":\"move\",\"to\":\"..\",\"filter\":{\"queue\":\"q\"}}", "{\"action\":\"redrive\",\"rate\":\"1e400/s\",\"filter\":{\"queue\":\"q\"},\"dry_run\":true}", "{\"action\":\"redrive\",\"refs\":[\"q/\\u0000\",\"..\",\"q/none\"]}",
	"{\"receipts\":[\"\",\"\\u0000\",\"x\"]}", "{\"settlements\":[{\"receipt\":\"\\u0000\",\"outcome\":\"done\"},{\"outcome\":\"x\"}]}", "{\"settlements\":[null]}", "{\"kind\":\"\\u0000\"}", "{\"kind\":\"\\uD800\",\"key\":\"\\u202e\"}", "{\"headers\":[[\"a\",\"\\u0000\"]]}", "{\"headers\":[[\"\\r\\n\",\"a\"]]}",
	"{\"body_base64\":\"!\"}", "{\"reason\":\"\\u0000\",\"for\":\"1h\"}", "{\"reason\":\"x\",\"for\":\"-1s\",\"target\":\"\\u0000\"}", "{\"provider\":\"\\u0000\",\"state\":\"healthy\"}",
	"{\"id\":\"a\\u0000\",\"body\":1}", "{\"id\":\"n\",\"delay\":\"-1s\"}", "{\"id\":\"n\",\"delay\":\"9999999h\"}", "{\"id\":\"n2\",\"deliver_at\":\"9999-12-31T23:59:59Z\",\"body\":1}", "{\"id\":\"n3\",\"expires_at\":\"0001-01-01T00:00:00Z\",\"body\":1}", "{\"key\":\"\\u0000\",\"body\":1}\n{\"kind\":\"\xff\",\"body\":1}\n\n{\"body\":",
	"{\"specversion\":\"1.0\",\"id\":\"\\u0000\",\"source\":\"\",\"type\":\"t\"}", "[{\"specversion\":\"1.0\",\"id\":\"1\",\"source\":\"/\",\"type\":\"t\",\"time\":\"x\"}]", "{\"queue\":\"q\",\"id\":\"d\",\"state\":\"dead\",\"reason\":\"exhausted\",\"died_at\":\"99999-01-01T00:00:00Z\"}", "{\"queue\":\"q\",\"id\":\"d2\",\"state\":\"dead\",\"history\":{}}", strings.Repeat("x", 200_000)}

var hostileTypes = []string{"", "application/json", "application/x-ndjson", "application/cloudevents+json", "application/cloudevents-batch+json", "a/b;;", "text/plain; charset=\xff"}

var hostileHeaders = []string{"Redrive-Id: ../x", "Redrive-Id: \xff", "Redrive-Delay: -1s", "Redrive-Delay: 1e400s", "Redrive-Deliver-At: 99999-01-01T00:00:00Z", "Redrive-Kind: " + strings.Repeat("k", 200), "Redrive-Key: \xff\xfe", "Redrive-Header-A: \xff", "Redrive-Unknown: x",
	"Redrive-Reply-To: http://169.254.169.254/", "Idempotency-Key: \"", "Content-Encoding: gzip", "Expect: 200-maybe", "Authorization: Bearer \xff", "Cookie: " + strings.Repeat("c", 10_000), "X-Huge: " + strings.Repeat("h", 40_000), "Ce-Id: \xff\r\nCe-Specversion: 1.0", "Upgrade: websocket\r\nConnection: Upgrade",
	"Traceparent: 00-\xff", "Range: bytes=0-1,2-3,4-5", "Accept: \x7f", "Origin: null", "Host: evil.example", " folded: x"}

// hostileRaw are whole requests after their first line: bodies that lie about themselves.
var hostileRaw = []string{"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n", "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx", "Transfer-Encoding: chunked\r\n\r\n5\r\nab",
	"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "Content-Length: -1\r\n\r\n", "Content-Length: 99999999999999999999\r\n\r\n", "Content-Length: 10\r\n\r\nabc", "Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc", "A\x00: b\r\n\r\n", "Content-Length: 1\r\n\r\n{}{}{}"}

// Whatever is sent to any route, on any store: the answer is no fault of the daemon's, comes at
// all, and is a problem with a known name where it is an error. On servers a tenth is sent, all
// where REDRIVE_PROOF_ROUNDS is set.
func TestHostileRequests(t *testing.T) {
	known := problemNames(t)
	for name, open := range map[string]func(*testing.T) string{
		"SQLite":     func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "data") },
		"PostgreSQL": func(t *testing.T) string { return pgtest.Start(t, nil).URL() },
		"MariaDB": func(t *testing.T) string {
			return mariadbtest.Start(t, mariadbtest.Relaxed()).URL(mariadbtest.Database)
		},
		"Redis": func(t *testing.T) string { return redistest.Start(t, redistest.Options{}).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && name != "SQLite" {
				t.Skip("one store will do")
			}
			d := start(t, parse(t, fmt.Sprintf("{store: %q, grace: 100ms, queues: {q: {}, g: {deliver: {url: \"http://127.0.0.1:1\", allow_private: true}, guard: {}}}}", open(t))), nil)
			h := &hostile{d: d, known: known, counts: make(map[int]int), share: 1}
			if os.Getenv("REDRIVE_PROOF_ROUNDS") == "" && name != "SQLite" {
				h.share = 10
			}
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			h.r = rand.New(rand.NewPCG(seed, 4))
			get[wire.Accepted](d, 202, http.MethodPost, "/v1/queues/q/messages", "x", "redrive-id", "m")
			_, b := d.send(http.MethodGet, "/openapi.json", "")
			decode(t, b, &h.doc)
			for _, path := range slices.Sorted(mapKeys(h.doc.Paths)) {
				for method, op := range h.doc.Paths[path] {
					h.route(strings.ToUpper(method), path, op)
				}
			}
			t.Logf("%s: %d requests, by status %v", name, h.sent, h.counts)
			if v := get[wire.Verified](d, 200, http.MethodGet, "/v1/verify?scan=true", ""); !v.Balanced {
				t.Errorf("%+v", v)
			}
			if strings.Contains(d.log.String(), "panicked") {
				t.Error("something panicked")
			}
		})
	}
}

type hostile struct {
	d      *rig
	doc    described
	known  map[string]bool
	sent   int
	share  int // one request of so many is sent
	r      *rand.Rand
	counts map[int]int
}

// route sends the corpus to one route.
func (h *hostile) route(method, path string, op *operation) {
	fill := strings.NewReplacer("call/{queue}", "call/g", "guards/{queue}", "guards/g", "{queue}", "q", "{id}", "m", "{signature}", "0000000000000000")
	plain := fill.Replace(path)
	for _, m := range []string{"PUT", "TRACE", "CONNECT", "FOO", "get", "OPTIONS"} {
		h.send(m+" "+plain, "Content-Length: 2\r\n\r\n{}")
	}
	for _, v := range hostileValues {
		for _, name := range pathNames.FindAllString(path, -1) {
			at := fill.Replace(strings.Replace(path, name, v, 1))
			h.send(method+" "+at, "Content-Length: 2\r\n\r\n{}")
		}
		for _, p := range op.Parameters {
			if p.In == "query" && !(p.Name == "wait" && v == "") {
				h.send(method+" "+plain+"?"+p.Name+"="+v, "Content-Length: 2\r\n\r\n{}")
			}
		}
		h.send(method+" "+plain+"?unknown="+v, "\r\n")
		h.send(method+" "+plain+"/"+v, "\r\n")
	}
	for _, header := range hostileHeaders {
		h.send(method+" "+plain, header+"\r\nContent-Length: 2\r\n\r\n{}")
	}
	for _, rest := range hostileRaw {
		h.lie(method+" "+plain, rest)
	}
	if method == http.MethodGet {
		return
	}
	for i, body := range hostileBodies {
		types := hostileTypes
		if len(body) > 50_000 {
			types = hostileTypes[i%2 : i%2+2]
		}
		for _, kind := range types {
			h.send(method+" "+plain, fmt.Sprintf("Content-Type: %s\r\nContent-Length: %d\r\n\r\n%s", kind, len(body), body))
		}
	}
}

var pathNames = regexp.MustCompile(`\{\w+\}`)

// send sends a request as it stands, and looks at the answer.
func (h *hostile) send(line, rest string) { h.exchange(line, rest, false) }

// lie is send for what breaks off before its length: then there may be no answer.
func (h *hostile) lie(line, rest string) { h.exchange(line, rest, true) }

func (h *hostile) exchange(line, rest string, breaksOff bool) {
	t := h.d.t
	t.Helper()
	if h.r.IntN(h.share) != 0 {
		return
	}
	h.sent++
	short := func() string { return fmt.Sprintf("%.200q %.300q", line, rest) }
	c, err := net.Dial("tcp", strings.TrimPrefix(h.d.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute)) // nothing may hang
	host := "Host: localhost\r\n"
	if strings.HasPrefix(rest, "Host:") {
		host = ""
	}
	// Whoever refuses early may stop reading.
	_, werr := io.WriteString(c, line+" HTTP/1.1\r\n"+host+"Connection: close\r\n"+rest)
	if breaksOff {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: strings.Fields(line)[0]})
	if err != nil {
		if !breaksOff || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: no answer: %v, %v", short(), err, werr)
		}
		return
	}
	if resp.Header.Get("Content-Type") == eventMedia {
		h.counts[resp.StatusCode]++
		return
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil && !breaksOff && resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge { // net/http reads no more of it
		t.Errorf("%s: the answer breaks off: %v", short(), err)
	}
	h.counts[resp.StatusCode]++
	if resp.StatusCode < 400 {
		return
	}
	var p problem.Problem
	switch media := resp.Header.Get("Content-Type"); {
	case strings.HasPrefix(media, "text/plain") && (bytes.HasPrefix(body, []byte("4")) || bytes.HasPrefix(body, []byte("Unsupported"))), resp.StatusCode == http.StatusExpectationFailed, strings.Contains(line, "/v1/ws"):
		// net/http could not read it; a socket has its own ways.
	case media != problem.ContentType || json.Unmarshal(body, &p) != nil || !h.known[p.Name()] && !breaksOff:
		t.Errorf("%s: %d %s %.300s", short(), resp.StatusCode, media, body)
	}
	if breaksOff && (p.Name() == "cancelled" || p.Name() == "not-ready") { // the client has left
		return
	}
	if resp.StatusCode >= 500 && !slices.Contains([]string{"no-daemon", "unsupported", "provider", "unavailable", "not-queued"}, p.Name()) && resp.StatusCode != http.StatusNotImplemented {
		t.Errorf("%s: %d %.300s", short(), resp.StatusCode, body)
	}
}

// problemNames are the names of problems in the code.
func problemNames(t *testing.T) map[string]bool {
	t.Helper()
	known := make(map[string]bool)
	made := regexp.MustCompile(`problem\.New\([\w.]+, "([a-z-]+)"|(?:badEvent|badLine)\(`)
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range made.FindAllSubmatch(text, -1) {
			known[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []error{redrive.ErrInvalid, redrive.ErrNotFound, redrive.ErrConflict, redrive.ErrState, redrive.ErrLeaseLost, redrive.ErrUnsupported, redrive.ErrBacklogged, redrive.ErrLoop, redrive.ErrBodyGone} {
		known[driver.ErrorName(e)] = true
	}
	delete(known, "internal")
	delete(known, "")
	return known
}
