package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/redrive/redrive/internal/problem"
)

// Pace bounds how slowly a client may send a body. A fixed timeout would end a long
// upload that goes well; a rate ends only those who hold a connection for nothing.
type Pace struct {
	// Grace is how long a client may keep us waiting in all before the rate
	// counts. Defaults to 20 s.
	Grace time.Duration
	// Rate is the least number of bytes a second after that. Defaults to 1024.
	Rate int64
}

func (p Pace) withDefaults() Pace {
	if p.Grace == 0 {
		p.Grace = 20 * time.Second
	}
	if p.Rate == 0 {
		p.Rate = 1024
	}
	return p
}

// Body wraps r.Body so that reading it fails with a problem (408) when the client
// falls below the pace. Only time spent waiting for the client counts. It needs a
// ResponseWriter with deadlines; without them the body is read unbounded.
func (p Pace) Body(w http.ResponseWriter, r *http.Request) io.ReadCloser {
	return p.withDefaults().wrap(w, r)
}

func (p Pace) wrap(w http.ResponseWriter, r *http.Request) *pacedBody {
	b := &pacedBody{body: r.Body, control: *http.NewResponseController(w), pace: p}
	holdOf(r.Context()).reads(b)
	return b
}

// pacedBody sets a deadline before each read of a body.
type pacedBody struct {
	body    io.ReadCloser
	control http.ResponseController
	pace    Pace
	read    int64
	waited  time.Duration
	ended   atomic.Bool // the whole body has come
	stopped atomic.Pointer[problem.Problem]
}

// Read implements io.Reader.
func (b *pacedBody) Read(p []byte) (int, error) {
	if b.ended.Load() { // a deadline set now would stay
		return 0, io.EOF
	}
	start := time.Now()
	allowed := b.pace.Grace + time.Duration(float64(b.read)/float64(b.pace.Rate)*float64(time.Second)) - b.waited
	deadlines := b.control.SetReadDeadline(start.Add(allowed)) == nil
	// Looked at after the deadline is set: Stop sets its flag first and the deadline
	// second, so one of the two ends this read.
	if stop := b.stopped.Load(); stop != nil {
		return 0, stop
	}
	n, err := b.body.Read(p)
	b.read += int64(n)
	b.waited += time.Since(start)
	if err == io.EOF {
		b.ended.Store(true)
	}
	if err == nil || !deadlines {
		return n, err
	}
	if stop := b.stopped.Load(); stop != nil {
		return n, stop
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return n, problem.New(http.StatusRequestTimeout, "too-slow", "The body came too slowly",
			fmt.Sprintf("%d bytes in %s", b.read, b.waited.Round(time.Millisecond)),
			fmt.Sprintf("send at least %d bytes a second, or smaller requests", b.pace.Rate))
	}
	// At the end of a body net/http clears the deadline, as it then watches for the
	// client's leaving.
	return n, err
}

// Close implements io.Closer.
func (b *pacedBody) Close() error { return b.body.Close() }

// stop makes the present and every later Read fail with p. Behind the end of a body
// net/http watches for the client's leaving, which a deadline would look like.
func (b *pacedBody) stop(p *problem.Problem) {
	b.stopped.CompareAndSwap(nil, p)
	if !b.ended.Load() {
		_ = b.control.SetReadDeadline(time.Unix(1, 0))
	}
}
