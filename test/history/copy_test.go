package history

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/redrive/redrive/internal/programtest"
)

// leftAt reads what waits and what is dead.
func leftAt(get func(path string, out any)) (all []Left) {
	for _, path := range []string{"/v1/dead-letters?limit=500", "/v1/queues/" + hooks + "/messages?limit=500", "/v1/queues/" + keyed + "/messages?limit=500", "/v1/queues/" + work + "/messages?limit=500"} {
		pages(path, get, func(l letter) {
			if l.State == Dead == strings.HasPrefix(path, "/v1/queues/") {
				return // they come from their own list
			}
			whole := l
			if l.State == Dead {
				get("/v1/queues/"+l.Queue+"/dead-letters/"+l.ID, &whole)
			} else {
				get("/v1/queues/"+l.Queue+"/messages/"+l.ID, &whole)
			}
			left := Left{Queue: l.Queue, ID: l.ID, State: l.State, Generation: l.Generation, Redrives: l.Redrives}
			left.Label, left.Rev, left.Garbled = read(whole.Body)
			all = append(all, left)
		})
	}
	return all
}

// copied ends the daemons, copies their store, and returns what the copy holds. A first copy
// is killed at some moment: the next one goes on.
func (r *rig) copied(ctx context.Context) (there []Left, problems []string) {
	for _, d := range r.daemons {
		d.end()
	}
	from, to := r.daemons[0], "sqlite:"+filepath.Join(r.t.TempDir(), "copy")
	run := func(ctx context.Context) ([]byte, error) {
		cmd := exec.CommandContext(ctx, from.bin, "copy", "--from", from.store, "--to", to)
		cmd.Env = programtest.Environ(from.env...)
		return cmd.CombinedOutput()
	}
	first, end := context.WithTimeout(ctx, r.dice.upTo(500*time.Millisecond))
	_, _ = run(first) // it is killed, unless it was faster
	end()
	if out, err := run(ctx); err != nil {
		return nil, []string{fmt.Sprintf("copy: %v: %s", err, out)}
	}
	idle := fmt.Sprintf("log: {level: error}\nqueues: {%s: {}, %s: {}, %s: {}}\n", hooks, keyed, work)
	d := newDaemon(r.t, r.rec, func() (string, error) { return from.bin, nil }, "copy", to, idle, from.env...)
	if !await(ctx, time.Minute, d.ready) {
		return nil, []string{"the copy is not ready: " + d.log.String()}
	}
	there = append([]Left{}, leftAt(func(path string, out any) {
		if a, note := r.rec.call(ctx, http.MethodGet, d.direct+path, nil, nil, out); a != OK {
			problems = append(problems, "copy: "+path+": "+note)
		}
	})...) // not nil: nil is no copy
	d.end()
	return there, problems
}
