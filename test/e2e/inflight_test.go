//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// 50 bodies of 16 MiB at once: each client gets an answer, and the daemon takes at most twice
// what bodies in flight may take.
func TestManyLargeBodiesAtOnce(t *testing.T) {
	const most = 2 * 256 << 20
	d := newDaemon(t, "queues: {q: {}}\n")
	body := bytes.Repeat([]byte("x"), 16<<20)
	var mu sync.Mutex
	statuses := make(map[int]int)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			resp, err := http.Post(d.url+"/v1/queues/q/messages", "text/plain", bytes.NewReader(body))
			if err != nil {
				t.Errorf("no answer: %v", err)
				return
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			statuses[resp.StatusCode]++
			if resp.StatusCode != http.StatusAccepted && (resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "") {
				t.Errorf("%d %v", resp.StatusCode, resp.Header)
			}
		})
	}
	all.Wait()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("answers %v, at most %d MiB", statuses, kib>>10)
	if kib<<10 > most {
		t.Errorf("%d MiB of memory", kib>>10)
	}
}
