package gateway_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redrive/redrive/internal/daemon/gateway"
	"github.com/redrive/redrive/internal/servertest"
)

// dripped sends a request whose body comes in single bytes, each after a pause, and
// returns the status line of the answer and how long it took.
func dripped(t *testing.T, h http.Handler, contentType string, body string, pause time.Duration) (status string, took time.Duration) {
	t.Helper()
	listener := servertest.NewPipes()
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	var sides sync.WaitGroup
	defer sides.Wait()
	sides.Go(func() { _ = server.Serve(listener) })
	defer server.Close()
	conn := listener.Dial()
	defer conn.Close()
	start := time.Now()
	sides.Go(func() {
		fmt.Fprintf(conn, "POST /v1/queues/sms/messages HTTP/1.1\r\nHost: x\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", contentType, len(body))
		for i := range len(body) {
			<-time.After(pause) // of the simulated clock
			if _, err := conn.Write([]byte{body[i]}); err != nil {
				return
			}
		}
	})
	in := bufio.NewReader(conn)
	status, err := in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	took = time.Since(start)
	return strings.TrimSpace(status), took
}

func TestABodyThatComesTooSlowlyIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := mount(new(sink), gateway.Options{Pace: gateway.Pace{Grace: 20 * time.Second, Rate: 100}})
		status, took := dripped(t, h, "text/plain", strings.Repeat("x", 1000), time.Second)
		if status != "HTTP/1.1 408 Request Timeout" || took < 20*time.Second || took > 25*time.Second {
			t.Errorf("%s after %s", status, took)
		}
	})
}

func TestALongBodyThatKeepsThePaceIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(sink)
		h := mount(s, gateway.Options{Pace: gateway.Pace{Grace: 20 * time.Second, Rate: 5}})
		status, took := dripped(t, h, "text/plain", strings.Repeat("x", 1000), 100*time.Millisecond)
		if status != "HTTP/1.1 202 Accepted" || took < 90*time.Second || len(s.published()[0].Body) != 1000 {
			t.Errorf("%s after %s", status, took)
		}
	})
}

// A deadline left over from reading would end the connection's watch and with it the
// context of a request whose commit takes long.
func TestTheDeadlineOfTheBodyDoesNotEndTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body := gateway.Pace{Grace: time.Second}.Body(w, r)
			if _, err := bufio.NewReader(body).ReadString('!'); err != nil {
				t.Error(err)
			}
			_, _ = body.Read(make([]byte, 1)) // the end
			select {
			case <-r.Context().Done():
				t.Error("the request was cancelled")
			case <-time.After(time.Minute):
			}
			w.WriteHeader(http.StatusAccepted)
		})
		mux := http.NewServeMux()
		mux.Handle("POST "+path, h)
		if status, _ := dripped(t, mux, "text/plain", "x!", 0); status != "HTTP/1.1 202 Accepted" {
			t.Error(status)
		}
	})
}
