package delivery

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redrive/redrive"
	"github.com/redrive/redrive/driver"
)

// raw starts a target that speaks for itself after it has read a request.
func raw(t *testing.T, target Target, speak func(net.Conn)) *Handler {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				req, err := http.ReadRequest(bufio.NewReader(c))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, req.Body)
				speak(c)
			}()
		}
	}()
	target.URL = "http://" + l.Addr().String() + "/"
	target.AllowPrivate = true
	return mustNew(t, target, Options{})
}

// transient checks that an error is a transport failure that is tried again.
func transient(t *testing.T, err error) *TransportError {
	t.Helper()
	var e *TransportError
	if !errors.As(err, &e) {
		t.Fatalf("%v (%T), want a TransportError", err, err)
	}
	if v := driver.Classify(nil, err); v.Outcome != redrive.OutcomeRetry {
		t.Errorf("%v is classified as %v", err, v.Outcome)
	}
	if e.FailureDetails()["target"] == "" || e.FailureDetails()["duration"] == "" {
		t.Errorf("details %v", e.FailureDetails())
	}
	return e
}

func TestTargetHangs(t *testing.T) {
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	h := raw(t, Target{Timeout: 50 * time.Millisecond}, func(net.Conn) { <-release })
	e := transient(t, h.ServeDelivery(t.Context(), message("x")))
	if !e.Timeout() || e.Error() != "the target did not answer in time" {
		t.Errorf("%v, timeout %v", e, e.Timeout())
	}
	if got := driver.Classify(&redrive.Table{Release: []string{"timeout"}}, e); got.Outcome != redrive.OutcomeRelease {
		t.Error("the matcher timeout does not match")
	}
}

func TestTargetTakesNoBody(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // it never accepts, so that a large body finds no room
	h := mustNew(t, Target{URL: "http://" + l.Addr().String() + "/", AllowPrivate: true, Timeout: 100 * time.Millisecond}, Options{})
	e := transient(t, h.ServeDelivery(t.Context(), message(strings.Repeat("x", redrive.MaxBodySize))))
	if !e.Timeout() {
		t.Errorf("%v is no timeout", e)
	}
}

func TestTargetResets(t *testing.T) {
	h := raw(t, Target{}, func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) })
	if e := transient(t, h.ServeDelivery(t.Context(), message("x"))); e.Timeout() {
		t.Errorf("%v is a timeout", e)
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	h := mustNew(t, Target{URL: "http://" + l.Addr().String() + "/", AllowPrivate: true}, Options{})
	if e := transient(t, h.ServeDelivery(t.Context(), message("x"))); !strings.Contains(e.Error(), "refused") {
		t.Error(e)
	}
}

func TestDoesNotResolve(t *testing.T) {
	resolver := serveDNS(t, netip.MustParseAddr("0.0.0.0"))
	resolver.Dial = func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
	}
	h := mustNew(t, Target{URL: "http://nowhere.invalid/"}, Options{Resolver: resolver})
	if e := transient(t, h.ServeDelivery(t.Context(), message("x"))); !strings.Contains(e.Error(), "does not resolve") {
		t.Error(e)
	}
}

// Nobody has sent anything twice behind our back, whatever the key says.
func TestNoHiddenReplay(t *testing.T) {
	for _, body := range []string{"", "x"} {
		var requests atomic.Int32
		h := raw(t, Target{}, func(c net.Conn) {
			if requests.Add(1) == 1 {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				_, _ = http.ReadRequest(bufio.NewReader(c)) // the second one on this connection, unanswered
				requests.Add(1)
			}
		})
		for range 2 {
			d := message(body)
			d.Headers.Add("Idempotency-Key", "k")
			d.Headers.Add("X-Idempotency-Key", "k")
			if err := h.ServeDelivery(t.Context(), d); err != nil {
				transient(t, err)
			}
		}
		if n := requests.Load(); n != 2 {
			t.Errorf("body %q: the target saw %d requests of 2 attempts", body, n)
		}
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	var reached atomic.Bool
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	defer elsewhere.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		h := serve(t, Target{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", strings.Replace(elsewhere.URL, "http://", "http://u:canary@", 1)+"/next?canary=1")
			w.WriteHeader(status)
		})
		err := h.ServeDelivery(t.Context(), message("x"))
		var e *ResponseError
		if !errors.As(err, &e) || e.Status != status || !strings.Contains(err.Error(), "redirects are not followed") {
			t.Errorf("%d: %v", status, err)
		} else if e.Location != elsewhere.URL {
			t.Errorf("location %q", e.Location)
		}
	}
	if reached.Load() {
		t.Error("a redirect was followed")
	}
}

func TestLargeAnswers(t *testing.T) {
	const size = 10 << 20
	chunk := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	for _, status := range []int{200, 500} {
		for _, chunked := range []bool{false, true} {
			var sent atomic.Int64
			h := serve(t, Target{}, func(w http.ResponseWriter, _ *http.Request) {
				if !chunked {
					w.Header().Set("Content-Length", fmt.Sprint(size))
				}
				w.WriteHeader(status)
				for range size / len(chunk) {
					n, err := w.Write(chunk)
					sent.Add(int64(n))
					if err != nil {
						return
					}
				}
			})
			err := h.ServeDelivery(t.Context(), message("x"))
			if (err == nil) != (status == 200) {
				t.Errorf("%d: %v", status, err)
			}
			var e *ResponseError
			if errors.As(err, &e) && len(e.Excerpt) > excerptHead+excerptTail+16 {
				t.Errorf("an excerpt of %d bytes", len(e.Excerpt))
			}
		}
	}
}

