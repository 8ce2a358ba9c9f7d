package gateway

import (
	"io"
	"net/http"
	"strings"
	"time"
)

// drainMost bounds how much of a refused body is read, in bytes.
const drainMost = 64 << 20

// drainPace is the pace of what is read in vain.
var drainPace = Pace{Grace: 5 * time.Second, Rate: 256 << 10}

// Drain reads what is left of the body of a request that is refused, and keeps nothing: a
// client that still writes would get a reset of its connection in place of the answer. It
// must come before the answer. A client that waits to be told to go on sends nothing.
func Drain(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 || strings.EqualFold(r.Header.Get("Expect"), "100-continue") {
		return
	}
	discard(drainPace.wrap(w, r))
}

func discard(src *pacedBody) {
	src.pace = drainPace
	_, _ = io.CopyN(io.Discard, src, drainMost)  // whatever ends it, the answer comes next
	_ = src.control.SetReadDeadline(time.Time{}) // else it would end the next request
}