func TestReplyIsCut(t *testing.T) {
	h := serve(t, Target{MaxResponse: 100}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("x"), 10<<20))
	})
	d := message("x")
	d.ReplyTo = "results"
	if err := h.ServeDelivery(t.Context(), d); err != nil {
		t.Error(err) // what is emitted is seen in the engine's test
	}
}

func TestHalfAReplyIsNone(t *testing.T) {
	h := raw(t, Target{}, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf") })
	d := message("x")
	if err := h.ServeDelivery(t.Context(), d); err != nil {
		t.Errorf("nobody needs the answer: %v", err)
	}
	d.ReplyTo = "results"
	transient(t, h.ServeDelivery(t.Context(), d))
}

// A target that drips its answer holds a slot no longer than it must.
func TestSlowDrip(t *testing.T) {
	t.Parallel() // it waits for bodyPatience
	for _, status := range []string{"200 OK", "500 Oops"} {
		stop := make(chan struct{})
		h := raw(t, Target{Timeout: time.Minute}, func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 "+status+"\r\nContent-Length: 1000\r\n\r\ndrip")
			<-stop // and never another byte
		})
		err := h.ServeDelivery(t.Context(), message("x"))
		close(stop)
		if (err == nil) != strings.HasPrefix(status, "200") {
			t.Errorf("%s: %v", status, err)
		}
		var e *ResponseError
		if errors.As(err, &e) && e.Excerpt != "drip" {
			t.Errorf("excerpt %q", e.Excerpt)
		}
	}
}

func TestSlowReplyTimesOut(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	h := raw(t, Target{Timeout: 50 * time.Millisecond}, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\ndrip")
		<-stop
	})
	d := message("x")
	d.ReplyTo = "results"
	if e := transient(t, h.ServeDelivery(t.Context(), d)); !e.Timeout() {
		t.Errorf("%v is no timeout", e)
	}
}

func TestBrokenAnswers(t *testing.T) {
	for name, answer := range map[string]string{
		"not HTTP":            "SSH-2.0-OpenSSH_9.2 token=canary1234\r\n",
		"nothing":             "",
		"half a status line":  "HTTP/1.1 20",
		"a status of letters": "HTTP/1.1 abc OK\r\n\r\n",
		"a broken header":     "HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
		"two lengths":         "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
		"a negative length":   "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"headers without end": "HTTP/1.1 200 OK\r\n" + strings.Repeat("x: "+strings.Repeat("y", 1000)+"\r\n", 1000),
		"one endless header":  "HTTP/1.1 200 OK\r\nx: " + strings.Repeat("y", 1<<20),
		"early hints forever": strings.Repeat("HTTP/1.1 103 Early Hints\r\nlink: "+strings.Repeat("y", 1000)+"\r\n\r\n", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			h := raw(t, Target{Timeout: 5 * time.Second}, func(c net.Conn) { _, _ = io.WriteString(c, answer) })
			e := transient(t, h.ServeDelivery(t.Context(), message("x")))
			if len(e.Error()) > 600 || strings.Contains(e.Error(), "canary") {
				t.Errorf("%q", e.Error())
			}
		})
	}
}

func TestSwitchingProtocols(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	h := raw(t, Target{Timeout: time.Minute}, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		<-stop
	})
	var e *ResponseError
	if err := h.ServeDelivery(t.Context(), message("x")); !errors.As(err, &e) || e.Status != 101 {
		t.Errorf("%v", err)
	}
}

// A bomb is not decompressed: what came is what is looked at.
func TestCompressedAnswerStaysAsItIs(t *testing.T) {
	h := serve(t, Target{}, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			t.Errorf("accept-encoding %q", r.Header.Get("Accept-Encoding"))
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(w, "no gzip")
	})
	var e *ResponseError
	if err := h.ServeDelivery(t.Context(), message("x")); !errors.As(err, &e) || e.Excerpt != "no gzip" {
		t.Errorf("%#v", err)
	}
}

func TestEnvironmentProxyIsIgnored(t *testing.T) {
	port, reached := listen(t)
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:"+port)
	t.Setenv("http_proxy", "http://127.0.0.1:"+port)
	h := mustNew(t, Target{URL: "http://192.0.2.1/"}, Options{})
	var refused *RefusedError
	if err := h.ServeDelivery(t.Context(), message("x")); !errors.As(err, &refused) {
		t.Errorf("%v, want it refused", err)
	}
	if reached.Load() != 0 {
		t.Error("the proxy was used")
	}
}

func TestInterrupted(t *testing.T) {
	arrived, stop := make(chan struct{}), make(chan struct{})
	defer close(stop)
	h := raw(t, Target{}, func(net.Conn) { close(arrived); <-stop })
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-arrived; cancel(redrive.ErrLeaseLost) }()
	e := transient(t, h.ServeDelivery(ctx, message("x")))
	if !errors.Is(e, redrive.ErrLeaseLost) || e.Timeout() {
		t.Errorf("%v", e)
	}
}

func TestTLSAndHTTP2(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.Header.Get("Idempotency-Key") != "k" {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	s.EnableHTTP2 = true
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of the handshake that fails
	s.StartTLS()
	defer s.Close()
	d := message("x")
	d.Headers.Add("Idempotency-Key", "k")
	trusting := s.Client().Transport.(*http.Transport).TLSClientConfig
	if err := mustNew(t, Target{URL: s.URL, AllowPrivate: true}, Options{TLS: trusting}).ServeDelivery(t.Context(), d); err != nil {
		t.Error(err)
	}
	transient(t, mustNew(t, Target{URL: s.URL, AllowPrivate: true}, Options{}).ServeDelivery(t.Context(), d))
}
